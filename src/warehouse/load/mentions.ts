import type { Config } from '../../core/config/load.ts'
import { quote } from '../../core/identifier.ts'
import type { Mentions } from '../../streams/stream.ts'
import { type Transaction, tableName, type Warehouse } from '../connect.ts'

/** What this run has written already, so that a window costs no query where it mentions nothing new. */
export type MentionMemory = Map<string, string | null>

/**
 * Fills brands, topics, tags and models with what rows mention. Only recent days may rename a brand: old ones may carry
 * an old name. Returns what to remember once the transaction commits.
 */
export async function saveMentions(
  { tables }: Transaction,
  projectId: string,
  mentions: Mentions,
  labels: Config['labels'],
  memory: MentionMemory,
  mayRename: boolean,
): Promise<MentionMemory> {
  const fresh: MentionMemory = new Map()
  const unknown = (kind: string, ids: Iterable<string>, valueOf: (id: string) => string | null) => {
    const found: string[] = []
    for (const id of ids) {
      const name = `${projectId}\0${kind}\0${id}`
      const value = valueOf(id)
      if (memory.has(name) && (memory.get(name) === value || !mayRename)) continue
      fresh.set(name, value)
      found.push(id)
    }
    // One order for all transactions: two of them can then wait for each other, but never both at once.
    return found.sort()
  }
  const brandName = (id: string) => labels.brands[id]?.name ?? mentions.brands.get(id)?.name ?? null

  const brands = unknown('brand', mentions.brands.keys(), brandName)
  if (brands.length > 0) {
    await tables
      .insertInto('brands')
      .values(
        brands.map((id) => ({
          project_id: projectId,
          brand_id: id,
          name: brandName(id),
          is_own: labels.brands[id]?.own ?? false,
        })),
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
              ),
      )
      .execute()
  }
  const topics = unknown('topic', mentions.topics, () => null)
  if (topics.length > 0) {
    await tables
      .insertInto('topics')
      .values(topics.map((id) => ({ project_id: projectId, topic_id: id, name: labels.topics[id] ?? null })))
      .onConflict((conflict) => conflict.doNothing())
      .execute()
  }
  const tags = unknown('tag', mentions.tags, () => null)
  if (tags.length > 0) {
    await tables
      .insertInto('tags')
      .values(tags.map((id) => ({ project_id: projectId, tag_id: id, name: labels.tags[id] ?? null })))
      .onConflict((conflict) => conflict.doNothing())
      .execute()
  }
  const models = unknown('model', mentions.models, () => null)
  if (models.length > 0) {
    await tables
      .insertInto('models')
      .values(models.map((id) => ({ project_id: projectId, model_id: id })))
      .onConflict((conflict) => conflict.doNothing())
      .execute()
  }
  return fresh
}

/** Lists the configured projects. */
export async function listProjects({ pool, schema }: Warehouse, projectIds: readonly string[]): Promise<void> {
  await pool.query(
    `insert into ${quote(schema, 'projects')} (project_id) select unnest($1::text[]) on conflict do nothing`,
    [projectIds],
  )
}

/** Brings names in line with the labels of the configuration. */
export async function applyLabels(
  { tables }: Warehouse,
  projectIds: readonly string[],
  labels: Config['labels'],
): Promise<void> {
  for (const [id, { name }] of Object.entries(labels.brands)) {
    if (name === undefined) continue
    await tables
      .updateTable('brands')
      .set({ name })
      .where('project_id', 'in', projectIds)
      .where('brand_id', '=', id)
      .where('name', 'is distinct from', name)
      .execute()
  }
  for (const [id, name] of Object.entries(labels.topics)) {
    await tables
      .updateTable('topics')
      .set({ name })
      .where('project_id', 'in', projectIds)
      .where('topic_id', '=', id)
      .where('name', 'is distinct from', name)
      .execute()
  }
  for (const [id, name] of Object.entries(labels.tags)) {
    await tables
      .updateTable('tags')
      .set({ name })
      .where('project_id', 'in', projectIds)
      .where('tag_id', '=', id)
      .where('name', 'is distinct from', name)
      .execute()
  }
}

/** The name of a project is that of its profile. */
export async function nameProject({ client }: Transaction, warehouse: Warehouse, projectId: string): Promise<void> {
  await client.query(
    `update ${tableName(warehouse, 'projects')} p set name = f.name from ${tableName(warehouse, 'project_profiles')} f
     where p.project_id = $1 and f.project_id = $1 and f.name is not null and p.name is distinct from f.name`,
    [projectId],
  )
}
