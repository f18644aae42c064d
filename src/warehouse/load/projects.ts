import { quote } from '../../core/identifier.ts'
import { tableName, type Warehouse } from '../connect.ts'
import type { Transaction } from '../transaction.ts'

/** Lists the configured projects. */
export async function listProjects({ pool, schema }: Warehouse, projectIds: readonly string[]): Promise<void> {
  await pool.query(
    `insert into ${quote(schema, 'projects')} (project_id) select unnest($1::text[]) on conflict do nothing`,
    [projectIds],
  )
}

/** The name of a project is that of its profile, unless the service lists projects. */
export async function nameProject({ client }: Transaction, warehouse: Warehouse, projectId: string): Promise<void> {
  await client.query(
    `update ${tableName(warehouse, 'projects')} p set name = f.name from ${tableName(warehouse, 'project_profiles')} f
     where p.project_id = $1 and p.listed_at is null and f.project_id = $1 and f.name is not null and p.name is distinct from f.name`,
    [projectId],
  )
}
