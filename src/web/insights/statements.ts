import { escapeLiteral } from 'pg'
import type { ReportConfig } from '../../core/config/load.ts'
import { addDays, type Range } from '../../core/day.ts'
import { quote } from '../../core/identifier.ts'
import type { BiView, Dimension } from '../../core/vocabulary.ts'
import { fillIn, reportBy } from '../../warehouse/schema/views.ts'
import { chartRange, type Filters, weeksIn } from './filters.ts'
import { ENOUGH } from './format.ts'

/*
 * The SQL of each section, over the views that BI tools read. What is shown is what is run, so values are written into the
 * text, as literals. Reports are named if no view has their breakdown over any range of days.
 */

export interface StatementContext {
  schema: string
  reports: readonly ReportConfig[]
  filters: Filters
  /** The range that the numbers are compared with; it has no days if there is none. */
  before: Range
  /** The own brand that is looked at, and the rival that it is compared with by model. */
  own: string
  rival: string
  /** True if contents of chats are read. */
  hasContents: boolean
}

const BY_DAY: Dimension[] = ['date']
export const BY_TOPIC_AND_MODEL: Dimension[] = ['date', 'topic_id', 'model_id']

/** A channel stays the same when the model behind it changes, so a report by channel is preferred. */
export function byChannelIfThere(reports: readonly ReportConfig[], of: Dimension): 'model_channel_id' | 'model_id' {
  return reportBy(reports, ['date', of, 'model_channel_id']) === undefined ? 'model_id' : 'model_channel_id'
}

/** The views that a section reads, and the breakdown of the report that it reads besides. */
export function needsOf(
  section: Section,
  { grain, week }: Filters,
  reports: readonly ReportConfig[],
): { views: BiView[]; report?: Dimension[] } {
  const step = grain === 'week' ? 'weekly' : 'daily'
  const ofReport = { views: [], report: BY_TOPIC_AND_MODEL }
  const needs: Record<Section, ReturnType<typeof needsOf>> = {
    summary: { views: ['visibility_daily', 'share_of_voice_daily'] },
    visibility: { views: [`visibility_${step}`] },
    'share-of-voice': { views: [`share_of_voice_${step}`] },
    position: { views: ['visibility_daily'] },
    sentiment: { views: ['visibility_daily'] },
    'topics-by-model': { views: [], report: ['date', 'topic_id', byChannelIfThere(reports, 'topic_id')] },
    'head-to-head': { views: ['visibility_daily'] },
    'head-to-head-by-model': { views: ['head_to_head_weekly'] },
    movers: week === undefined ? ofReport : { views: ['movers_weekly'] },
    'absent-prompts': { views: ['absent_prompts'] },
    sources: { views: ['sources_weekly'] },
    'source-gaps': { views: ['source_gaps'] },
  }
  return needs[section]
}

/** The stream of the report by day, whose days show how complete a number is. */
export function dailyStream(reports: readonly ReportConfig[]): string {
  return reportBy(reports, BY_DAY)?.name ?? ''
}

/** The stream, and table, of the report by topic and model, or by topic and channel. */
function topicModelStream(reports: readonly ReportConfig[], byChannel: boolean): string {
  return reportBy(reports, byChannel ? ['date', 'topic_id', 'model_channel_id'] : BY_TOPIC_AND_MODEL)?.name ?? ''
}

/** A relation by its name; plain if that is safe and what people type. */
export function relation(schema: string, name: string): string {
  return schema === 'visibility' ? `visibility.${name}` : quote(schema, name)
}

export const text = escapeLiteral
export const between = (column: string, { from, to }: Range) => `${column} between ${text(from)} and ${text(to)}`
export const whole = (alias: string) =>
  `${alias}.state in ('read', 'stale') and (${alias}.read_at at time zone 'UTC')::date > ${alias}.date`

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

export const weekOf = (column: string) => `date_trunc('week', ${column}::timestamp)::date`

