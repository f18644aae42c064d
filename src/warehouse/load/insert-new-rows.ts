import type { PackedRows } from '../../rows/packed-rows.ts'
import type { ListStream } from '../../streams/stream.ts'
import type { Warehouse } from '../connect.ts'
import type { Transaction } from '../transaction.ts'
import { stageRows } from './stage.ts'

/** Inserts rows that are part of a list and not all of it; those that are there stay. Returns how many were new. */
export async function insertNewRows(
  { client }: Transaction,
  warehouse: Warehouse,
  stream: ListStream,
  rows: PackedRows,
): Promise<number> {
  if (rows.length === 0) return 0
  const sql = await stageRows(client, warehouse, stream, rows)
  const names = sql.names.join(', ')
  const { rowCount } = await client.query(
    `insert into ${sql.table} (${names}) select ${names} from ${sql.stage} on conflict do nothing`,
  )
  return rowCount ?? 0
}
