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
  warehouse: Warehouse,
  projectIds: readonly string[],
  { brands, topics, tags }: Config['labels'],
): Promise<void> {
  const names = Object.fromEntries(Object.entries(brands).map(([id, { name }]) => [id, name ?? null]))
  for (const [kind, labels] of Object.entries({ brand: names, topic: topics, tag: tags })) {
    if (Object.keys(labels).length === 0) continue
    await warehouse.pool.query(
      `update ${tableName(warehouse, `${kind}s`)} t set name = l.name from unnest($2::text[], $3::text[]) l(id, name)
       where t.project_id = any($1) and t.${kind}_id = l.id and l.name is not null and t.name is distinct from l.name`,
      [projectIds, Object.keys(labels), Object.values(labels)],
    )
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
