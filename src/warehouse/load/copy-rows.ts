import { finished } from 'node:stream/promises'
import type { PoolClient } from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import { quote } from '../../core/identifier.ts'
import type { PackedRows } from '../../rows/packed-rows.ts'

/** COPY of rows of one project into a table. `table` is quoted already. */
export async function copyRows(client: PoolClient, table: string, rows: PackedRows): Promise<void> {
  const names = ['project_id', ...rows.columns.map(({ name }) => name)].map((name) => quote(name)).join(', ')
  const stream = client.query(copyFrom(`copy ${table} (${names}) from stdin with (format binary)`))
  ignoreLateWrites(stream)
  let over = false
  const done = finished(stream).finally(() => {
    over = true
  })
  for (const chunk of rows.chunks()) {
    if (over) break
    if (!stream.write(chunk)) {
      await Promise.race([new Promise((drained) => stream.once('drain', drained)), done.catch(() => {})])
    }
  }
  if (!over) stream.end()
  await done
}

/**
 * pg-copy-streams forgets its connection when that fails, and still writes to it once the socket drains: a TypeError
 * that nothing can catch. A connection that swallows everything takes its place.
 */
function ignoreLateWrites(stream: ReturnType<typeof copyFrom>): void {
  const inner = stream as unknown as { handleError(error: Error): void; connection: unknown }
  const original = inner.handleError.bind(stream)
  const deadConnection = { stream: { write: () => true, once: () => {} }, sendCopyFail: () => {} }
  inner.handleError = (error) => {
    original(error)
    inner.connection = deadConnection
  }
}
