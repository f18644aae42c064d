import { finished } from 'node:stream/promises'
import type { PoolClient } from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import { quote } from '../../core/identifier.ts'
import type { PackedRows } from '../../rows/packed-rows.ts'
import type { Column, ListStream } from '../../streams/stream.ts'
import { tableName, type Warehouse } from '../connect.ts'
import type { Transaction } from '../transaction.ts'

/** A temporary table with the rows of an answer, and the SQL fragments that compare it (s) with the real table (t). */
export interface Stage {
  table: string
  stage: string
  /** `project_id` and all columns, quoted. */
  names: string[]
  keysMatch: string
  valuesDiffer: string
  /** "column = s.column, …" for the columns outside the key. */
  assignments: string
}

interface Staged {
  table: string
  columns: readonly Column[]
  key: readonly string[]
}

/**
 * Copies rows into the temporary table of a stream. It is made once for a connection, because one for each window would
 * bloat the catalogue; behind a pooler, where other clients get the connection, it is dropped with the transaction.
 */
export async function stageRows(
  client: PoolClient,
  warehouse: Warehouse,
  target: Staged,
  rows: PackedRows,
): Promise<Stage> {
  const sql = stageSql(warehouse, target)
  const columns = `select ${sql.names.join(', ')} from ${sql.table}`
  const onCommit = warehouse.isPooled ? 'drop' : 'delete rows'
  await client.query(
    `create temporary table if not exists ${sql.stage} on commit ${onCommit} as ${columns} with no data; ${JOIN_BY_HASH}`,
  )
  if (rows.length > 0) await copyRows(client, sql.stage, rows)
  return sql
}

// Until the end of the transaction: the planner knows nothing of the temporary table and would join by nested loops, minutes
// instead of milliseconds. What else the transaction asks finds single rows by index, or joins by hash anyway.
const JOIN_BY_HASH = 'set local enable_nestloop = off; set local enable_mergejoin = off'

function stageSql(warehouse: Warehouse, target: Staged): Stage {
  const others = target.columns.map(({ name }) => name).filter((name) => !target.key.includes(name))
  const side = (alias: string) => `(${others.map((name) => `${alias}.${quote(name)}`).join(', ')})`
  return {
    table: tableName(warehouse, target.table),
    stage: quote('pg_temp', `stage_${target.table}`),
    names: ['project_id', ...target.columns.map(({ name }) => name)].map((name) => quote(name)),
    keysMatch: ['t.project_id = s.project_id', ...target.key.map((name) => equal(target.columns, name))].join(' and '),
    // A table whose columns are all key has nothing that could differ.
    valuesDiffer: others.length === 0 ? 'false' : `${side('t')} is distinct from ${side('s')}`,
    assignments: others.map((name) => `${quote(name)} = s.${quote(name)}`).join(', '),
  }
}

/** Equality that a hash join can use though ids may be null: no id is the empty text. */
function equal(columns: readonly Column[], name: string): string {
  const column = quote(name)
  const text = columns.find((candidate) => candidate.name === name)?.type === 'text'
  return text ? `coalesce(t.${column}, '') = coalesce(s.${column}, '')` : `t.${column} = s.${column}`
}

// For the rows of one page.
const COPY_MS = 180_000

/** COPY of rows of one project into a table. `table` is quoted already. */
export async function copyRows(client: PoolClient, table: string, rows: PackedRows): Promise<void> {
  const names = ['project_id', ...rows.columns.map(({ name }) => name)].map((name) => quote(name)).join(', ')
  const copy = copyFrom(`copy ${table} (${names}) from stdin with (format binary)`)
  const stream = client.query(Object.assign(copy, { query_timeout: COPY_MS }))
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

/** Inserts rows that are part of a list and not all of it; those that are there stay. Returns how many were new. */
export async function insertNewRows(tx: Transaction, stream: ListStream, rows: PackedRows): Promise<number> {
  if (rows.length === 0) return 0
  const sql = await stageRows(tx.client, tx, stream, rows)
  const names = sql.names.join(', ')
  const { rowCount } = await tx.client.query(
    `insert into ${sql.table} (${names}) select ${names} from ${sql.stage} on conflict do nothing`,
  )
  return rowCount ?? 0
}
