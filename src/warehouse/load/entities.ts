import type { Config } from '../../core/config/load.ts'
import { quote } from '../../core/identifier.ts'
import { labelOf } from '../../core/vocabulary.ts'
import type { Entities } from '../../streams/stream.ts'
import { tableName, type Warehouse } from '../connect.ts'
import { literal, type Statement, type Transaction } from '../transaction.ts'

/** Entities that this run has written already, so that a window without new ones needs no query. */
export type EntityMemory = Map<string, string | null>

/** The rows of one window mention these, or fewer. */
interface EntitySave {
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
  for (const kind of ['topic', 'tag'] as const) {
    const ids = unknown(kind, entities[`${kind}s`])
    const names = ids.map((id) => labelOf(labels[`${kind}s`], id) ?? null)
    if (ids.length === 0) continue
    await tx.client.query(
      `insert into ${tableName(tx, `${kind}s`)} (project_id, ${kind}_id, name)
       select $1, named.* from unnest($2::text[], $3::text[]) named on conflict do nothing`,
      [projectId, ids, names],
    )
  }
  const models = unknown('model', entities.models)
  if (models.length > 0) {
    await tx.client.query(
      `insert into ${tableName(tx, 'models')} (project_id, model_id) select $1, unnest($2::text[]) on conflict do nothing`,
      [projectId, models],
    )
  }
  return fresh
}

async function saveBrands(
  tx: Transaction,
  { projectId, labels, mayRename }: EntitySave,
  ids: readonly string[],
  names: readonly (string | null)[],
): Promise<void> {
  const own = ids.map((id) => labelOf(labels.brands, id)?.own ?? false)
  // An answer without the name does not erase a name that is known. While a rename is under way in the service, its list has
  // the new name and some rows the old one.
  const rename = `do update set name = coalesce(excluded.name, b.name)
    where coalesce(excluded.name, b.name) is distinct from b.name and not exists (
      select from ${quote(tx.opsSchema, 'coverage')} c
      where c.project_id = $1 and c.stream = 'brands' and c.read_at > now() - interval '2 days')`
  await tx.client.query(
    `insert into ${tableName(tx, 'brands')} as b (project_id, brand_id, name, is_own)
     select $1, brand.* from unnest($2::text[], $3::text[], $4::boolean[]) brand
     on conflict (project_id, brand_id) ${mayRename ? rename : 'do nothing'}`,
    [projectId, ids, names, own],
  )
}

/** The known entities of these projects, read once, so that a run without new ones writes none. */
export async function readEntities(
  warehouse: Warehouse,
  projectIds: readonly string[],
  memory: EntityMemory,
): Promise<void> {
  const { rows } = await warehouse.pool.query<{ project_id: string; kind: string; id: string; name: string | null }>(
    // The names of topics and tags are not what rows name.
    `select project_id, kind, id, case kind when 'brand' then name end as name from (${entitiesSql(warehouse)}) e
     where project_id = any($1) limit $2`,
    [projectIds, MOST_REMEMBERED],
  )
  for (const { project_id, kind, id, name } of rows) memory.set(entityKey(project_id, kind, id), name)
}

/** A query of everything that rows name. */
export function entitiesSql(warehouse: Warehouse): string {
  return ['brand', 'topic', 'tag', 'model']
    .map((kind) => {
      const name = kind === 'model' ? 'null' : 'name'
      return `select project_id, '${kind}' as kind, ${kind}_id as id, ${name} as name from ${tableName(warehouse, `${kind}s`)}`
    })
    .join(' union all ')
}

/** Forgets entities that no row of a project names any more: only an answer that was replaced named them. */
export async function forgetUnnamed(warehouse: Warehouse, projectIds: readonly string[]): Promise<void> {
  const { pool, schema } = warehouse
  for (const kind of ['brand', 'topic', 'tag', 'model']) {
    const { rows: tables } = await pool.query<{ name: string }>(
      // Small tables first: what they name need not be looked for in large ones.
      `select c.relname as name from pg_class c join pg_attribute a on a.attrelid = c.oid
       where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'p') and not c.relispartition and a.attname = $2
         and c.relname <> all($3) order by c.reltuples, 1`,
      [quote(schema), `${kind}_id`, [`${kind}s`, 'brand_history']],
    )
    const isNamed = tables.map(
      ({ name }) =>
        `exists (select from ${quote(schema, name)} t where t.project_id = e.project_id and t.${kind}_id = e.${kind}_id)`,
    )
    const isListed = kind === 'model' ? [] : ['e.listed_at is not null']
    await pool.query(
      `delete from ${tableName(warehouse, `${kind}s`)} e where project_id = any($1) and not (${[...isListed, ...isNamed, 'false'].join(' or ')})`,
      [projectIds],
    )
  }
  await pool.query(
    `delete from ${tableName(warehouse, 'brand_history')} h where project_id = any($1)
       and not exists (select from ${tableName(warehouse, 'brands')} b where b.project_id = h.project_id and b.brand_id = h.brand_id)`,
    [projectIds],
  )
}

/** Sentences on models whose ids differ only in case: the service may have renamed one, and rows have both. */
export async function modelsAlike(warehouse: Warehouse, projectIds: readonly string[]): Promise<string[]> {
  const models = tableName(warehouse, 'models')
  const { rows } = await warehouse.pool.query<{ note: string }>(
    `select format('the model %s of %s is spelled like %s but for case: rows of both are counted apart', a.model_id, project_id, b.model_id)
       as note
     from ${models} a join ${models} b using (project_id)
     where project_id = any($1) and lower(a.model_id) = lower(b.model_id) and a.model_id < b.model_id collate "C" order by 1`,
    [projectIds],
  )
  return rows.map(({ note }) => note)
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
