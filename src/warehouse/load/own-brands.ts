import type { Config } from '../../core/config/load.ts'
import { tableName, type Warehouse } from '../connect.ts'

/* Which brands are the company's own. Labels decide; if they name none, the service does, if it lists brands; else the
 * brand that is called like the project's profile is its own. */

export interface OwnBrands {
  /** Own brands that no label names: they are called like the profile of their project. */
  derived: { project_id: string; brand_id: string; name: string }[]
  /** Projects that have brands, none of which is own. */
  without: string[]
}

/** Brings `brands.is_own` in line, writing only rows that differ. True if something changed. */
export async function applyOwnBrands(
  warehouse: Warehouse,
  projectIds: readonly string[],
  labels: Config['labels'],
): Promise<boolean> {
  const brands = tableName(warehouse, 'brands')
  const ids = (own: boolean) => Object.entries(labels.brands).flatMap(([id, label]) => (label.own === own ? [id] : []))
  const { rowCount } = await warehouse.pool.query(
    `update ${brands} b set is_own = not b.is_own from (
       select b.project_id, b.brand_id, case
         when b.brand_id = any($2) then true
         when b.brand_id = any($3) or bool_or(b.brand_id = any($2)) over (partition by b.project_id) then false
         when bool_or(b.listed_at is not null) over (partition by b.project_id) then coalesce(b.listed_own, false)
         else coalesce(lower(btrim(b.name)) = lower(btrim(p.name)), false) end as is_own
       from ${brands} b left join ${tableName(warehouse, 'project_profiles')} p using (project_id)
       where b.project_id = any($1)
     ) decided
     where b.project_id = decided.project_id and b.brand_id = decided.brand_id and b.is_own <> decided.is_own`,
    [projectIds, ids(true), ids(false)],
  )
  return (rowCount ?? 0) > 0
}

/** What no label decides. */
export async function readOwnBrands(
  warehouse: Warehouse,
  projectIds: readonly string[],
  labels: Config['labels'],
): Promise<OwnBrands> {
  const brands = tableName(warehouse, 'brands')
  const { rows } = await warehouse.pool.query<{
    project_id: string
    brand_id: string | null
    name: string | null
    is_listed: boolean
  }>(
    `select p.project_id, b.brand_id, b.name, coalesce(b.listed_at is not null, false) as is_listed
     from unnest($1::text[]) p(project_id) left join ${brands} b on b.project_id = p.project_id and b.is_own
     where exists (select from ${brands} any_brand where any_brand.project_id = p.project_id)
     order by 1, 2`,
    [projectIds],
  )
  return {
    derived: rows.flatMap(({ project_id, brand_id, name, is_listed }) =>
      brand_id === null ||
      is_listed ||
      (Object.hasOwn(labels.brands, brand_id) && labels.brands[brand_id]?.own === true)
        ? []
        : [{ project_id, brand_id, name: name ?? brand_id }],
    ),
    without: rows.flatMap(({ project_id, brand_id }) => (brand_id === null ? [project_id] : [])),
  }
}

/** Labels of ids that no row has: most likely a slip of the pen. */
export async function unknownLabels(
  warehouse: Warehouse,
  projectIds: readonly string[],
  labels: Config['labels'],
): Promise<string[]> {
  const kinds = [
    ['brands', 'brand_id', Object.keys(labels.brands)],
    ['topics', 'topic_id', Object.keys(labels.topics)],
    ['tags', 'tag_id', Object.keys(labels.tags)],
  ] as const
  const unknown: string[] = []
  for (const [table, column, ids] of kinds) {
    if (ids.length === 0) continue
    const { rows } = await warehouse.pool.query<{ id: string }>(
      `select id from unnest($2::text[]) label(id)
       where not exists (select from ${tableName(warehouse, table)} where project_id = any($1) and ${column} = label.id collate "C")`,
      [projectIds, ids],
    )
    unknown.push(...rows.map(({ id }) => `labels.${table}.${id}`))
  }
  return unknown
}

/** What people should know of them, a sentence each. */
export function ownBrandNotes({ derived, without }: OwnBrands, unknown: readonly string[]): string[] {
  return [
    ...derived.map(
      ({ project_id, name }) =>
        `own brand of ${project_id}: ${name}, because its profile has the same name; labels.brands overrides it`,
    ),
    ...without.map(
      (id) =>
        `no brand of ${id} is own, so views that compare with rivals are empty: set own: true under labels.brands`,
    ),
    ...unknown.map((label) => `${label}: no row has this id; check the spelling`),
  ]
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
