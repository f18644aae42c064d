import { type RawBuilder, sql } from 'kysely'
import type { Dimension } from '../../core/vocabulary.ts'
import { dataTable as of } from '../../warehouse/database.ts'
import { fillIn } from '../../warehouse/schema/sql-files.ts'
import { chartRange, weeksIn } from './filters.ts'
import { ENOUGH } from './format.ts'
import type { ChartRow, ComparedRow, LeadRow, MeasuredRow, MoverRow, Row } from './rows.ts'
import {
  BY_PROMPT_AND_MODEL,
  between,
  bounds,
  byChannelIfThere,
  COUNTS,
  type Context,
  charted,
  compared,
  type Fragment,
  measured,
  named,
  periods,
  reportName,
  type Statement,
  shareOf,
  sums,
} from './sql.ts'

/*
 * The SQL of the sections of the first page, over the views that BI tools read. Reports are named if no view has their
 * breakdown over any range of days.
 */

type TopicRow = ComparedRow & Row<'topic_id topic model'> & Partial<Row<'model_id model_channel_id'>>
type RankedRow = MoverRow & Row<'judged_count clear_count'> & Partial<Row<'comparison_is_complete'>>
type AbsentRow = Row<'prompt_id prompt topic model_id weeks_absent last_week answers named_count whole_count'> &
  Row<'best_rival_visibility rivals_in_their_best_week'>
type SourceRow = Row<'domain classification is_own is_rival citation_count retrieved_chat_count whole_count'>

const BY_TOPIC_AND_MODEL: Dimension[] = ['date', 'topic_id', 'model_id']

