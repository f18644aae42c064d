import { finished } from 'node:stream/promises'
import { type RawBuilder, type SqlBool, sql } from 'kysely'
import { from as copyFrom } from 'pg-copy-streams'
import type { PackedRows } from '../../rows/packed-rows.ts'
import type { Column, ListStream } from '../../streams/stream.ts'
import { isPooled } from '../connect.ts'
import { batch, dataTable, writtenOut } from '../database.ts'
import type { Transaction } from '../transaction.ts'

/** A temporary table with the rows of an answer, and fragments that compare it (s) with the real table (t). */
export type Stage = ReturnType<typeof stageOf>

interface Staged {
  table: string
  columns: readonly Column[]
  key: readonly string[]
}

/**
 * Copies rows into the temporary table of a stream. It is made once for a connection, because one for each window would
 * bloat the catalogue; behind a pooler, where other clients get the connection, it is dropped with the transaction.
 */
export async function stageRows(tx: Transaction, target: Staged, rows: PackedRows): Promise<Stage> {
  const staged = stageOf(target)
  const { table, stage, names } = staged
  const onCommit = sql.raw(isPooled(tx.client) ? 'drop' : 'delete rows')
  await batch<unknown[]>(
    tx.db,
    sql`create temporary table if not exists ${stage} on commit ${onCommit} as select ${names} from ${table} with no data`,
    // Until the end of the transaction: the planner knows nothing of the temporary table and would join by nested loops,
    // minutes instead of milliseconds. What else the transaction asks finds single rows by index, or joins by hash anyway.
    sql`set local enable_nestloop = off`,
    sql`set local enable_mergejoin = off`,
  )
  if (rows.length > 0) await copyRows(tx, `pg_temp.${stageName(target)}`, rows)
  return staged
}

const stageName = ({ table }: Staged) => `stage_${table}`

function stageOf(target: Staged) {
  const others = target.columns.map(({ name }) => name).filter((name) => !target.key.includes(name))
  const side = (alias: string) => sql`(${sql.join(others.map((name) => sql.ref(`${alias}.${name}`)))})`
  const keys = target.key.map((name) => isEqual(target.columns, name))
  return {
    table: dataTable(target.table),
    stage: sql.table(`pg_temp.${stageName(target)}`),
    names: namesOf(target.columns),
    keysMatch: sql<SqlBool>`${sql.join([sql`t.project_id = s.project_id`, ...keys], sql` and `)}`,
    // A table whose columns are all key has nothing that could differ.
    valuesDiffer: others.length === 0 ? sql<SqlBool>`false` : sql<SqlBool>`${side('t')} is distinct from ${side('s')}`,
    assignments: others.map((name) => sql`${sql.id(name)} = s.${sql.id(name)}`),
  }
}

function namesOf(columns: readonly Column[]): RawBuilder<unknown> {
  return sql`${sql.join(['project_id', ...columns.map(({ name }) => name)].map((name) => sql.id(name)))}`
}

/** Equality that a hash join can use though ids may be null: no id is the empty text. */
function isEqual(columns: readonly Column[], name: string): RawBuilder<SqlBool> {
  const isText = columns.find((candidate) => candidate.name === name)?.type === 'text'
  return isText
    ? sql`coalesce(t.${sql.id(name)}, '') = coalesce(s.${sql.id(name)}, '')`
    : sql`t.${sql.id(name)} = s.${sql.id(name)}`
}

// For the rows of one page.
const COPY_MS = 180_000

export async function copyRows({ client, db }: Transaction, table: string, rows: PackedRows): Promise<void> {
  const statement = sql`copy ${sql.table(table)} (${namesOf(rows.columns)}) from stdin with (format binary)`
  const copy = copyFrom(writtenOut(db, statement))
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

/** For rows that are part of a list and not all of it. Returns how many were new. */
export async function insertNewRows(tx: Transaction, stream: ListStream, rows: PackedRows): Promise<number> {
  if (rows.length === 0) return 0
  const { table, stage, names } = await stageRows(tx, stream, rows)
  const { numAffectedRows } = await sql`
    insert into ${table} (${names}) select ${names} from ${stage} on conflict do nothing`.execute(tx.db)
  return Number(numAffectedRows ?? 0)
}
