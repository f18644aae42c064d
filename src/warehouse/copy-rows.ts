import { finished } from 'node:stream/promises'
import type { PoolClient } from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import { quote } from '../core/identifier.ts'
import type { Column, Row } from '../streams/stream.ts'
import { encodeRows } from './encode-rows.ts'

const CHUNK = 262_144

/** COPY of rows of one project into a table. `table` is quoted already. */
export async function copyRows(
  client: PoolClient,
  table: string,
  projectId: string,
  columns: readonly Column[],
  rows: readonly Row[],
): Promise<void> {
  const names = ['project_id', ...columns.map(({ name }) => name)].map((name) => quote(name)).join(', ')
  const bytes = encodeRows(columns, rows, [projectId])
  const stream = client.query(copyFrom(`copy ${table} (${names}) from stdin with (format binary)`))
  survive(stream)
  let over = false
  const done = finished(stream).finally(() => {
    over = true
  })
  for (let start = 0; start < bytes.length && !over; start += CHUNK) {
    if (!stream.write(bytes.subarray(start, start + CHUNK))) {
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
function survive(stream: ReturnType<typeof copyFrom>): void {
  const inner = stream as unknown as { handleError(error: Error): void; connection: unknown }
  const original = inner.handleError.bind(stream)
  const nowhere = { stream: { write: () => true, once: () => {} }, sendCopyFail: () => {} }
  inner.handleError = (error) => {
    original(error)
    inner.connection = nowhere
  }
}
