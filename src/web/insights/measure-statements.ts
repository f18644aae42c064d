import { type RawBuilder, sql } from 'kysely'
import type { ReportConfig } from '../../core/config/load.ts'
import { UsageError } from '../../core/errors.ts'
import type { Dimension } from '../../core/vocabulary.ts'
import { dataTable as of } from '../../warehouse/database.ts'
import { reportBy } from '../../warehouse/schema/views.ts'
import { ENOUGH } from './format.ts'
import type { LeadRow, Row } from './rows.ts'
import {
  bounds,
  brandsOf,
  byChannelIfThere,
  type Context,
  charted,
  type Fragment,
  type Measure,
  meanOf,
  measured,
  named,
  reportName,
  type Statement,
  shareOf,
  sums,
  VISIBILITY,
} from './sql.ts'
import { LEADS } from './statements.ts'

/* The SQL of any metric of brands, by any dimension or over time, for those who ask for one number instead of a page. */

export const METRICS = ['visibility', 'share_of_voice', 'position', 'sentiment'] as const
export type Metric = (typeof METRICS)[number]

export const GROUPS = ['topic', 'channel', 'country', 'tag', 'prompt'] as const
export type Group = (typeof GROUPS)[number]

export function columnOf(reports: readonly ReportConfig[], group: Group): Dimension {
  if (group === 'channel') return byChannelIfThere(reports, 'topic_id')
  return ({ topic: 'topic_id', country: 'country_code', tag: 'tag_id', prompt: 'prompt_id' } as const)[group]
}

/** The channels, or else models, of which a project has numbers. Channels that the service does not list have no names. */
export function channelsOf(
  reports: readonly ReportConfig[],
  project: string,
): RawBuilder<{ id: string; name: string }> {
  const column = columnOf(reports, 'channel')
  const id = sql.ref(`r.${column}`)
  const { name, join } = named({ project }, column, id)
  return sql`select distinct ${id} as id, ${name} as name from ${of(reportName(reports, reportWith(reports, ['date', column])))} r
${join}where r.project_id = ${project} and ${id} is not null order by 2, 1`
}

/** The report with the fewest other dimensions. Sums over tags or chats would count answers twice. */
export function reportWith(reports: readonly ReportConfig[], needs: readonly Dimension[]): Dimension[] {
  const ofBrands = reports.filter((report) => reportBy(reports, report.dimensions) === report)
  const all = ofBrands.map(({ dimensions }) => dimensions).sort((a, b) => a.length - b.length)
  const isSafe = (name: Dimension) => needs.includes(name) || (name !== 'tag_id' && name !== 'chat_id')
  const found = all.find((dimensions) => needs.every((name) => dimensions.includes(name)) && dimensions.every(isSafe))
  if (found !== undefined) return found
  const words = (dimensions: readonly Dimension[]) =>
    dimensions.flatMap((name) => (name === 'date' ? [] : name.replace(/_(id|code)$/, ''))).join(' and ')
  const possible = all.map(words).filter((by) => by !== '')
  throw new UsageError(
    `no report by ${words(needs) || 'date'} is configured; possible are: ${possible.join('; ') || 'none'}`,
  )
}

interface Asked {
  metric: Metric
  /** The dimensions of the report that is summed, and conditions for its rows `r`. */
  report: Dimension[]
  where: Fragment
  brands: readonly string[]
}

/** Of share of voice, only the mentions of the brand: those of all brands are added up afterwards. */
const MEASURES: Record<Metric, Measure> = {
  visibility: VISIBILITY,
  share_of_voice: [sql`r.mention_count`, sql`0`],
  position: meanOf('position'),
  sentiment: meanOf('sentiment'),
}

const isOf = (brands: readonly string[]) => sql`brand_id in (${sql.join(brands.length === 0 ? [''] : brands)})`

