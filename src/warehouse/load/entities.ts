import { sql } from 'kysely'
import type { Config } from '../../core/config/load.ts'
import { quote } from '../../core/identifier.ts'
import { labelOf } from '../../core/vocabulary.ts'
import type { Entities } from '../../streams/stream.ts'
import { tableName, type Warehouse } from '../connect.ts'
import { literal, type Statement, type Transaction } from '../transaction.ts'

/** What this run has written already, so that a window costs no query if it names nothing new. */
export type EntityMemory = Map<string, string | null>

/** The rows of one window mention these, or fewer. */
export interface EntitySave {
  projectId: string
  entities: Entities
  labels: Config['labels']
  memory: EntityMemory
  /** Only recent days may rename a brand: old ones may carry an old name. */
  mayRename: boolean
}

/** Fills brands, topics, tags and models with what rows name. Returns what to remember once the transaction commits. */
export async function saveEntities(tx: Transaction, save: EntitySave): Promise<EntityMemory> {
  const { projectId, entities, labels, memory, mayRename } = save
  const { tables } = tx
  const fresh: EntityMemory = new Map()
  const unknown = (kind: string, ids: Iterable<string>, valueOf: (id: string) => string | null = () => null) => {
    const found: string[] = []
    for (const id of ids) {
      const name = entityKey(projectId, kind, id)
      const value = valueOf(id)
      if (memory.has(name) && (memory.get(name) === value || !mayRename)) continue
      fresh.set(name, value)
      found.push(id)
    }
    // Sorted, so that all transactions lock rows in one order and cannot deadlock.
    return found.sort()
  }
  const brandName = (id: string) => labelOf(labels.brands, id)?.name ?? entities.brands.get(id)?.name ?? null
  const brands = unknown('brand', entities.brands.keys(), brandName)
  if (brands.length > 0) await saveBrands(tx, save, brands, brands.map(brandName))
  const topics = unknown('topic', entities.topics)
  if (topics.length > 0) {
    await tables
      .insertInto('topics')
      .columns(['project_id', 'topic_id', 'name'])
      .expression(namedRows(projectId, topics, labels.topics))
      .onConflict((conflict) => conflict.doNothing())
      .execute()
  }
  const tags = unknown('tag', entities.tags)
  if (tags.length > 0) {
    await tables
      .insertInto('tags')
      .columns(['project_id', 'tag_id', 'name'])
      .expression(namedRows(projectId, tags, labels.tags))
      .onConflict((conflict) => conflict.doNothing())
      .execute()
  }
  const models = unknown('model', entities.models)
  if (models.length > 0) {
    await tables
      .insertInto('models')
      .columns(['project_id', 'model_id'])
      .expression(sql`select ${projectId}::text, model from unnest(${models}::text[]) model` as never)
      .onConflict((conflict) => conflict.doNothing())
      .execute()
  }
  return fresh
}

async function saveBrands(
  { tables, ops }: Transaction,
  { projectId, labels, mayRename }: EntitySave,
  ids: readonly string[],
  names: readonly (string | null)[],
): Promise<void> {
  const own = ids.map((id) => labelOf(labels.brands, id)?.own ?? false)
  const listed = ops
    .selectFrom('coverage')
    .select('run_id')
    .where('project_id', '=', projectId)
    .where('stream', '=', 'brands')
    .where('read_at', '>', sql<Date>`now() - interval '2 days'`)
  await tables
    .insertInto('brands')
    .columns(['project_id', 'brand_id', 'name', 'is_own'])
    // Lists as single values: a statement takes no more than 65,535 of them.
    .expression(
      sql`select ${projectId}::text, brand.* from unnest(${ids}::text[], ${names}::text[], ${own}::boolean[]) brand` as never,
    )
    .onConflict((conflict) =>
      !mayRename
        ? conflict.doNothing()
        : conflict
            .columns(['project_id', 'brand_id'])
            // An answer without the name does not erase a name that is known.
            .doUpdateSet((eb) => ({ name: eb.fn.coalesce('excluded.name', 'brands.name') }))
            .where((eb) =>
              eb(eb.fn.coalesce('excluded.name', 'brands.name'), 'is distinct from', eb.ref('brands.name')),
            )
            // While a rename is under way in the service, its list has the new name and some rows the old one.
            .where(sql<boolean>`not exists (${listed})`),
    )
    .execute()
}

function namedRows(projectId: string, ids: string[], labels: Record<string, string>): never {
  const names = ids.map((id) => labelOf(labels, id) ?? null)
  return sql`select ${projectId}::text, named.* from unnest(${ids}::text[], ${names}::text[]) named` as never
}

/** What the tables know of these projects, asked once: a run that finds nothing new then writes nothing of it. */
export async function readEntities(
  warehouse: Warehouse,
  projectIds: readonly string[],
  memory: EntityMemory,
): Promise<void> {
  const list = (kind: string, table: string, name: string) =>
    `select project_id, '${kind}' as kind, ${kind}_id as id, ${name} as name from ${tableName(warehouse, table)}
     where project_id = any($1)`
  // The names of topics and tags are not what rows name.
  const query = [
    list('brand', 'brands', 'name'),
    list('topic', 'topics', 'null'),
    list('tag', 'tags', 'null'),
    list('model', 'models', 'null'),
  ].join(' union all ')
  const { rows } = await warehouse.pool.query<{ project_id: string; kind: string; id: string; name: string | null }>(
    `${query} limit $2`,
    [projectIds, MOST_REMEMBERED],
  )
  for (const { project_id, kind, id, name } of rows) memory.set(entityKey(project_id, kind, id), name)
}

function entityKey(projectId: string, kind: string, id: string): string {
  return `${projectId}\0${kind}\0${id}`
}

// Forgetting costs a statement that changes nothing; remembering without end costs memory.
const MOST_REMEMBERED = 200_000

/** Keeps what a committed transaction wrote. */
export function rememberEntities(memory: EntityMemory, fresh: EntityMemory): void {
  if (memory.size > MOST_REMEMBERED) memory.clear()
  for (const [name, value] of fresh) memory.set(name, value)
}

/** Lists the configured projects. */
export async function listProjects({ pool, schema }: Warehouse, projectIds: readonly string[]): Promise<void> {
  await pool.query(
    `insert into ${quote(schema, 'projects')} (project_id) select unnest($1::text[]) on conflict do nothing`,
    [projectIds],
  )
}

/** Forgets projects of which nothing was ever read, as those with a mistyped id. */
export async function forgetUnread(
  { pool, schema, opsSchema }: Warehouse,
  projectIds: readonly string[],
): Promise<void> {
  const unread = `project_id = any($1) and not exists (select from ${quote(opsSchema, 'coverage')} c where c.project_id = t.project_id)`
  await pool.query(`delete from ${quote(opsSchema, 'stream_settings')} t where ${unread}`, [projectIds])
  await pool.query(`delete from ${quote(schema, 'projects')} t where ${unread}`, [projectIds])
}

/** The name of a project is that of its profile, unless the service lists projects. */
export function projectName(warehouse: Warehouse, projectId: string): Statement<void> {
  const id = literal(projectId)
  const sql = `update ${tableName(warehouse, 'projects')} p set name = f.name from ${tableName(warehouse, 'project_profiles')} f
    where p.project_id = ${id} and p.listed_at is null and f.project_id = ${id} and f.name is not null and p.name is distinct from f.name`
  return { sql, read: () => {} }
}
