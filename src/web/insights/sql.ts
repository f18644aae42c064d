import { type RawBuilder, sql } from 'kysely'
import type { ReportConfig } from '../../core/config/load.ts'
import { addDays, type Day, type Range } from '../../core/day.ts'
import type { BiView, Dimension } from '../../core/vocabulary.ts'
import { dataTable as of } from '../../warehouse/database.ts'
import { reportBy } from '../../warehouse/schema/views.ts'
import { chartRange, type Filters, periodsIn } from './filters.ts'
import type { ChartRow, Words } from './rows.ts'

/* Common parts of statements. People read them, so columns of our own are plain text. All else is a value or a name. */

export type Fragment = RawBuilder<unknown>

export const BY_PROMPT_AND_MODEL: Dimension[] = ['date', 'prompt_id', 'model_id']

export interface Context {
  schema: string
  reports: readonly ReportConfig[]
  filters: Filters
  /** The range that the numbers are compared with; it has no days if there is none. */
  before: Range
  /** The ids of the project, of the own brand that is looked at, and of the rival that it is compared with by model. */
  project: string
  own: string
  rival: string
  hasContents: boolean
}

/** The rows of a section, without the `limit` of a page. */
export interface Statement<R = unknown> {
  sql: RawBuilder<R>
  /** The views and tables that it reads, and the breakdown of the report that it reads besides. */
  views?: (BiView | 'chats' | 'chat_contents')[]
  report?: Dimension[]
  /** Another reason why it cannot be read. */
  missing?: string | undefined
  /** Without a period before, it has no rows. */
  isComparison?: true
  /** Without an own brand, it has no rows. */
  isOfOwn?: true
  /** How many rows a page shows at most. The file has all. */
  shown?: number
  /** The Monday of the week that is compared with the one before, instead of the range. */
  week?: Day
}

export type Write<R> = (context: Context) => Statement<R>

export const between = (column: string, { from, to }: Range) => sql`${sql.raw(column)} between ${from} and ${to}`

/** A channel stays the same when the model behind it changes, so a report by channel is preferred. */
export function byChannelIfThere(reports: readonly ReportConfig[], of: Dimension) {
  return reportBy(reports, ['date', of, 'model_channel_id']) === undefined ? 'model_id' : 'model_channel_id'
}

/** The stream, and table, of the report with a breakdown. That by day shows how complete a number is. */
export function reportName(reports: readonly ReportConfig[], dimensions: readonly Dimension[] = ['date']): string {
  return reportBy(reports, dimensions)?.name ?? ''
}

/** Filters of sums for a range and for the one that it is compared with, and the condition that selects both. */
export function periods(column: string, range: Range, before: Range) {
  const adjoins = addDays(before.to, 1) === range.from
  return {
    now: sql`filter (where ${sql.raw(column)} >= ${range.from})`,
    previous: sql`filter (where ${sql.raw(column)} < ${range.from})`,
    both: adjoins
      ? between(column, { from: before.from, to: range.to })
      : sql`(${between(column, range)} or ${between(column, before)})`,
  }
}

export function bounds(kind: 'wilson' | 'change', name: string, counts: Fragment, shown = (bound: Fragment) => bound) {
  const bound = (end: string) => sql`${shown(sql`${of(`${kind}_${end}`)}(${counts})`)} as ${sql.raw(name + end)}`
  return sql`${bound('low')}, ${bound('high')}`
}

export const COUNTS = sql`k, n, previous_k, previous_n`

export function shareOf(name: string, k: Fragment = sql`k`, n: Fragment = sql`n`) {
  return sql`${k} / nullif(${n}, 0) as ${sql.raw(name)}, ${bounds('wilson', `${name}_`, sql`${k}, ${n}`)}`
}

/** A metric is the sum of the first over the sum of the second. Means are the service's own, weighted by their counts. */
export type Measure = readonly [k: Fragment, n: Fragment]
export const VISIBILITY: Measure = [sql`r.visibility_count`, sql`r.visibility_total`]
export const meanOf = (name: 'position' | 'sentiment'): Measure => [
  sql.raw(`r.${name} * r.${name}_count`),
  sql.raw(`case when r.${name} is null then 0 else r.${name}_count end`),
]

/** Counts and answers of the range and of the one before, by columns of a report `r`. */
export function sums(
  { reports, project, filters, before }: Context,
  report: readonly Dimension[],
  columns: Fragment,
  { where = sql``, measure: [k, n] = VISIBILITY }: { where?: Fragment; measure?: Measure } = {},
) {
  const { now, previous, both } = periods('r.date', filters.range, before)
  return sql`select ${columns},
    sum(${k}) ${now} as k, sum(${n}) ${now} as n,
    sum(${k}) ${previous} as previous_k, sum(${n}) ${previous} as previous_n
  from ${of(reportName(reports, report))} r
  where r.project_id = ${project}${where} and ${both}
  group by ${columns}`
}