export function overTime(context: Context, { metric, report, where, brands }: Asked) {
  const { filters } = context
  const [k, n] = MEASURES[metric]
  const whole = metric === 'share_of_voice' ? sql`sum(k) over (partition by w.at)` : sql`n`
  const ofVisibility = (value: Fragment) => (metric === 'visibility' ? value : sql`null`)
  const rows = charted(context, {
    ...{ report, where, sums: sql`sum(${k}) as k, sum(${n}) as n` },
    columns: sql`w.at as name, k / nullif(${whole}, 0) as value, ${bounds('wilson', '', sql`k, n`, ofVisibility)}, k as count, ${whole} as sample`,
  })
  const at = sql.raw(filters.grain === 'day' ? 'date' : filters.grain)
  return {
    report,
    sql: sql`select *\nfrom (\n${rows}\n) t\nwhere ${isOf(brands)}\norder by ${at} desc, brand, brand_id`,
  }
}

/** A metric of brands by a dimension, or as a whole, against the period before. Groups with few answers come last. */
export function grouped(context: Context, asked: Asked & { column: Dimension | undefined }) {
  const { project } = context
  const { metric, report, where, brands, column } = asked
  const by = sql.raw(column ?? 'null')
  const group = column === undefined ? sql`` : sql`r.${by}, `
  const id = column === undefined ? by : sql`m.${by}`
  const { name, join } = column === undefined ? { name: by, join: sql`` } : named(context, column, id)
  const partition = column === undefined ? sql`` : sql`partition by ${by}`
  const wholes = sql`sum(k) over (${partition}) as n, sum(previous_k) over (${partition}) as previous_n`
  const rows = sql`select ${id} as id, ${name} as name, m.brand_id, coalesce(b.name, m.brand_id) as brand,
  ${measured(context, (value) => (metric === 'visibility' ? value : sql`null`))},
  k as count, n as sample, previous_n as previous_sample
from (
  select ${group}brand_id, k, previous_k, ${metric === 'share_of_voice' ? wholes : sql`n, previous_n`}
  from (
  ${sums(context, report, sql`${group}r.brand_id`, { where, measure: MEASURES[metric] })}
  ) r
) m
${brandsOf(project, 'm')}
${join}where n > 0 and m.${isOf(brands)}
order by n >= ${ENOUGH} desc, value ${sql.raw(metric === 'position' ? '' : 'desc ')}nulls last, name, id, m.brand_id`
  return { report, sql: rows }
}

export type RivalRow = LeadRow & Row<'rival_brand_id'> & Partial<Row<'name'>>

/** The own brand and one rival by a dimension, on the days on which both are tracked. */
export function headToHeadBy(context: Context, dimension: Dimension): Statement<RivalRow> {
  const { project, own, rival } = context
  const column = sql.raw(dimension)
  const { name, join } = named(context, dimension, sql`o.id`)
  const pair = isOf([own, rival])
  const since = sql`(select max(first_seen_on) from ${of('brands')} where project_id = ${project} and ${pair})`
  const where = sql` and r.${pair} and r.date >= coalesce(${since}, r.date)`
  const rows = sql<RivalRow>`with s as (
  ${sums(context, ['date', dimension], sql`r.${column}, r.brand_id`, { where })}
), o as (
  select o.${column} as id, o.k, o.n, r.k as rival_k, r.n as rival_n
  from s o join s r on r.${column} is not distinct from o.${column} and r.brand_id = ${rival}
  where o.brand_id = ${own} and o.n > 0 and r.n > 0
), compared as (
  select ${name} as name, b.brand_id as rival_brand_id, coalesce(b.name, b.brand_id) as rival_brand,
    ${shareOf('own_visibility', sql`o.k`, sql`o.n`)},
    ${shareOf('rival_visibility', sql`o.rival_k`, sql`o.rival_n`)},
    null::numeric as own_share_of_both, o.n as own_answers, o.rival_n as answers
  from o join ${of('brands')} b on b.project_id = ${project} and b.brand_id = ${rival}
  ${join})
${LEADS}
order by least(own_answers, answers) >= ${ENOUGH} desc, lead nulls last, name`
  return { report: ['date', dimension], sql: rows }
}
