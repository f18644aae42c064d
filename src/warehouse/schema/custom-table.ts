import type { Config } from '../../core/config/load.ts'
import { UsageError } from '../../core/errors.ts'
import { quote } from '../../core/identifier.ts'
import { customDefinition } from '../../streams/custom-stream.ts'
import { definedStream } from '../../streams/defined-stream.ts'
import type { Warehouse } from '../connect.ts'
import { columnsSql, createDayTable, type Database } from './report-table.ts'

type Custom = Config['custom_streams'][number]

/** Makes the table of a custom stream; true if it was made now. A changed definition is refused, as that of a report is. */
export async function ensureCustomTable(
  { client, ops }: Database,
  warehouse: Warehouse,
  custom: Custom,
): Promise<boolean> {
  const definition = meaningOf(custom)
  const known = await ops
    .selectFrom('custom_streams')
    .select('definition')
    .where('name', '=', custom.name)
    .executeTakeFirst()
  if (known !== undefined) {
    if (meaningOf(known.definition as Custom) === definition) return false
    throw new UsageError(
      `custom_streams: the definition of "${custom.name}" changed, and its table holds rows of the old kind: give the new one ` +
        'another name, or drop the old table and its entry in the custom_streams table first (docs/operations.md)',
    )
  }
  const stream = definedStream(customDefinition(custom))
  const table = quote(warehouse.schema, stream.table)
  const { rows } = await client.query<{ there: boolean }>('select to_regclass($1) is not null as there', [table])
  if (rows[0]?.there) {
    throw new UsageError(
      `custom_streams: "${custom.name}" would need the table ${warehouse.schema}.${custom.name}, which exists and was not made ` +
        'for it; give the stream another name',
    )
  }
  if (stream.by === 'day') await createDayTable(client, warehouse, stream, 'none')
  else {
    const columns = [
      'project_id text collate "C" not null',
      ...columnsSql(stream.columns, (name) => stream.key.includes(name)),
      'first_seen_at timestamptz not null default now()',
      'removed_at timestamptz',
      `primary key (project_id, ${stream.key.map((name) => quote(name)).join(', ')})`,
    ]
    await client.query(`create table ${table} (${columns.join(', ')})`)
  }
  await ops.insertInto('custom_streams').values({ name: custom.name, definition }).execute()
  return true
}

/** What decides which rows it has: words for people may change. */
function meaningOf({ name, path, method, by, dimensions, columns, key, adds }: Custom): string {
  const fields = columns.map((column) => ({ name: column.name, path: column.path, type: column.type }))
  return JSON.stringify({ name, path, method, by, dimensions, columns: fields, key, adds })
}
