import { sql } from 'kysely'
import type { Config } from '../../core/config/load.ts'
import { clip, listSome } from '../../core/text.ts'
import type { Warehouse } from '../connect.ts'
import { dataTable } from '../database.ts'
import { allEntities } from './entities.ts'

/* Which brands are the company's own. Labels decide; if they name none, the service does, if it lists brands; else the
 * brand that is called like the project's profile is its own. */

// Enough to see how it is written; all ids are in the table.
const MOST_PROJECTS = 3
const MOST_BRANDS = 3

const LABELLED = ['brand', 'topic', 'tag'] as const

/** True if something changed. */
export async function applyOwnBrands(
  { db }: Warehouse,
  projectIds: readonly string[],
  labels: Config['labels'],
): Promise<boolean> {
  const ids = (own: boolean) => Object.entries(labels.brands).flatMap(([id, label]) => (label.own === own ? [id] : []))
  const { numAffectedRows } = await sql`
    update data.brands b set is_own = not b.is_own from (
      select b.project_id, b.brand_id, case
        when b.brand_id = any(${ids(true)}) then true
        when b.brand_id = any(${ids(false)}) or bool_or(b.brand_id = any(${ids(true)})) over (partition by b.project_id)
          then false
        when bool_or(b.listed_at is not null) over (partition by b.project_id) then coalesce(b.listed_own, false)
        else coalesce(lower(btrim(b.name)) = lower(btrim(p.name)), false) end as is_own
      from data.brands b left join data.project_profiles p using (project_id)
      where b.project_id = any(${projectIds})
    ) decided
    where b.project_id = decided.project_id and b.brand_id = decided.brand_id and b.is_own <> decided.is_own`.execute(
    db,
  )
  return numAffectedRows !== 0n
}

/** @param isNew the own brands were chosen just now */
export async function labelNotes(
  { db }: Warehouse,
  projectIds: readonly string[],
  labels: Config['labels'],
  isNew = true,
): Promise<string[]> {
  const own = Object.entries(labels.brands).flatMap(([id, label]) => (label.own ? [id] : []))
  const labelled = LABELLED.flatMap((kind) => Object.keys(labels[`${kind}s`]).map((id) => ({ kind, id })))
  const { rows } = await sql<{ note: string }>`
    select note from (
      select 1 as part, brand_id collate "C" as place,
        format('own brand of %s: %s, because its profile has the same name; labels.brands overrides it',
          project_id, coalesce(name, brand_id)) as note
      from data.brands
      where project_id = any(${projectIds}) and is_own and listed_at is null and brand_id <> all(${own}) and ${isNew}
      union all
      -- Most likely a slip of the pen.
      select 2, id, format('labels.%ss.%s: no row has this id; check the spelling', kind, id)
      from unnest(${labelled.map(({ kind }) => kind)}::text[], ${labelled.map(({ id }) => id)}::text[]) label(kind, id)
      where not exists (
        select from (${allEntities}) e
        where e.project_id = any(${projectIds}) and e.kind = label.kind and e.id = label.id collate "C")
    ) n order by part, place`.execute(db)
  return rows.map(({ note }) => note)
}

export async function projectsWithoutOwn({ db }: Warehouse, projectIds: readonly string[]): Promise<string[]> {
  const { rows } = await sql<{ project_id: string }>`
    select project_id from data.brands where project_id = any(${projectIds})
    group by 1 having not bool_or(is_own) order by 1`.execute(db)
  return rows.map(({ project_id }) => project_id)
}

/** One note on projects without an own brand, with lines to copy. Brands that share a name with the project come first. */
export async function ownBrandNotes({ db }: Warehouse, projectIds: readonly string[]): Promise<string[]> {
  if (projectIds.length === 0) return []
  const { rows } = await sql<{ project_id: string; brand_id: string; name: string | null }>`
    select project_id, brand_id, name from (
      select b.project_id, b.brand_id, b.name, row_number() over (
        partition by b.project_id
        order by position(lower(b.name) in lower(p.name)) > 0 desc nulls last, b.name, b.brand_id) as place
      from data.brands b left join data.project_profiles p using (project_id)
      where b.project_id = any(${projectIds.slice(0, MOST_PROJECTS)})
    ) b where place <= ${MOST_BRANDS} order by project_id, place`.execute(db)
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

export async function applyLabels(
  { db }: Warehouse,
  projectIds: readonly string[],
  labels: Config['labels'],
): Promise<void> {
  for (const kind of LABELLED) {
    const named = Object.entries(labels[`${kind}s`])
    if (named.length === 0) continue
    const names = named.map(([, label]) => (typeof label === 'string' ? label : label.name))
    await sql`
      update ${dataTable(`${kind}s`)} t set name = l.name
      from unnest(${named.map(([id]) => id)}::text[], ${names}::text[]) l(id, name)
      where t.project_id = any(${projectIds}) and t.${sql.id(`${kind}_id`)} = l.id
        and l.name is not null and t.name is distinct from l.name`.execute(db)
  }
}