/** The columns of a share that is compared with the one before, from such sums. */
export function compared(context: Context) {
  return sql`${shareOf('visibility')},
  k as visibility_count, n as answers, previous_k / nullif(previous_n, 0) as previous_visibility, previous_n as previous_answers,
  k / nullif(n, 0) - previous_k / nullif(previous_n, 0) as change, ${verdictOf(context)} as verdict`
}

/** A metric, its change and what both are worth; only visibility has intervals and verdicts. */
export function measured(context: Context, ofVisibility: (value: Fragment) => Fragment) {
  return sql`k / nullif(n, 0) as value, ${bounds('wilson', '', sql`k, n`, ofVisibility)},
  previous_k / nullif(previous_n, 0) as previous_value, k / nullif(n, 0) - previous_k / nullif(previous_n, 0) as change,
  ${bounds('change', 'change_', COUNTS, ofVisibility)},
  ${ofVisibility(verdictOf(context))} as verdict`
}

/** Nothing is new if nothing is compared. */
export function verdictOf({ before }: Context) {
  const verdict = sql`${of('verdict')}(${COUNTS})`
  return before.to < before.from ? sql`nullif(${verdict}, 'new')` : verdict
}

interface Charted {
  /** The report whose days show how complete each point is; by default that by day. */
  report?: Dimension[]
  /** Its rows or those of a view by brand and day, named `r`, and a condition for them. */
  from?: string
  where?: Fragment
  sums: Fragment
  /** The columns of a point, from the sums. */
  columns: Fragment
}

/** Sums by brand and day or week, with how complete each is. */
export function charted(
  { project, filters, reports }: Context,
  { report, from = reportName(reports, report), where = sql``, ...rest }: Charted,
): RawBuilder<ChartRow> {
  const { grain } = filters
  const range = periodsIn(chartRange(filters), grain)
  const at = (column: string) =>
    grain === 'day' ? sql.raw(column) : sql`date_trunc(${grain}, ${sql.raw(column)}::timestamp)::date`
  const days = {
    day: sql`1`,
    week: sql`7`,
    month: sql`extract(day from min(${at('s.date')}) + interval '1 month' - interval '1 day')`,
  }
  return sql`select w.at as ${sql.raw(grain === 'day' ? 'date' : grain)}, w.brand_id, coalesce(b.name, w.brand_id) as brand, coalesce(b.is_own, false) as is_own,
  ${rest.columns}, d.is_complete, d.is_provisional
from (
  select ${at('r.date')} as at, r.brand_id, ${rest.sums}
  from ${of(from)} r
  where r.project_id = ${project}${where} and ${between('r.date', range)}
  group by 1, 2
) w
${brandsOf(project, 'w')}
left join (
  select ${at('s.date')} as at, count(*) filter (where s.is_complete) = ${days[grain]} as is_complete, bool_or(s.is_provisional) as is_provisional
  from ${of('data_status')} s
  where s.project_id = ${project} and s.stream = ${reportName(reports, report)} and ${between('s.date', range)}
  group by 1
) d on d.at = w.at
order by w.at, brand, w.brand_id`
}

export const brandsOf = (project: string, rows: string) =>
  sql`left join ${of('brands')} b on b.project_id = ${project} and b.brand_id = ${sql.raw(rows)}.brand_id`

export const NAMES: Partial<Record<Dimension, { table: string; name: string }>> = {
  topic_id: { table: 'topics', name: 'name' },
  tag_id: { table: 'tags', name: 'name' },
  prompt_id: { table: 'prompts', name: 'text' },
  model_channel_id: { table: 'model_channels', name: 'name' },
}

/** The name of what a column has the id of, and the join that it needs. Models are named by their ids. */
export function named({ project }: Pick<Context, 'project'>, column: Dimension, id: Fragment) {
  const names = NAMES[column]
  if (names === undefined) return { name: id, join: sql`` }
  const { table, name } = names
  const alias = sql.raw(table)
  const join = sql`left join ${of(table)} ${alias} on ${alias}.project_id = ${project} and ${alias}.${sql.raw(column)} = ${id}\n`
  return { name: sql`coalesce(${alias}.${sql.raw(name)}, ${id})`, join }
}

export function daysRead(project: string, stream: string, range: Range, before: Range): RawBuilder<DaysRead> {
  const now = (condition: Fragment) => sql`count(*) filter (where s.date >= ${range.from}${condition})`
  return sql`select ${now(sql``)} as days, ${now(sql` and s.is_complete`)} as whole_days,
  ${now(sql` and s.is_provisional`)} as provisional_days, ${now(sql` and s.state = 'held'`)} as held_days,
  ${now(sql` and s.state = 'unreconciled'`)} as unreconciled_days, ${now(sql` and s.state = 'quarantined'`)} as quarantined_days,
  count(*) filter (where s.date < ${range.from} and s.is_complete) as whole_days_before
from ${of('data_status')} s
where s.project_id = ${project} and s.stream = ${stream} and ${periods('s.date', range, before).both}`
}

export type DaysRead = Record<
  Words<'days whole_days provisional_days whole_days_before held_days unreconciled_days quarantined_days'>,
  number
>
