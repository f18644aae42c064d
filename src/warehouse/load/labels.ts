import { sql } from 'kysely'
import type { Config } from '../../core/config/load.ts'
import { quote } from '../../core/identifier.ts'
import { tableName, type Warehouse } from '../connect.ts'
import { literal, type Statement } from '../transaction.ts'

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

/** Lists the configured projects. */
export async function listProjects({ pool, schema }: Warehouse, projectIds: readonly string[]): Promise<void> {
  await pool.query(
    `insert into ${quote(schema, 'projects')} (project_id) select unnest($1::text[]) on conflict do nothing`,
    [projectIds],
  )
}

/** The name of a project is that of its profile, unless the service lists projects. */
export function projectName(warehouse: Warehouse, projectId: string): Statement<void> {
  const id = literal(projectId)
  const sql = `update ${tableName(warehouse, 'projects')} p set name = f.name from ${tableName(warehouse, 'project_profiles')} f
    where p.project_id = ${id} and p.listed_at is null and f.project_id = ${id} and f.name is not null and p.name is distinct from f.name`
  return { sql, read: () => {} }
}