/** By section. Everything but the page of a list: `limit` and `offset` are added by who shows pages. */
export const STATEMENTS = {
  summary({ schema, filters, before, own }) {
    const { project, range } = filters
    const of = (name: string) => relation(schema, name)
    const { now, previous, both } = periods('date', range, before)
    const where = `where project_id = ${text(project)} and brand_id = ${text(own)} and ${both}`
    const mean = (
      name: string,
    ) => `select '${name}', ${name}_points / nullif(${name}_count, 0), null, null, previous_${name}_points / nullif(previous_${name}_count, 0),
  ${name}_points / nullif(${name}_count, 0) - previous_${name}_points / nullif(previous_${name}_count, 0), null, null, null,
  null, ${name}_count, previous_${name}_count, n, previous_n
from v`
    const pointsOf = (
      name: string,
    ) => `sum(${name}_points) ${now} as ${name}_points, sum(${name}_count) ${now} as ${name}_count,
    sum(${name}_points) ${previous} as previous_${name}_points, sum(${name}_count) ${previous} as previous_${name}_count`
    return `with v as (
  select sum(visibility_count) ${now} as k, sum(answers) ${now} as n,
    sum(visibility_count) ${previous} as previous_k, sum(answers) ${previous} as previous_n,
    ${pointsOf('position')},
    ${pointsOf('sentiment')}
  from ${of('visibility_daily')}
  ${where}
), s as (
  select sum(mention_count) ${now} as k, sum(all_mentions) ${now} as n,
    sum(mention_count) ${previous} as previous_k, sum(all_mentions) ${previous} as previous_n
  from ${of('share_of_voice_daily')}
  ${where}
)
select 'visibility' as metric, k / nullif(n, 0) as value, ${of('wilson_low')}(k, n) as low, ${of('wilson_high')}(k, n) as high,
  previous_k / nullif(previous_n, 0) as previous_value, k / nullif(n, 0) - previous_k / nullif(previous_n, 0) as change,
  ${of('change_low')}(k, n, previous_k, previous_n) as change_low, ${of('change_high')}(k, n, previous_k, previous_n) as change_high,
  ${of('verdict')}(k, n, previous_k, previous_n) as verdict,
  k as count, n as sample, previous_n as previous_sample, n as answers, previous_n as previous_answers
from v
union all
select 'share_of_voice', s.k / nullif(s.n, 0), null, null, s.previous_k / nullif(s.previous_n, 0),
  s.k / nullif(s.n, 0) - s.previous_k / nullif(s.previous_n, 0), null, null, null,
  s.k, s.n, s.previous_n, v.n, v.previous_n
from s, v
union all
${mean('position')}
union all
${mean('sentiment')}`
  },

  visibility: (context) =>
    byGrain(context, 'visibility', 'visibility, v.visibility_low, v.visibility_high, v.visibility_count, v.answers'),
  'share-of-voice': (context) =>
    byGrain(context, 'share_of_voice', 'share_of_voice, v.mention_count, v.all_mentions, v.answers'),
  position: (context) => means(context, 'position'),
  sentiment: (context) => means(context, 'sentiment'),

  'topics-by-model'(context) {
    const { schema, filters, own, reports } = context
    const of = (name: string) => relation(schema, name)
    const model = byChannelIfThere(reports, 'topic_id')
    const isByChannel = model === 'model_channel_id'
    return `select c.topic_id, coalesce(t.name, c.topic_id, '(no topic)') as topic, c.${model}, ${isByChannel ? 'coalesce(h.name, c.model_channel_id)' : 'c.model_id'} as model,
  ${shareOf(schema, 'visibility', 'k', 'n')},
  k as visibility_count, n as answers, previous_k / nullif(previous_n, 0) as previous_visibility, previous_n as previous_answers,
  k / nullif(n, 0) - previous_k / nullif(previous_n, 0) as change, ${of('verdict')}(k, n, previous_k, previous_n) as verdict
from (
  ${topicModelSums(context, `r.topic_id, r.${model}`, ` and r.brand_id = ${text(own)}`)}
) c
${isByChannel ? `left join ${of('model_channels')} h on h.project_id = ${text(filters.project)} and h.model_channel_id = c.model_channel_id\n` : ''}left join ${of('topics')} t on t.project_id = ${text(filters.project)} and t.topic_id = c.topic_id
where n > 0
order by topic, c.topic_id, c.${model}`
  },

  'head-to-head'({ schema, filters, own }) {
    const { project, range } = filters
    const sums = (brand: string) => `cross join lateral (
    select max(brand) as brand, sum(visibility_count) as k, sum(answers) as n, sum(mention_count) as mentions
    from d where d.brand_id = ${brand} and d.date >= p.since
  )`
    return `with d as (
  select date, brand_id, brand, visibility_count, answers, mention_count
  from ${relation(schema, 'visibility_daily')}
  where project_id = ${text(project)} and ${between('date', range)}
), p as (
  -- Only days count on which both are tracked.
  select o.brand_id as own_id, r.brand_id as rival_id, greatest(o.first_seen_on, r.first_seen_on, ${text(range.from)}) as since
  from ${relation(schema, 'brands')} o join ${relation(schema, 'brands')} r on r.project_id = o.project_id and not r.is_own
  where o.project_id = ${text(project)} and o.brand_id = ${text(own)}
), compared as (
  select o.brand as own_brand, p.rival_id as rival_brand_id, r.brand as rival_brand,
    ${shareOf(schema, 'own_visibility', 'o.k', 'o.n')},
    ${shareOf(schema, 'rival_visibility', 'r.k', 'r.n')},
    o.mentions / nullif(o.mentions + r.mentions, 0) as own_share_of_both, o.n as own_answers, r.n as answers
  from p ${sums('p.own_id')} o ${sums('p.rival_id')} r
  where r.n is not null and o.n is not null
)
select *, own_visibility - rival_visibility as lead,
${LEAD_VERDICT} as lead_verdict
from compared
order by rival_visibility desc nulls last, rival_brand, rival_brand_id`
  },

  'head-to-head-by-model'({ schema, filters, own, rival }) {
    return `with compared as (
  select own_brand, rival_brand, model_id,
    ${shareOf(schema, 'own_visibility', 'sum(own_visibility_count)', 'sum(own_answers)')},
    ${shareOf(schema, 'rival_visibility', 'sum(rival_visibility_count)', 'sum(answers)')},
    sum(own_mention_count) / nullif(sum(own_mention_count) + sum(rival_mention_count), 0) as own_share_of_both,
    sum(own_answers) as own_answers, sum(answers) as answers
  from ${relation(schema, 'head_to_head_weekly')}
  where project_id = ${text(filters.project)} and ${between('week', weeksIn(filters.range))}
    and own_brand_id = ${text(own)} and rival_brand_id = ${text(rival)}
  group by own_brand, rival_brand, model_id
)
select *, own_visibility - rival_visibility as lead,
${LEAD_VERDICT} as lead_verdict
from compared
order by lead nulls last, model_id`
  },

  movers(context) {
    const { schema, filters } = context
    const counts = `count(*) over () as whole_count, count(rank) over () as judged_count,
  count(*) filter (where q_value <= 0.1 and clarity > 1) over () as clear_count`
    if (filters.week === undefined) return moversOfRange(context, counts)
    return `select rank, brand_id, brand, is_own, topic_id, topic, model_id, grain, visibility, previous_visibility, change, change_low, change_high, verdict,
  clarity, q_value, visibility_count, answers, previous_visibility_count, previous_answers, week, is_complete, comparison_is_complete,
  ${counts}
from ${relation(schema, 'movers_weekly')}
where project_id = ${text(filters.project)} and week = ${text(filters.week)}
order by rank, clarity desc, brand_id, topic_id, model_id`
  },

  'absent-prompts'({ schema, filters, own }) {
    return `select prompt_id, prompt, topic_id, topic, model_id, count(*) as weeks_absent, max(week) as last_week, sum(answers) as answers,
  max(best_rival_visibility) as best_rival_visibility,
  (array_agg(rival_list order by best_rival_visibility desc, week desc))[1] as rivals_in_their_best_week,
  count(*) over () as whole_count
from ${relation(schema, 'absent_prompts')}
where project_id = ${text(filters.project)} and own_brand_id = ${text(own)}
  and ${between('week', weeksIn(filters.range))} and is_complete
group by prompt_id, prompt, topic_id, topic, model_id
order by sum(answers) >= ${ENOUGH} desc, weeks_absent desc, best_rival_visibility desc, answers desc, prompt_id, model_id`
  },

  sources({ schema, filters }) {
    const of = (name: string) => relation(schema, name)
    const where = `where project_id = ${text(filters.project)} and ${between('week', weeksIn(filters.range))} and is_complete`
    return `with s as (
  select domain, (array_agg(classification order by week desc))[1] as classification, is_own, is_rival,
    ${wholeSum('citation_count')} as citation_count, ${wholeSum('retrieved_chat_count')} as retrieved_chat_count
  from ${of('sources_weekly')}
  ${where}
  group by domain, is_own, is_rival
), a as (
  -- A domain is not in every week; the answers of a week count in any case.
  select ${wholeSum('answers')} as answers
  from (select week, max(answers) as answers from ${of('sources_weekly')} ${where} group by week) w
)
select s.domain, s.classification, s.is_own, s.is_rival, s.citation_count, s.retrieved_chat_count, a.answers,
  ${shareOf(schema, 'retrieved_share', 's.retrieved_chat_count', 'a.answers')},
  count(*) over () as whole_count
from s cross join a
order by s.citation_count desc nulls last, s.retrieved_chat_count desc nulls last, s.domain, s.is_own, s.is_rival`
  },

  'source-gaps'({ schema, filters, own }) {
    return `select domain, (array_agg(classification order by week desc))[1] as classification, is_own, is_rival,
  sum(citation_count) as citation_count, ${wholeSum('retrieved_chat_count')} as retrieved_chat_count,
  max(prompts) as most_prompts_in_a_week, count(*) as weeks, max(week) as last_week, count(*) over () as whole_count
from ${relation(schema, 'source_gaps')}
where project_id = ${text(filters.project)} and own_brand_id = ${text(own)} and is_complete
  and ${between('week', weeksIn(filters.range))}
group by domain, is_own, is_rival
order by is_own or is_rival, citation_count desc, domain, is_own, is_rival`
  },
} satisfies Record<string, (context: StatementContext) => string>
export type Section = keyof typeof STATEMENTS