export const FIRST_STATEMENTS = {
  summary(context) {
    const { project, own, filters, before } = context
    const { now, previous, both } = periods('date', filters.range, before)
    const days = (metric: string, view: string, k: string, n: string) =>
      sql`select ${metric} as metric, date, ${sql.raw(k)} as k, ${sql.raw(n)} as n, answers from ${of(view)} where project_id = ${project} and brand_id = ${own} and ${both}`
    const ofVisibility = (value: Fragment) => sql`case metric when 'visibility' then ${value} end`
    const rows = sql<Required<MeasuredRow> & Row<'metric answers previous_answers'>>`with d as (
  ${days('visibility', 'visibility_daily', 'visibility_count', 'answers')}
  union all
  ${days('share_of_voice', 'share_of_voice_daily', 'mention_count', 'all_mentions')}
  union all
  ${days('position', 'visibility_daily', 'position_points', 'position_count')}
  union all
  ${days('sentiment', 'visibility_daily', 'sentiment_points', 'sentiment_count')}
), s as (
  select metric, sum(k) ${now} as k, sum(n) ${now} as n, sum(answers) ${now} as answers,
    sum(k) ${previous} as previous_k, sum(n) ${previous} as previous_n, sum(answers) ${previous} as previous_answers
  from d
  group by metric
)
select metric, ${measured(context, ofVisibility)},
  case when metric in ('visibility', 'share_of_voice') then k end as count, n as sample, previous_n as previous_sample,
  answers, previous_answers
from unnest(array['visibility', 'share_of_voice', 'position', 'sentiment']) with ordinality m(metric, place)
left join s using (metric)
order by place`
    return { views: ['visibility_daily', 'share_of_voice_daily'], isOfOwn: true, sql: rows }
  },

  visibility: (context) =>
    chartOf(context, 'visibility_daily', {
      sums: sql`sum(r.visibility_count) as k, sum(r.answers) as n`,
      columns: sql`${shareOf('visibility')}, k as visibility_count, n as answers`,
    }),

  'share-of-voice'(context) {
    const { project, filters } = context
    // Of a brand that is new in a week, the view counts only the mentions since then.
    if (filters.grain === 'week')
      return {
        views: ['share_of_voice_weekly'],
        sql: sql<ChartRow>`select week, brand_id, brand, is_own, share_of_voice, mention_count, all_mentions, answers, is_complete, is_provisional
from ${of('share_of_voice_weekly')}
where project_id = ${project} and ${between('week', weeksIn(chartRange(filters)))}
order by week, brand, brand_id`,
      }
    return chartOf(context, 'share_of_voice_daily', {
      sums: sql`sum(r.mention_count) as k, sum(r.all_mentions) as n, sum(r.answers) as answers`,
      columns: sql`k / nullif(n, 0) as share_of_voice, k as mention_count, n as all_mentions, w.answers`,
    })
  },

  position: (context) => chartOfMean(context, 'position'),
  sentiment: (context) => chartOfMean(context, 'sentiment'),

  'topics-by-model'(context) {
    const { project, own, reports } = context
    const column = byChannelIfThere(reports, 'topic_id')
    const model = sql.raw(column)
    const report: Dimension[] = ['date', 'topic_id', column]
    const { name, join } = named(context, column, sql`c.${model}`)
    const rows = sql<TopicRow>`select c.topic_id, coalesce(t.name, c.topic_id, '(no topic)') as topic, c.${model}, ${name} as model,
  ${compared(context)}
from (
  ${sums(context, report, sql`r.topic_id, r.${model}`, { where: sql` and r.brand_id = ${own}` })}
) c
${join}left join ${of('topics')} t on t.project_id = ${project} and t.topic_id = c.topic_id
where n > 0
order by topic, c.topic_id, c.${model}`
    return { report, sql: rows }
  },

  'head-to-head'(context) {
    const { project, own, filters } = context
    const brand = (id: string) => sql`cross join lateral (
    select max(brand) as brand, sum(visibility_count) as k, sum(answers) as n, sum(mention_count) as mentions
    from d where d.brand_id = ${sql.raw(id)} and d.date >= p.since
  )`
    const rows = sql<LeadRow & Row<'rival_brand_id'>>`with d as (
  select date, brand_id, brand, visibility_count, answers, mention_count
  from ${of('visibility_daily')}
  where project_id = ${project} and ${between('date', filters.range)}
), p as (
  -- Only days count on which both are tracked.
  select o.brand_id as own_id, r.brand_id as rival_id, greatest(o.first_seen_on, r.first_seen_on, ${filters.range.from}) as since
  from ${of('brands')} o join ${of('brands')} r on r.project_id = o.project_id and not r.is_own
  where o.project_id = ${project} and o.brand_id = ${own}
), compared as (
  select o.brand as own_brand, p.rival_id as rival_brand_id, r.brand as rival_brand,
    ${shareOf('own_visibility', sql`o.k`, sql`o.n`)},
    ${shareOf('rival_visibility', sql`r.k`, sql`r.n`)},
    o.mentions / nullif(o.mentions + r.mentions, 0) as own_share_of_both, o.n as own_answers, r.n as answers
  from p ${brand('p.own_id')} o ${brand('p.rival_id')} r
  where r.n is not null and o.n is not null
)
${LEADS}
order by least(own_answers, answers) >= ${ENOUGH} desc, rival_visibility desc nulls last, rival_brand, rival_brand_id`
    return { views: ['visibility_daily'], sql: rows }
  },

  'head-to-head-by-model'(context) {
    const { project, own, rival, filters } = context
    const rows = sql<LeadRow & Row<'model_id'>>`with compared as (
  select own_brand, rival_brand, model_id,
    ${shareOf('own_visibility', sql`sum(own_visibility_count)`, sql`sum(own_answers)`)},
    ${shareOf('rival_visibility', sql`sum(rival_visibility_count)`, sql`sum(answers)`)},
    sum(own_mention_count) / nullif(sum(own_mention_count) + sum(rival_mention_count), 0) as own_share_of_both,
    sum(own_answers) as own_answers, sum(answers) as answers
  from ${of('head_to_head_weekly')}
  where project_id = ${project} and ${between('week', weeksIn(filters.range))}
    and own_brand_id = ${own} and rival_brand_id = ${rival}
  group by own_brand, rival_brand, model_id
)
${LEADS}
order by least(own_answers, answers) >= ${ENOUGH} desc, lead nulls last, model_id`
    return { views: ['head_to_head_weekly'], sql: rows }
  },

  movers(context) {
    const { project, filters } = context
    const { week } = filters
    const counts = sql`count(*) over () as whole_count, count(rank) over () as judged_count,
  count(*) filter (where q_value <= 0.1 and clarity > 1) over () as clear_count`
    if (week === undefined)
      return {
        report: BY_TOPIC_AND_MODEL,
        isComparison: true,
        shown: 12,
        sql: moversOfRange<RankedRow>(context, counts),
      }
    const rows = sql<RankedRow>`select rank, brand_id, brand, is_own, topic_id, topic, model_id, grain, visibility, previous_visibility, change, change_low, change_high, verdict,
  clarity, q_value, visibility_count, answers, previous_visibility_count, previous_answers, week, is_complete, comparison_is_complete,
  ${counts}
from ${of('movers_weekly')}
where project_id = ${project} and week = ${week}
order by rank, clarity desc, brand_id, topic_id, model_id`
    return { views: ['movers_weekly'], isComparison: true, shown: 12, week, sql: rows }
  },

  falls: (context) => ({
    report: BY_TOPIC_AND_MODEL,
    isComparison: true,
    shown: 3,
    sql: sql<MoverRow>`select *
from (
${moversOfRange(context, sql`count(*) over () as whole_count`)}
) m
where brand_id = ${context.own} and verdict = 'down' and q_value <= 0.1
order by rank, clarity desc, topic_id, model_id`,
  }),

  'absent-prompts': ({ project, own, filters, reports }) => ({
    views: ['absent_prompts'],
    report: BY_PROMPT_AND_MODEL,
    shown: 25,
    sql: sql<AbsentRow>`select a.*, coalesce(o.named_count, 0) as named_count, count(*) over () as whole_count
from (
  select prompt_id, prompt, topic_id, topic, model_id, count(*) as weeks_absent, max(week) as last_week, sum(answers) as answers,
    max(best_rival_visibility) as best_rival_visibility,
    (array_agg(rival_list order by best_rival_visibility desc, week desc))[1] as rivals_in_their_best_week
  from ${of('absent_prompts')}
  where project_id = ${project} and own_brand_id = ${own}
    and ${between('week', weeksIn(filters.range))} and is_complete
  group by prompt_id, prompt, topic_id, topic, model_id
) a
-- Answers of other weeks may name it.
left join (
  select prompt_id, coalesce(model_id, '') as model, sum(visibility_count) as named_count
  from ${of(reportName(reports, BY_PROMPT_AND_MODEL))}
  where project_id = ${project} and brand_id = ${own} and ${between('date', weeksIn(filters.range))} and visibility_count > 0
  group by 1, 2
) o on o.prompt_id = a.prompt_id and o.model = coalesce(a.model_id, '')
order by answers >= ${ENOUGH} and o.named_count is null desc, weeks_absent desc, best_rival_visibility desc, answers desc, a.prompt_id, model_id`,
  }),

  sources(context) {
    const { project, filters } = context
    const where = sql`where project_id = ${project} and ${between('week', weeksIn(filters.range))} and is_complete`
    const rows = sql<SourceRow & Row<'answers retrieved_share retrieved_share_low retrieved_share_high'>>`with s as (
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
  ${shareOf('retrieved_share', sql`s.retrieved_chat_count`, sql`a.answers`)},
  count(*) over () as whole_count
from s cross join a
order by s.citation_count desc nulls last, s.retrieved_chat_count desc nulls last, s.domain, s.is_own, s.is_rival`
    return { views: ['sources_weekly'], shown: 12, sql: rows }
  },

  'source-gaps': ({ project, own, filters }) => ({
    views: ['source_gaps'],
    shown: 12,
    sql: sql<
      SourceRow & Row<'most_prompts_in_a_week weeks last_week'>
    >`select domain, (array_agg(classification order by week desc))[1] as classification, is_own, is_rival,
  sum(citation_count) as citation_count, ${wholeSum('retrieved_chat_count')} as retrieved_chat_count,
  max(prompts) as most_prompts_in_a_week, count(*) as weeks, max(week) as last_week, count(*) over () as whole_count
from ${of('source_gaps')}
where project_id = ${project} and own_brand_id = ${own} and is_complete
  and ${between('week', weeksIn(filters.range))}
group by domain, is_own, is_rival
order by is_own or is_rival, citation_count desc, domain, is_own, is_rival`,
  }),
} satisfies Record<string, (context: Context) => Statement>

