import { sql } from 'kysely'
import type { Config } from '../../core/config/load.ts'
import type { Warehouse } from '../connect.ts'

/** An id may be the name of something that every object has, such as `constructor`. */
export function labelOf<Label>(labels: Record<string, Label>, id: string): Label | undefined {
  return Object.hasOwn(labels, id) ? labels[id] : undefined
}

/** Brings names in line with the labels of the configuration. */
export async function applyLabels(
  { tables }: Warehouse,
  projectIds: readonly string[],
  labels: Config['labels'],
): Promise<void> {
  const ofProjects = sql<boolean>`project_id = any(${projectIds}::text[])`
  for (const [id, { name }] of Object.entries(labels.brands)) {
    if (name === undefined) continue
    await tables
      .updateTable('brands')
      .set({ name })
      .where(ofProjects)
      .where('brand_id', '=', id)
      .where('name', 'is distinct from', name)
      .execute()
  }
  for (const [id, name] of Object.entries(labels.topics)) {
    await tables
      .updateTable('topics')
      .set({ name })
      .where(ofProjects)
      .where('topic_id', '=', id)
      .where('name', 'is distinct from', name)
      .execute()
  }
  for (const [id, name] of Object.entries(labels.tags)) {
    await tables
      .updateTable('tags')
      .set({ name })
      .where(ofProjects)
      .where('tag_id', '=', id)
      .where('name', 'is distinct from', name)
      .execute()
  }
}
