import type { ReportConfig } from '../../core/config/load.ts'
import type { BiView, Dimension } from '../../core/vocabulary.ts'
import { reportBy } from '../../warehouse/schema/views.ts'
import { chartRange, type Filters, weeksIn } from './filters.ts'
import {
  BY_TOPIC_AND_MODEL,
  between,
  byChannelIfThere,
  moversOfRange,
  periods,
  relation,
  type StatementContext,
  shareOf,
  text,
  weekOf,
  whole,
} from './statements.ts'

/* The SQL of the pages behind a number: of a topic, a model, a prompt or a source. */

/** The sections of each page, in their order. */
export const DETAILS = {
  '/insights': [],
  '/insights/topic': ['trend', 'brands', 'by-model', 'prompts'],
  '/insights/model': ['trend', 'brands', 'by-topic', 'prompts'],
  '/insights/channel': ['trend', 'brands', 'by-topic', 'prompts'],
  '/insights/prompt': ['trend', 'brands', 'by-model', 'chats', 'cited'],
  '/insights/source': ['source-prompts', 'source-pages'],
} as const satisfies Record<Filters['path'], readonly string[]>
/** `falls` is a part of the first page. */
export type DetailSection = (typeof DETAILS)[Filters['path']][number] | 'falls'

interface Grouped {
  /** The report that has the rows, and the column that they are grouped by. */
  dimensions: Dimension[]
  column: Dimension
}

/** Whether rows are grouped by model or by channel: by what the page is about, else by channel if there is such a report. */
function modelDimension({ subject }: Filters, of: Dimension, reports: readonly ReportConfig[]): Dimension {
  if (subject.channel !== undefined) return 'model_channel_id'
  if (subject.model !== undefined) return 'model_id'
  return byChannelIfThere(reports, of)
}

function groupedBy(section: DetailSection, filters: Filters, reports: readonly ReportConfig[]): Grouped {
  const of: Dimension = section === 'prompts' || filters.subject.prompt !== undefined ? 'prompt_id' : 'topic_id'
  const model = modelDimension(filters, of, reports)
  const column = section === 'by-model' ? model : of
  return { dimensions: ['date', of, model], column }
}

/** The views, tables and report that a section reads. */
export function detailNeeds(
  section: DetailSection,
  filters: Filters,
  reports: readonly ReportConfig[],
): { views: (BiView | 'chats' | 'chat_contents')[]; report?: Dimension[] } {
  const views = VIEWS_OF[section]
  if (views !== undefined) return { views }
  const report = section === 'falls' ? BY_TOPIC_AND_MODEL : groupedBy(section, filters, reports).dimensions
  return { views: [], report }
}

const VIEWS_OF: Partial<Record<DetailSection, (BiView | 'chats' | 'chat_contents')[]>> = {
  chats: ['chats'],
  cited: ['chats', 'chat_contents'],
  'source-prompts': ['absent_prompts'],
  'source-pages': ['page_gaps_weekly'],
}

