import { type SqlBool, sql } from 'kysely'
import { dataTable } from '../database.ts'
import type { Transaction } from '../transaction.ts'
import { type RowHashes, rowHash } from './row-digest.ts'
import type { WindowLoad } from './window-effect.ts'

// A hash, and the block and number of the row.
const ENTRY_BYTES = 14

/**
 * Compares by the hashes of rows, so that only rows that differ are sent and joined. The lock of loads is held: nobody else
 * moves these rows.
 */
export async function differingRows(
  { db }: Transaction,
  { projectId, range, stream, rows }: WindowLoad,
  answer: RowHashes,
) {
  const hash = rowHash(stream.columns)
  const { rows: found } = await sql<{ known: Buffer | null }>`
    select string_agg(int8send(${hash}) || tidsend(t.ctid), '') as known from ${dataTable(stream.table)} t
    where t.project_id = ${projectId} and t.date between ${range.from} and ${range.to}`.execute(db)
  const known = found[0]?.known ?? Buffer.alloc(0)
  const find = answer.finder()
  const same = new Uint8Array(rows.length)
  const hashes: bigint[] = []
  const tupleIds: string[] = []
  for (let at = 0; at < known.length; at += ENTRY_BYTES) {
    const position = find(known.readInt32BE(at), known.readInt32BE(at + 4))
    if (position >= 0) {
      same[position] = 1
      continue
    }
    hashes.push(known.readBigInt64BE(at))
    tupleIds.push(`"(${known.readUInt32BE(at + 8)},${known.readUInt16BE(at + 12)})"`)
  }
  // Partitions number their rows each for itself, so the hash is looked at, too.
  const whereDifferent = sql<SqlBool>`
    t.ctid = any(${`{${tupleIds.join()}}`}::tid[]) and ${hash} = any(${`{${hashes.join()}}`}::bigint[])`
  return {
    /** Rows of the answer that the table does not have in the same way. */
    rows: rows.only((position) => same[position] === 0),
    /** A condition on rows of the table (t) that the answer does not have in the same way. */
    whereDifferent,
  }
}
