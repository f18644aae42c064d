import { type RawBuilder, sql } from 'kysely'
import type { Config } from '../../core/config/load.ts'
import { quote } from '../../core/identifier.ts'
import { labelOf } from '../../core/vocabulary.ts'
import type { Entities } from '../../streams/stream.ts'
import type { Warehouse } from '../connect.ts'
import { dataTable } from '../database.ts'
import type { Transaction } from '../transaction.ts'

/** Entities that this run has written already, so that a window without new ones needs no query. */
export type EntityMemory = Map<string, string | null>

interface EntitySave {
  projectId: string
  entities: Entities
  labels: Config['labels']
  memory: EntityMemory
  /** Old days may carry an old name. */
  mayRename: boolean
}

/** Returns what to remember once the transaction commits. */
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
    await sql`
      insert into ${dataTable(`${kind}s`)} (project_id, ${sql.id(`${kind}_id`)}, name)
      select ${projectId}, named.* from unnest(${ids}::text[], ${names}::text[]) named
      on conflict do nothing`.execute(tx.db)
  }
  const models = unknown('model', entities.models)
  if (models.length > 0) {
    await sql`
      insert into data.models (project_id, model_id)
      select ${projectId}, unnest(${models}::text[]) on conflict do nothing`.execute(tx.db)
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
  const rename = sql`
    do update set name = coalesce(excluded.name, b.name)
    where coalesce(excluded.name, b.name) is distinct from b.name and not exists (
      select from ops.coverage c
      where c.project_id = ${projectId} and c.stream = 'brands' and c.read_at > now() - interval '2 days')`
  await sql`
    insert into data.brands as b (project_id, brand_id, name, is_own)
    select ${projectId}, brand.* from unnest(${ids}::text[], ${names}::text[], ${own}::boolean[]) brand
    on conflict (project_id, brand_id) ${mayRename ? rename : sql`do nothing`}`.execute(tx.db)
}

/** The known entities of these projects, read once, so that a run without new ones writes none. */
export async function readEntities(
  { db }: Warehouse,
  projectIds: readonly string[],
  memory: EntityMemory,
): Promise<void> {
  // The names of topics and tags are not what rows name.
  const { rows } = await sql<{ project_id: string; kind: string; id: string; name: string | null }>`
    select project_id, kind, id, case kind when 'brand' then name end as name from (${allEntities}) e
    where project_id = any(${projectIds}) limit ${MOST_REMEMBERED}`.execute(db)
  for (const { project_id, kind, id, name } of rows) memory.set(entityKey(project_id, kind, id), name)
}

const KINDS = ['brand', 'topic', 'tag', 'model'] as const

export const allEntities = sql.join(
  KINDS.map((kind) => {
    const name = sql.raw(kind === 'model' ? 'null' : 'name')
    return sql`
      select project_id, ${sql.lit(kind)} as kind, ${sql.id(`${kind}_id`)} as id, ${name} as name
      from ${dataTable(`${kind}s`)}`
  }),
  sql` union all `,
)

/** Forgets entities that no row of a project names any more: only an answer that was replaced named them. */
export async function forgetUnnamed({ db, schema }: Warehouse, projectIds: readonly string[]): Promise<void> {
  if (projectIds.length === 0) return
  for (const kind of KINDS) {
    const id = sql.id(`${kind}_id`)
    // Small tables first: what they name need not be looked for in large ones.
    const { rows: tables } = await sql<{ name: string }>`
      select c.relname as name from pg_class c join pg_attribute a on a.attrelid = c.oid
      where c.relnamespace = ${quote(schema)}::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
        and a.attname = ${`${kind}_id`} and c.relname <> all(${[`${kind}s`, 'brand_history']})
      order by c.reltuples, 1`.execute(db)
    const isNamed = tables.map(
      ({ name }) => sql`exists (
        select from ${dataTable(name)} t where t.project_id = e.project_id and t.${id} = e.${id})`,
    )
    const isKept = [...(kind === 'model' ? [] : [sql`e.listed_at is not null`]), ...isNamed, sql`false`]
    await sql`
      delete from ${dataTable(`${kind}s`)} e
      where project_id = any(${projectIds}) and not (${sql.join(isKept, sql` or `)})`.execute(db)
  }
  await sql`
    delete from data.brand_history h
    where project_id = any(${projectIds}) and not exists (
      select from data.brands b where b.project_id = h.project_id and b.brand_id = h.brand_id)`.execute(db)
}

/** Sentences on models whose ids differ only in case: the service may have renamed one, and rows have both. */
export async function modelsAlike({ db }: Warehouse, projectIds: readonly string[]): Promise<string[]> {
  const { rows } = await sql<{ note: string }>`
    select format('the model %s of %s is spelled like %s but for case: rows of both are counted apart',
      a.model_id, project_id, b.model_id) as note
    from data.models a join data.models b using (project_id)
    where project_id = any(${projectIds}) and lower(a.model_id) = lower(b.model_id)
      and a.model_id < b.model_id collate "C"
    order by 1`.execute(db)
  return rows.map(({ note }) => note)
}

function entityKey(projectId: string, kind: string, id: string): string {
  return `${projectId}\0${kind}\0${id}`
}

// Forgetting costs a statement that changes nothing; remembering without end costs memory.
const MOST_REMEMBERED = 200_000

export function rememberEntities(memory: EntityMemory, fresh: EntityMemory): void {
  if (memory.size > MOST_REMEMBERED) memory.clear()
  for (const [name, value] of fresh) memory.set(name, value)
}

export async function listProjects({ db }: Warehouse, projectIds: readonly string[]): Promise<void> {
  await sql`
    insert into data.projects (project_id)
    select unnest(${projectIds}::text[]) on conflict do nothing`.execute(db)
}

/** Forgets projects of which nothing was ever read, as those with a mistyped id. */
export async function forgetUnread({ db }: Warehouse, projectIds: readonly string[]): Promise<void> {
  const isUnread = sql`project_id = any(${projectIds})
    and not exists (select from ops.coverage c where c.project_id = t.project_id)`
  await sql`delete from ops.stream_settings t where ${isUnread}`.execute(db)
  await sql`delete from data.projects t where ${isUnread}`.execute(db)
}

/** The name of a project is that of its profile, unless the service lists projects. */
export function nameProject(projectId: string): RawBuilder<object> {
  return sql`
    update data.projects p set name = f.name from data.project_profiles f
    where p.project_id = ${projectId} and p.listed_at is null and f.project_id = ${projectId}
      and f.name is not null and p.name is distinct from f.name`
}
