import { escapeLiteral } from 'pg'
import type { ReportConfig } from '../../core/config/load.ts'
import { addDays, type Day, type Range } from '../../core/day.ts'
import type { BiView, Dimension } from '../../core/vocabulary.ts'
import { reportBy } from '../../warehouse/schema/views.ts'
import { chartRange, type Filters, periodsIn } from './filters.ts'

/* Common parts of statements. The SQL that is shown is the SQL that is run, so values are literals in the text. */

export interface Context {
  schema: string
  reports: readonly ReportConfig[]
  filters: Filters
  /** The range that the numbers are compared with; it has no days if there is none. */
  before: Range
  /** As literals: the project, the own brand that is looked at, and the rival that it is compared with by model. */
  project: string
  own: string
  rival: string
  /** True if contents of chats are read. */
  hasContents: boolean
  /** A relation or function by its name; plain if that is safe and what people type. */
  of(name: string): string
}

/** The rows of a section. Everything but the page of a list: `limit` and `offset` are added by who shows pages. */
export interface Statement {
  sql: string
  /** The views and tables that it reads, and the breakdown of the report that it reads besides. */
  views?: (BiView | 'chats' | 'chat_contents')[]
  report?: Dimension[]
  /** Another reason why it cannot be read. */
  missing?: string | undefined
  /** Without a period before, it has no rows. */
  isComparison?: true
  /** The Monday of the week that is compared with the one before, instead of the range. */
  week?: Day
}

export const text = escapeLiteral
export const between = (column: string, { from, to }: Range) => `${column} between ${text(from)} and ${text(to)}`
export const isWhole = (alias: string) =>
  `${alias}.state in ('read', 'stale') and (${alias}.read_at at time zone 'UTC')::date > ${alias}.date`

/** A channel stays the same when the model behind it changes, so a report by channel is preferred. */
export function byChannelIfThere(reports: readonly ReportConfig[], of: Dimension): 'model_channel_id' | 'model_id' {
  return reportBy(reports, ['date', of, 'model_channel_id']) === undefined ? 'model_id' : 'model_channel_id'
}

/** The stream, and table, of the report with a breakdown. That by day shows how complete a number is. */
export function reportName(reports: readonly ReportConfig[], dimensions: readonly Dimension[] = ['date']): string {
  return reportBy(reports, dimensions)?.name ?? ''
}

/** Filters of sums for a range and for the one that it is compared with, and the condition that selects both. */
export function periods(column: string, range: Range, before: Range): Record<'now' | 'previous' | 'both', string> {
  const adjoins = addDays(before.to, 1) === range.from
  return {
    now: `filter (where ${column} >= ${text(range.from)})`,
    previous: `filter (where ${column} < ${text(range.from)})`,
    both: adjoins
      ? between(column, { from: before.from, to: range.to })
      : `(${between(column, range)} or ${between(column, before)})`,
  }
}

/** A share and the bounds of its interval, under a name. */
export function shareOf({ of }: Context, name: string, k: string, n: string): string {
  return `${k} / nullif(${n}, 0) as ${name}, ${of('wilson_low')}(${k}, ${n}) as ${name}_low, ${of('wilson_high')}(${k}, ${n}) as ${name}_high`
}

/** A metric is the sum of the first over the sum of the second. Means are the service's own, weighted by their counts. */
export type Measure = readonly [k: string, n: string]
const VISIBILITY: Measure = ['r.visibility_count', 'r.visibility_total']
export const meanOf = (name: 'position' | 'sentiment'): Measure => [
  `r.${name} * r.${name}_count`,
  `case when r.${name} is null then 0 else r.${name}_count end`,
]

interface Sums {
  where?: string
  measure?: Measure
}

/** Counts and answers of the range and of the one before, by columns of a report `r`. */
export function sums(
  context: Context,
  report: readonly Dimension[],
  columns: string,
  { where = '', measure: [k, n] = VISIBILITY }: Sums = {},
): string {
  const { of, reports, project, filters, before } = context
  const { now, previous, both } = periods('r.date', filters.range, before)
  return `select ${columns},
    sum(${k}) ${now} as k, sum(${n}) ${now} as n,
    sum(${k}) ${previous} as previous_k, sum(${n}) ${previous} as previous_n
  from ${of(reportName(reports, report))} r
  where r.project_id = ${project}${where} and ${both}
  group by ${columns}`
}