/** A share and the bounds of its interval, under a name. */
export function shareOf(schema: string, name: string, k: string, n: string): string {
  const bound = (side: string) => `${relation(schema, `wilson_${side}`)}(${k}, ${n}) as ${name}_${side}`
  return `${k} / nullif(${n}, 0) as ${name}, ${bound('low')}, ${bound('high')}`
}

/** Counts and answers of the range and of the one before, by columns of the report by topic and model. */
function topicModelSums({ schema, reports, filters, before }: StatementContext, columns: string, where = ''): string {
  const { project, range } = filters
  const { now, previous, both } = periods('r.date', range, before)
  return `select ${columns},
    sum(r.visibility_count) ${now} as k, sum(r.visibility_total) ${now} as n,
    sum(r.visibility_count) ${previous} as previous_k, sum(r.visibility_total) ${previous} as previous_n
  from ${relation(schema, topicModelStream(reports, columns.includes('model_channel_id')))} r
  where r.project_id = ${text(project)}${where} and ${both}
  group by ${columns}`
}

/** Null if a row does not have the number: the sum of the others would pass for all of it. */
const wholeSum = (column: string) => `case when count(${column}) = count(*) then sum(${column}) end`

// Both are seen in the same answers, so their intervals must not touch: that holds however they depend on each other.
const LEAD_VERDICT = `  case
    when own_answers >= 30 is not true or answers >= 30 is not true then 'too_few'
    when own_visibility_low > rival_visibility_high then 'ahead'
    when own_visibility_high < rival_visibility_low then 'behind'
    else 'no_clear_lead'
  end`

