import { quote } from '../../core/identifier.ts'
import { tableName, type Warehouse } from '../connect.ts'
import { literal, type Statement } from '../statement.ts'

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