export const DETAIL_STATEMENTS: Record<DetailSection, (context: StatementContext) => string> = {
  trend: (context) => {
    const { schema, filters } = context
    const of = (name: string) => relation(schema, name)
    const isWeekly = filters.grain === 'week'
    const days = isWeekly ? weeksIn(chartRange(filters)) : chartRange(filters)
    const at = (column: string) => (isWeekly ? weekOf(column) : column)
    const [report, stream] = reportOf('trend', context)
    return `select w.at as ${filters.grain === 'week' ? 'week' : 'date'}, w.brand_id, coalesce(b.name, w.brand_id) as brand, coalesce(b.is_own, false) as is_own,
  ${shareOf(schema, 'visibility', 'w.k', 'w.n')}, w.k as visibility_count, w.n as answers, d.is_complete, d.is_provisional
from (
  select ${at('r.date')} as at, r.brand_id, sum(r.visibility_count) as k, sum(r.visibility_total) as n
  from ${report} r
  where ${conditions(context, 'trend')} and ${between('r.date', days)}
  group by 1, 2
) w
left join ${of('brands')} b on b.project_id = ${text(filters.project)} and b.brand_id = w.brand_id
left join (
  select ${at('s.date')} as at, count(*) filter (where ${whole('s')}) = ${isWeekly ? 7 : 1} as is_complete, bool_or(s.is_provisional) as is_provisional
  from ${of('data_status')} s
  where s.project_id = ${text(filters.project)} and s.stream = ${text(stream)} and ${between('s.date', days)}
  group by 1
) d on d.at = w.at
order by w.at, brand, w.brand_id`
  },

  brands: (context) => {
    const { schema, filters, before } = context
    const { now, previous, both } = periods('r.date', filters.range, before)
    const of = (name: string) => relation(schema, name)
    const [report] = reportOf('brands', context)
    return `select c.brand_id, coalesce(b.name, c.brand_id) as brand, coalesce(b.is_own, false) as is_own,
  ${shareOf(schema, 'visibility', 'k', 'n')}, previous_k / nullif(previous_n, 0) as previous_visibility,
  k / nullif(n, 0) - previous_k / nullif(previous_n, 0) as change, ${of('verdict')}(k, n, previous_k, previous_n) as verdict,
  k as visibility_count, n as answers, previous_n as previous_answers
from (
  select r.brand_id, sum(r.visibility_count) ${now} as k, sum(r.visibility_total) ${now} as n,
    sum(r.visibility_count) ${previous} as previous_k, sum(r.visibility_total) ${previous} as previous_n
  from ${report} r
  where ${conditions(context, 'brands')} and ${both}
  group by 1
) c
left join ${of('brands')} b on b.project_id = ${text(filters.project)} and b.brand_id = c.brand_id
where n > 0
order by visibility desc nulls last, brand, c.brand_id`
  },

  'by-model': (context) => breakdown('by-model', context),
  'by-topic': (context) => breakdown('by-topic', context),
  prompts: (context) => breakdown('prompts', context),

  chats({ schema, filters, hasContents }) {
    const contents = hasContents
      ? `t.messages, t.sources, t.brands_mentioned`
      : `null::jsonb as messages, null::jsonb as sources, null::jsonb as brands_mentioned`
    return `select c.date, c.chat_id, c.model_id, c.model_channel_id, ${contents}, count(*) over () as whole_count
from ${relation(schema, 'chats')} c
${hasContents ? `left join ${relation(schema, 'chat_contents')} t on t.project_id = c.project_id and t.chat_id = c.chat_id\n` : ''}where ${ofChats(filters)}
order by messages is null, c.date desc, c.model_id, c.chat_id`
  },

  cited({ schema, filters }) {
    return `select s.source ->> 'domain' as domain, count(distinct c.chat_id) as answers,
  sum(case when s.source ->> 'citationCount' ~ '^\\d{1,9}$' then (s.source ->> 'citationCount')::integer end) as citation_count,
  count(*) over () as whole_count
from ${relation(schema, 'chats')} c
join ${relation(schema, 'chat_contents')} t on t.project_id = c.project_id and t.chat_id = c.chat_id
cross join lateral jsonb_array_elements(case jsonb_typeof(t.sources) when 'array' then t.sources else '[]' end) s(source)
where s.source ->> 'domain' is not null and ${ofChats(filters)}
group by 1
order by citation_count desc nulls last, answers desc, domain`
  },

  'source-prompts'({ schema, reports, filters, own }) {
    const { project, subject } = filters
    const report = relation(schema, reportBy(reports, DOMAINS_BY_PROMPT, 'domains')?.name ?? '')
    return `select a.prompt_id, a.prompt, a.topic, a.model_id, count(distinct a.week) as weeks, max(a.week) as last_week,
  max(a.best_rival_visibility) as best_rival_visibility, count(*) over () as whole_count
from ${relation(schema, 'absent_prompts')} a
where a.project_id = ${text(project)} and a.own_brand_id = ${text(own)} and ${between('a.week', weeksIn(filters.range))} and a.is_complete
  and exists (
    select from ${report} r
    where r.project_id = a.project_id and r.prompt_id = a.prompt_id and r.model_id is not distinct from a.model_id
      and r.domain = ${text(subject.domain ?? '')} and r.date between a.week and a.week + 6
  )
group by a.prompt_id, a.prompt, a.topic, a.model_id
order by weeks desc, best_rival_visibility desc, prompt, a.model_id`
  },

  'source-pages'({ schema, filters }) {
    return `with p as (
  select url_key, url, title, rival_names, citation_count, week
  from ${relation(schema, 'page_gaps_weekly')}
  where project_id = ${text(filters.project)} and domain = ${text(filters.subject.domain ?? '')} and ${between('week', weeksIn(filters.range))} and is_complete
)
select (array_agg(url order by week desc))[1] as url, (array_agg(title order by week desc))[1] as title,
  array(select distinct name from p o cross join unnest(o.rival_names) name where o.url_key = p.url_key order by name) as rival_names,
  sum(citation_count) as citation_count, max(week) as last_week, count(*) over () as whole_count
from p
group by url_key
order by citation_count desc nulls last, url`
  },

  falls: (context) => `select *
from (
${moversOfRange(context, 'count(*) over () as whole_count')}
) m
where brand_id = ${text(context.own)} and verdict = 'down' and q_value <= 0.1
order by rank, clarity desc, topic_id, model_id`,
}

export const DOMAINS_BY_PROMPT: Dimension[] = ['date', 'prompt_id', 'model_id']