function byGrain(context: StatementContext, view: 'visibility' | 'share_of_voice', columns: string): string {
  const isWeekly = context.filters.grain === 'week'
  return isWeekly ? weekly(context, `${view}_weekly`, columns) : daily(context, `${view}_daily`, columns)
}

function weekly({ schema, filters }: StatementContext, view: BiView, columns: string): string {
  return `select v.week, v.brand_id, v.brand, v.is_own, v.${columns}, v.is_complete, v.is_provisional
from ${relation(schema, view)} v
where v.project_id = ${text(filters.project)} and ${between('v.week', weeksIn(chartRange(filters)))}
order by v.week, v.brand, v.brand_id`
}

function daily({ schema, reports, filters }: StatementContext, view: BiView, columns: string): string {
  return `select v.date, v.brand_id, v.brand, v.is_own, v.${columns},
  ${whole('d')} as is_complete, d.is_provisional
from ${relation(schema, view)} v
left join ${relation(schema, 'data_status')} d
  on d.project_id = v.project_id and d.date = v.date and d.stream = ${text(dailyStream(reports))}
where v.project_id = ${text(filters.project)} and ${between('v.date', chartRange(filters))}
order by v.date, v.brand, v.brand_id`
}

/** Means of the service, weighted by their counts. No view has them by week over all models, so days are added up. */
function means(context: StatementContext, name: 'position' | 'sentiment'): string {
  const { schema, reports, filters } = context
  if (filters.grain === 'day') return daily(context, 'visibility_daily', `${name}, v.${name}_count, v.answers`)
  const weeks = weeksIn(chartRange(filters))
  return `select w.week, w.brand_id, w.brand, w.is_own, w.${name}_points / nullif(w.${name}_count, 0) as ${name}, w.${name}_count, w.answers,
  d.is_complete, d.is_provisional
from (
  select ${weekOf('v.date')} as week, v.brand_id, v.brand, v.is_own,
    sum(v.${name}_points) as ${name}_points, sum(v.${name}_count) as ${name}_count,
    sum(v.answers) as answers
  from ${relation(schema, 'visibility_daily')} v
  where v.project_id = ${text(filters.project)} and ${between('v.date', weeks)}
  group by 1, 2, 3, 4
) w
left join (
  select ${weekOf('s.date')} as week, count(*) filter (where ${whole('s')}) = 7 as is_complete,
    bool_or(s.is_provisional) as is_provisional
  from ${relation(schema, 'data_status')} s
  where s.project_id = ${text(filters.project)} and s.stream = ${text(dailyStream(reports))} and ${between('s.date', weeks)}
  group by 1
) d on d.week = w.week
order by w.week, w.brand, w.brand_id`
}

