import { isShare } from '../../warehouse/schema/column-kinds.ts'
import { POINTS_TO } from '../../warehouse/schema/relations.ts'
import type { Field, Metabase, Table } from './api.ts'

/*
 * What Metabase should know of columns and gets wrong by itself. It reads a foreign key of two columns as if each pointed to
 * both, and guesses from names: `margin_of_error` is money to it.
 */

/** Brings the meaning of fields in line, writing only those that differ, and says how many it wrote. */
export async function pinFields(metabase: Metabase, tables: readonly Table[]): Promise<number> {
  let written = 0
  for (const table of tables) {
    for (const field of table.fields) {
      const wanted = meaningOf(table, field, tables)
      if (wanted === undefined || isSo(field, wanted)) continue
      await metabase.updateField(field.id, wanted)
      written++
    }
  }
  return written
}

type Meaning = { semantic_type: 'type/Percentage' } | { semantic_type: 'type/FK'; fk_target_field_id: number }

function meaningOf(table: Table, field: Field, tables: readonly Table[]): Meaning | undefined {
  if (isShare(table.name, field.name)) return { semantic_type: 'type/Percentage' }
  const target = targetOf(table.name, field.name)
  if (target === undefined) return undefined
  const key = tables
    .find(({ name, schema }) => name === target.table && schema === table.schema)
    ?.fields.find(({ name }) => name === target.column)
  return key === undefined ? undefined : { semantic_type: 'type/FK', fk_target_field_id: key.id }
}

/** The column that a column points to; a table's own key points nowhere. */
function targetOf(table: string, name: string): { table: string; column: string } | undefined {
  const column = name.replace(/^(own|rival)_(?=brand_id$)/, '')
  const target = column === 'project_id' ? 'projects' : POINTS_TO[column]
  return target === undefined || target === table ? undefined : { table: target, column }
}

function isSo(field: Field, wanted: Meaning): boolean {
  return (
    field.semantic_type === wanted.semantic_type &&
    (wanted.semantic_type !== 'type/FK' || field.fk_target_field_id === wanted.fk_target_field_id)
  )
}