/** The name of the report of a section, as a relation and as a stream. */
function reportOf(section: DetailSection, { schema, reports, filters }: StatementContext): [string, string] {
  const { report } = detailNeeds(section, filters, reports)
  const name = reportBy(reports, report!)?.name ?? ''
  return [relation(schema, name), name]
}

/** What selects the rows of a report `r` that the page is about. */
function conditions({ schema, filters, reports }: StatementContext, section: DetailSection): string {
  const { subject, project } = filters
  const { report = [] } = detailNeeds(section, filters, reports)
  const is = (column: Dimension, value: string | undefined) =>
    value === undefined || !report.includes(column) ? [] : [`r.${column} = ${text(value)}`]
  const ofTopic =
    subject.topic === undefined || report.includes('topic_id')
      ? []
      : [
          `r.prompt_id in (select prompt_id from ${relation(schema, 'prompts')} where project_id = ${text(project)} and topic_id = ${text(subject.topic)})`,
        ]
  return [
    `r.project_id = ${text(project)}`,
    ...is('topic_id', subject.topic),
    ...is('prompt_id', subject.prompt),
    ...is('model_id', subject.model),
    ...is('model_channel_id', subject.channel),
    ...ofTopic,
  ].join(' and ')
}

/** What selects the chats `c` of a prompt, of one model or channel if the page is about it. */
function ofChats({ project, range, subject }: Filters): string {
  const is = (column: Dimension, value: string | undefined) =>
    value === undefined ? [] : [`c.${column} = ${text(value)}`]
  return [
    `c.project_id = ${text(project)}`,
    `c.prompt_id = ${text(subject.prompt ?? '')}`,
    ...is('model_id', subject.model),
    ...is('model_channel_id', subject.channel),
    between('c.date', range),
  ].join(' and ')
}

const NAMES: Partial<Record<Dimension, { table: string; name: string }>> = {
  topic_id: { table: 'topics', name: 'name' },
  prompt_id: { table: 'prompts', name: 'text' },
  model_channel_id: { table: 'model_channels', name: 'name' },
}

/** The own brand and the most visible rival in each group, where the own brand is weakest first. */
function breakdown(section: 'by-model' | 'by-topic' | 'prompts', context: StatementContext): string {
  const { schema, filters, reports, before, own } = context
  const { column } = groupedBy(section, filters, reports)
  const { now, previous, both } = periods('r.date', filters.range, before)
  const of = (name: string) => relation(schema, name)
  const [report] = reportOf(section, context)
  const names = NAMES[column]
  const ofOwn = (name: string) => `max(s.${name}) filter (where s.brand_id = ${text(own)})`
  // A brand that is tracked since a day of these periods counts in the answers since then; any other, in all answers of the group.
  const first = (before.from < filters.range.from ? before : filters.range).from
  const isNew = `(select first_seen_on > ${text(first)} from ${of('brands')} where project_id = ${text(filters.project)} and brand_id = ${text(own)})`
  const answers = (name: string) => `case when ${isNew} then ${ofOwn(name)} else max(s.${name}) end as ${name}`
  return `with s as (
  select r.${column} as id, r.brand_id, sum(r.visibility_count) ${now} as k, sum(r.visibility_total) ${now} as n,
    sum(r.visibility_count) ${previous} as previous_k, sum(r.visibility_total) ${previous} as previous_n
  from ${report} r
  where ${conditions(context, section)} and ${both}
  group by 1, 2
), g as (
  select s.id, coalesce(${ofOwn('k')}, 0) as k, coalesce(${ofOwn('previous_k')}, 0) as previous_k, ${answers('n')}, ${answers('previous_n')},
    (array_agg(coalesce(b.name, s.brand_id) order by s.k / nullif(s.n, 0) desc nulls last) filter (where not coalesce(b.is_own, false)))[1] as rival,
    max(s.k / nullif(s.n, 0)) filter (where not coalesce(b.is_own, false)) as rival_visibility
  from s
  left join ${of('brands')} b on b.project_id = ${text(filters.project)} and b.brand_id = s.brand_id
  group by s.id
)
select '${column}' as grouped_by, g.id, ${names === undefined ? 'g.id' : `coalesce(t.${names.name}, g.id)`} as name, ${shareOf(schema, 'visibility', 'g.k', 'g.n')},
  g.previous_k / nullif(g.previous_n, 0) as previous_visibility, g.k / nullif(g.n, 0) - g.previous_k / nullif(g.previous_n, 0) as change,
  ${of('verdict')}(g.k, g.n, g.previous_k, g.previous_n) as verdict, g.rival, g.rival_visibility, g.k as visibility_count, g.n as answers,
  count(*) over () as whole_count
from g
${names === undefined ? '' : `left join ${of(names.table)} t on t.project_id = ${text(filters.project)} and t.${column} = g.id\n`}where g.n > 0
order by g.k / nullif(g.n, 0) - g.rival_visibility nulls last, g.n desc, g.id`
}
