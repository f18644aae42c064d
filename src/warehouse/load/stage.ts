import type { PoolClient } from 'pg'
import { quote } from '../../core/identifier.ts'
import type { PackedRows } from '../../rows/packed-rows.ts'
import type { Column } from '../../streams/stream.ts'
import { tableName, type Warehouse } from '../connect.ts'
import { copyRows } from './copy-rows.ts'

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

export function stageSql(warehouse: Warehouse, target: Staged): Stage {
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
