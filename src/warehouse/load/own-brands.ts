import type { Config } from '../../core/config/load.ts'
import { clip, listSome } from '../../core/text.ts'
import { tableName, type Warehouse } from '../connect.ts'
import { entitiesSql } from './entities.ts'

/* Which brands are the company's own. Labels decide; if they name none, the service does, if it lists brands; else the
 * brand that is called like the project's profile is its own. */

// Enough to see how it is written; all ids are in the table.
const MOST_PROJECTS = 3
const MOST_BRANDS = 3

const LABELLED = ['brand', 'topic', 'tag'] as const

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

/** Notes on own brands and labels, a sentence each. `isNew`: the own brands were chosen just now. */
export async function labelNotes(
  warehouse: Warehouse,
  projectIds: readonly string[],
  labels: Config['labels'],
  isNew = true,
): Promise<string[]> {
  const brands = tableName(warehouse, 'brands')
  const own = Object.entries(labels.brands).flatMap(([id, label]) => (label.own ? [id] : []))
  const labelled = LABELLED.flatMap((kind) => Object.keys(labels[`${kind}s`]).map((id) => ({ kind, id })))
  const { rows } = await warehouse.pool.query<{ note: string }>(
    `select note from (
       select 1 as part, brand_id collate "C" as place, format('own brand of %s: %s, because its profile has the same name; labels.brands overrides it',
         project_id, coalesce(name, brand_id)) as note
       from ${brands} where project_id = any($1) and is_own and listed_at is null and brand_id <> all($2) and $3
       union all
       -- Most likely a slip of the pen.
       select 2, id, format('labels.%ss.%s: no row has this id; check the spelling', kind, id)
       from unnest($4::text[], $5::text[]) label(kind, id) where not exists (
         select from (${entitiesSql(warehouse)}) e where e.project_id = any($1) and e.kind = label.kind and e.id = label.id collate "C")
     ) n order by part, place`,
    [projectIds, own, isNew, labelled.map(({ kind }) => kind), labelled.map(({ id }) => id)],
  )
  return rows.map(({ note }) => note)
}

/** The projects that have brands, but none that is own. */
export async function projectsWithoutOwn(warehouse: Warehouse, projectIds: readonly string[]): Promise<string[]> {
  const { rows } = await warehouse.pool.query<{ project_id: string }>(
    `select project_id from ${tableName(warehouse, 'brands')} where project_id = any($1)
     group by 1 having not bool_or(is_own) order by 1`,
    [projectIds],
  )
  return rows.map(({ project_id }) => project_id)
}

/** One note on projects without an own brand, with lines to copy. Brands that share a name with the project come first. */
export async function ownBrandNotes(warehouse: Warehouse, projectIds: readonly string[]): Promise<string[]> {
  if (projectIds.length === 0) return []
  const { rows } = await warehouse.pool.query<{ project_id: string; brand_id: string; name: string | null }>(
    `select project_id, brand_id, name from (
       select b.project_id, b.brand_id, b.name, row_number() over (
         partition by b.project_id order by position(lower(b.name) in lower(p.name)) > 0 desc nulls last, b.name, b.brand_id) as place
       from ${tableName(warehouse, 'brands')} b left join ${tableName(warehouse, 'project_profiles')} p using (project_id)
       where b.project_id = any($1)
     ) b where place <= $2 order by project_id, place`,
    [projectIds.slice(0, MOST_PROJECTS), MOST_BRANDS],
  )
  const which = rows.map(({ project_id, brand_id, name }) => {
    // A name may hold anything, even the end of a line.
    return `    ${brand_id}: { own: true } # ${clip(JSON.stringify(name ?? brand_id), 60)} of ${project_id}`
  })
  return [
    [
      `no brand of ${listSome(projectIds, MOST_PROJECTS)} is own, so views that compare with rivals are empty; put those that are yours into the configuration file, for example:`,
      ...['labels:', '  brands:', ...which],
    ].join('\n'),
  ]
}

/** Brings names in line with the labels of the configuration. */
export async function applyLabels(
  warehouse: Warehouse,
  projectIds: readonly string[],
  labels: Config['labels'],
): Promise<void> {
  for (const kind of LABELLED) {
    const named = Object.entries(labels[`${kind}s`])
    if (named.length === 0) continue
    const names = named.map(([, label]) => (typeof label === 'string' ? label : label.name))
    await warehouse.pool.query(
      `update ${tableName(warehouse, `${kind}s`)} t set name = l.name from unnest($2::text[], $3::text[]) l(id, name)
       where t.project_id = any($1) and t.${kind}_id = l.id and l.name is not null and t.name is distinct from l.name`,
      [projectIds, named.map(([id]) => id), names],
    )
  }
}
