import type { Warehouse } from '../warehouse/connect.ts'

export interface TableSize {
  name: string
  /** With its indexes and what is stored apart from it. */
  bytes: number
  /** As the planner guesses: counting would read all of it. */
  rows: number
}

export interface LedgerSize {
  bytes: number
  tables: TableSize[]
}

/** The size of the tables of the ops schema, the largest first. */
export async function readLedgerSize(warehouse: Warehouse): Promise<LedgerSize> {
  const tables = await readTableSizes(warehouse, warehouse.opsSchema)
  return { bytes: tables.reduce((sum, { bytes }) => sum + bytes, 0), tables }
}

/** The tables of a schema, the largest first; one in parts counts as one. */
export async function readTableSizes({ pool }: Warehouse, schema: string): Promise<TableSize[]> {
  const { rows } = await pool.query<TableSize>(
    `select coalesce(p.relname, c.relname) as name, sum(pg_total_relation_size(c.oid))::double precision as bytes,
       sum(greatest(c.reltuples, 0))::double precision as rows
     from pg_class c join pg_namespace n on n.oid = c.relnamespace
     left join pg_inherits i on i.inhrelid = c.oid left join pg_class p on p.oid = i.inhparent
     where n.nspname = $1 and c.relkind in ('r', 'm') group by 1 order by 2 desc, 1`,
    [schema],
  )
  return rows
}