/** As the view of movers by week, over any range against the one before. */
export function moversOfRange(context: StatementContext, counts: string): string {
  const { schema, filters } = context
  const of = (name: string) => relation(schema, name)
  return `with cells as (
  select ${text(filters.project)} as project_id, '' as project, null::date as week, c.*,
    0 as days, true as is_complete, false as is_provisional, true as comparison_is_complete
  from (
  ${topicModelSums(context, 'r.brand_id, r.topic_id, r.model_id')}
  ) c
)
select rank, m.brand_id, coalesce(b.name, m.brand_id) as brand, coalesce(b.is_own, false) as is_own, m.topic_id,
  case when level > 2 then '(all topics)' else coalesce(t.name, m.topic_id, '(no topic)') end as topic, model_id,
  (array['topic and model', 'topic', 'model', 'brand'])[level] as grain,
  k / n as visibility, previous_k / previous_n as previous_visibility, k / n - previous_k / previous_n as change,
  ${of('change_low')}(k, n, previous_k, previous_n) as change_low, ${of('change_high')}(k, n, previous_k, previous_n) as change_high,
  ${of('verdict')}(k, n, previous_k, previous_n) as verdict, clarity, q_value,
  k as visibility_count, n as answers, previous_k as previous_visibility_count, previous_n as previous_answers,
  ${counts}
from (
${fillIn('{part ranked_movers}', { schema, opsSchema: '' })}
) m
left join ${of('brands')} b on b.project_id = m.project_id and b.brand_id = m.brand_id
left join ${of('topics')} t on t.project_id = m.project_id and t.topic_id = m.topic_id
order by rank, clarity desc, m.brand_id, m.topic_id, model_id`
}

/** How many days of a stream were read in the range and before it, and how many of them are whole or may still change. */
export function daysRead(
  { schema, filters }: StatementContext,
  stream: string,
  { range, before }: Record<'range' | 'before', Range>,
): string {
  const now = (condition: string) => `count(*) filter (where s.date >= ${text(range.from)}${condition})`
  const { both } = periods('s.date', range, before)
  return `select ${now('')} as days, ${now(` and ${whole('s')}`)} as whole_days, ${now(' and s.is_provisional')} as provisional_days,
  count(*) filter (where s.date < ${text(range.from)} and ${whole('s')}) as whole_days_before
from ${relation(schema, 'data_status')} s
where s.project_id = ${text(filters.project)} and s.stream = ${text(stream)}
  and ${both}`
}