/** Null if a row does not have the number: the sum of the others would pass for all of it. */
const wholeSum = (column: string) => sql.raw(`case when count(${column}) = count(*) then sum(${column}) end`)

// Both are seen in the same answers, so their intervals must not touch: that holds however they depend on each other.
export const LEADS = sql`select *, own_visibility - rival_visibility as lead,
  case
    when own_answers >= 30 is not true or answers >= 30 is not true then 'too_few'
    when own_visibility_low > rival_visibility_high then 'ahead'
    when own_visibility_high < rival_visibility_low then 'behind'
    else 'no_clear_lead'
  end as lead_verdict
from compared`

function chartOf(
  context: Context,
  view: 'visibility_daily' | 'share_of_voice_daily',
  point: { sums: Fragment; columns: Fragment },
) {
  return { views: [view], sql: charted(context, { from: view, ...point }) }
}

/** Means of the service, weighted by their counts. */
function chartOfMean(context: Context, name: 'position' | 'sentiment') {
  return chartOf(context, 'visibility_daily', {
    sums: sql.raw(`sum(r.${name}_points) as k, sum(r.${name}_count) as n, sum(r.answers) as answers`),
    columns: sql.raw(`k / nullif(n, 0) as ${name}, n as ${name}_count, w.answers`),
  })
}