/** The columns of a share that is compared with the one before, from such sums. */
export function compared(context: Context): string {
  return `${shareOf(context, 'visibility', 'k', 'n')},
  k as visibility_count, n as answers, previous_k / nullif(previous_n, 0) as previous_visibility, previous_n as previous_answers,
  k / nullif(n, 0) - previous_k / nullif(previous_n, 0) as change, ${verdictOf(context)} as verdict`
}

/** Nothing is new if nothing is compared. */
export function verdictOf({ of, before }: Context): string {
  const verdict = `${of('verdict')}(k, n, previous_k, previous_n)`
  return before.to < before.from ? `nullif(${verdict}, 'new')` : verdict
}

interface Charted {
  /** Rows by brand and day, named `r`, and a condition for them. */
  from: string
  where?: string
  /** Whose days show how complete each point is; by default the report by day. */
  stream?: string
  sums: string
  /** The columns of a point, from the sums. */
  columns: string
}

/** Sums by brand and day or week, with how complete each is. */
export function charted({ of, project, filters, reports }: Context, { from, where = '', ...rest }: Charted): string {
  const { grain } = filters
  const range = periodsIn(chartRange(filters), grain)
  const at = (column: string) => (grain === 'day' ? column : `date_trunc('${grain}', ${column}::timestamp)::date`)
  const days = {
    day: '1',
    week: '7',
    month: `extract(day from min(${at('s.date')}) + interval '1 month' - interval '1 day')`,
  }
  return `select w.at as ${grain === 'day' ? 'date' : grain}, w.brand_id, coalesce(b.name, w.brand_id) as brand, coalesce(b.is_own, false) as is_own,
  ${rest.columns}, d.is_complete, d.is_provisional
from (
  select ${at('r.date')} as at, r.brand_id, ${rest.sums}
  from ${from} r
  where r.project_id = ${project}${where} and ${between('r.date', range)}
  group by 1, 2
) w
left join ${of('brands')} b on b.project_id = ${project} and b.brand_id = w.brand_id
left join (
  select ${at('s.date')} as at, count(*) filter (where ${isWhole('s')}) = ${days[grain]} as is_complete, bool_or(s.is_provisional) as is_provisional
  from ${of('data_status')} s
  where s.project_id = ${project} and s.stream = ${text(rest.stream ?? reportName(reports))} and ${between('s.date', range)}
  group by 1
) d on d.at = w.at
order by w.at, brand, w.brand_id`
}

export const NAMES: Partial<Record<Dimension, { table: string; name: string }>> = {
  topic_id: { table: 'topics', name: 'name' },
  tag_id: { table: 'tags', name: 'name' },
  prompt_id: { table: 'prompts', name: 'text' },
  model_channel_id: { table: 'model_channels', name: 'name' },
}

/** The name of what a column has the id of, and the join that it needs. Models are named by their ids. */
export function named({ of, project }: Context, column: Dimension, id: string): { name: string; join: string } {
  const names = NAMES[column]
  if (names === undefined) return { name: id, join: '' }
  const { table, name } = names
  const join = `left join ${of(table)} ${table} on ${table}.project_id = ${project} and ${table}.${column} = ${id}\n`
  return { name: `coalesce(${table}.${name}, ${id})`, join }
}

/** How many days of a stream were read in the range and before it, how many of them are whole or may still change, and why. */
export function daysRead({ of, project }: Context, stream: string, range: Range, before: Range): string {
  const now = (condition: string) => `count(*) filter (where s.date >= ${text(range.from)}${condition})`
  return `select ${now('')} as days, ${now(` and ${isWhole('s')}`)} as whole_days, ${now(' and s.is_provisional')} as provisional_days,
  ${now(" and s.state = 'held'")} as held_days, ${now(" and s.state = 'unreconciled'")} as unreconciled_days,
  ${now(" and s.state = 'quarantined'")} as quarantined_days,
  count(*) filter (where s.date < ${text(range.from)} and ${isWhole('s')}) as whole_days_before
from ${of('data_status')} s
where s.project_id = ${project} and s.stream = ${text(stream)}
  and ${periods('s.date', range, before).both}`
}
