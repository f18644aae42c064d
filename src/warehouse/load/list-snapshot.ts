import { PackedRows } from '../../rows/packed-rows.ts'
import type { Column, ListStream, Row } from '../../streams/stream.ts'
import { tableName, type Warehouse } from '../connect.ts'
import { literal, type Statement } from '../transaction.ts'
import { digestSql, RowHashes } from './row-digest.ts'

/** A project's list as it is: how many rows it and its child tables have, and their digests if they were asked for. */
export type ListSnapshot = ReadonlyMap<string, { count: number; digest: bigint | undefined }>

/** Rows of the table (t) that are on the list: not removed and, where reports mention others, shown by it. */
export function isListed({ hasUnlistedRows }: Pick<ListStream, 'hasUnlistedRows'>): string {
  return hasUnlistedRows ? 't.removed_at is null and t.listed_at is not null' : 't.removed_at is null'
}

export function listSnapshot(
  warehouse: Warehouse,
  { projectId, stream }: Pick<ListAnswer, 'projectId' | 'stream'>,
  withDigest: boolean,
): Statement<ListSnapshot> {
  const id = literal(projectId)
  const digestOf = (columns: readonly Column[]) => (withDigest ? digestSql('t', columns) : 'null::bigint')
  const ofTable = (table: string, columns: readonly Column[], from: string) =>
    `select ${literal(table)} as name, count(*) as count, ${digestOf(columns)}::text as digest from ${from}`
  const listed = `${tableName(warehouse, stream.table)} t where t.project_id = ${id} and ${isListed(stream)}`
  const ofChildren = (stream.children ?? []).map(({ table, columns, parent }) =>
    ofTable(
      table,
      columns,
      `${tableName(warehouse, table)} t where t.project_id = ${id} and t.${parent} in (select t.${parent} from ${listed})`,
    ),
  )
  return {
    sql: [ofTable(stream.table, stream.columns, listed), ...ofChildren].join('\nunion all '),
    read: (rows) =>
      new Map(
        (rows as unknown as { name: string; count: number; digest: string | null }[]).map(({ name, count, digest }) => [
          name,
          { count, digest: digest === null ? undefined : BigInt(digest) },
        ]),
      ),
  }
}

export interface ListAnswer {
  projectId: string
  stream: ListStream
  rows: PackedRows
  /** The rows of child tables, by table. */
  children: ReadonlyMap<string, Row[]>
}

/** True if the list and its child tables have the rows of the answer, each with the same values. */
export function isAsAnswered(snapshot: ListSnapshot, { projectId, stream, rows, children }: ListAnswer): boolean {
  const isSame = (table: string, answered: PackedRows) => {
    const { count, digest } = snapshot.get(table)!
    return count === answered.length && digest === new RowHashes(answered).digest()
  }
  const childRows = ({ table, columns }: { table: string; columns: Column[] }) =>
    PackedRows.of(columns, projectId, children.get(table) ?? [])
  return isSame(stream.table, rows) && (stream.children ?? []).every((child) => isSame(child.table, childRows(child)))
}