/** As the view of movers by week, over any range against the one before. */
function moversOfRange<R = MoverRow>(context: Context, counts: Fragment): RawBuilder<R> {
  const { project, schema } = context
  return sql`with cells as (
  select ${project} as project_id, '' as project, null::date as week, c.*,
    0 as days, true as is_complete, false as is_provisional, true as comparison_is_complete
  from (
  ${sums(context, BY_TOPIC_AND_MODEL, sql`r.brand_id, r.topic_id, r.model_id`)}
  ) c
)
select rank, m.brand_id, coalesce(b.name, m.brand_id) as brand, coalesce(b.is_own, false) as is_own, m.topic_id,
  case when level > 2 then '(all topics)' else coalesce(t.name, m.topic_id, '(no topic)') end as topic, model_id,
  (array['topic and model', 'topic', 'model', 'brand'])[level] as grain,
  k / n as visibility, previous_k / previous_n as previous_visibility, k / n - previous_k / previous_n as change,
  ${bounds('change', 'change_', COUNTS)}, ${of('verdict')}(${COUNTS}) as verdict, clarity, q_value,
  k as visibility_count, n as answers, previous_k as previous_visibility_count, previous_n as previous_answers,
  ${counts}
from (
${sql.raw(fillIn('{part ranked_movers}', { schema, opsSchema: '' }))}
) m
left join ${of('brands')} b on b.project_id = m.project_id and b.brand_id = m.brand_id
left join ${of('topics')} t on t.project_id = m.project_id and t.topic_id = m.topic_id
order by rank, clarity desc, m.brand_id, m.topic_id, model_id`
}
