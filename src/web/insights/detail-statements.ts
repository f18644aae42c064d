import { sql } from 'kysely'
import type { Dimension } from '../../core/vocabulary.ts'
import { dataTable as of } from '../../warehouse/database.ts'
import { reportBy } from '../../warehouse/schema/views.ts'
import { type Filters, type Subject, weeksIn } from './filters.ts'
import { ENOUGH } from './format.ts'
import type { ComparedRow, Row } from './rows.ts'
import {
  between,
  brandsOf,
  byChannelIfThere,
  type Context,
  charted,
  compared,
  named,
  type Statement,
  shareOf,
  sums,
} from './sql.ts'

/* The SQL of the pages behind a number: of a topic, a model, a prompt or a source. */

type ChatRow = Row<'date chat_id model_id model_channel_id messages sources brands_mentioned whole_count'>
type SourcePromptRow = Row<'prompt_id prompt topic model_id weeks last_week best_rival_visibility whole_count'>
type GroupRow = ComparedRow & Row<'grouped_by id name rival rival_visibility whole_count'>

export const DETAIL_STATEMENTS = {
  trend(context) {
    const report = reportOf(context)
    const rows = charted(context, {
      ...{ report, where: subjectIn(context, report) },
      sums: sql`sum(r.visibility_count) as k, sum(r.visibility_total) as n`,
      columns: sql`${shareOf('visibility')}, k as visibility_count, n as answers`,
    })
    return { report, sql: rows }
  },

  brands(context) {
    const report = reportOf(context)
    const { project } = context
    const rows = sql<
      ComparedRow & Row<'brand_id brand is_own'>
    >`select c.brand_id, coalesce(b.name, c.brand_id) as brand, coalesce(b.is_own, false) as is_own,
  ${compared(context)}
from (
  ${sums(context, report, sql`r.brand_id`, { where: subjectIn(context, report) })}
) c
${brandsOf(project, 'c')}
where n > 0
order by n >= ${ENOUGH} desc, visibility desc nulls last, brand, c.brand_id`
    return { report, shown: 50, sql: rows }
  },

  'by-model': (context) => breakdown(context, 2),
  'by-topic': (context) => breakdown(context, 1),
  prompts: (context) => breakdown(context, 1, 'prompt_id'),

  chats({ filters, project, hasContents }) {
    const columns = hasContents
      ? sql`t.messages, t.sources, t.brands_mentioned`
      : sql`null::jsonb as messages, null::jsonb as sources, null::jsonb as brands_mentioned`
    const join = sql`left join ${of('chat_contents')} t on t.project_id = c.project_id and t.chat_id = c.chat_id\n`
    const rows = sql<ChatRow>`select c.date, c.chat_id, c.model_id, c.model_channel_id, ${columns}, count(*) over () as whole_count
from ${of('chats')} c
${hasContents ? join : sql``}where ${ofChats(project, filters)}
order by ${hasContents ? sql`t.messages is null, ` : sql``}c.date desc, c.model_id, c.chat_id`
    return { views: ['chats'], shown: 20, sql: rows }
  },

  cited: ({ filters, project }) => ({
    views: ['chats', 'chat_contents'],
    shown: 50,
    sql: sql<
      Row<'domain answers citation_count whole_count'>
    >`select s.source ->> 'domain' as domain, count(distinct c.chat_id) as answers,
  sum(case when s.source ->> 'citationCount' ~ '^\\d{1,9}$' then (s.source ->> 'citationCount')::integer end) as citation_count,
  count(*) over () as whole_count
from ${of('chats')} c
join ${of('chat_contents')} t on t.project_id = c.project_id and t.chat_id = c.chat_id
cross join lateral jsonb_array_elements(case jsonb_typeof(t.sources) when 'array' then t.sources else '[]' end) s(source)
where s.source ->> 'domain' is not null and ${ofChats(project, filters)}
group by 1
order by citation_count desc nulls last, answers desc, domain`,
  }),

  'source-prompts'({ reports, project, own, filters }) {
    const report = reportBy(reports, ['date', 'prompt_id', 'model_id'], 'domains')
    const missing = report === undefined ? 'No report of domains by prompt and model is configured.' : undefined
    const rows = sql<SourcePromptRow>`select a.prompt_id, a.prompt, a.topic, a.model_id, count(distinct a.week) as weeks, max(a.week) as last_week,
  max(a.best_rival_visibility) as best_rival_visibility, count(*) over () as whole_count
from ${of('absent_prompts')} a
where a.project_id = ${project} and a.own_brand_id = ${own} and ${between('a.week', weeksIn(filters.range))} and a.is_complete
  and exists (
    select from ${of(report?.name ?? '')} r
    where r.project_id = a.project_id and r.prompt_id = a.prompt_id and r.model_id is not distinct from a.model_id
      and r.domain = ${filters.subject.domain} and r.date between a.week and a.week + 6
  )
group by a.prompt_id, a.prompt, a.topic, a.model_id
order by sum(a.answers) >= ${ENOUGH} desc, weeks desc, best_rival_visibility desc, prompt, a.model_id`
    return { views: ['absent_prompts'], missing, shown: 50, sql: rows }
  },

  'source-pages': ({ project, filters }) => ({
    views: ['page_gaps_weekly'],
    isOfOwn: true,
    shown: 50,
    sql: sql<Row<'url title rival_names citation_count last_week whole_count'>>`with p as (
  select url_key, url, title, rival_names, citation_count, week
  from ${of('page_gaps_weekly')}
  where project_id = ${project}${filters.subject.domain === undefined ? sql`` : sql` and domain = ${filters.subject.domain}`} and ${between('week', weeksIn(filters.range))} and is_complete
)
select (array_agg(url order by week desc))[1] as url, (array_agg(title order by week desc))[1] as title,
  array(select distinct name from p o cross join unnest(o.rival_names) name where o.url_key = p.url_key order by name) as rival_names,
  sum(citation_count) as citation_count, max(week) as last_week, count(*) over () as whole_count
from p
group by url_key
order by citation_count desc nulls last, url`,
  }),
} satisfies Record<string, (context: Context) => Statement>

type Breakdown = [date: 'date', subject: 'prompt_id' | 'topic_id', model: 'model_id' | 'model_channel_id']

/** The report that has the rows of a page: by prompt or by topic, and by channel or by model. */
function reportOf({ filters: { subject }, reports }: Context, column?: 'prompt_id'): Breakdown {
  const of = column ?? (subject.prompt === undefined ? 'topic_id' : 'prompt_id')
  if (subject.channel !== undefined) return ['date', of, 'model_channel_id']
  return ['date', of, subject.model === undefined ? byChannelIfThere(reports, of) : 'model_id']
}

/** Conditions for those columns of `alias` of which a page is about one value. */
function isSubject({ topic, prompt, model, channel }: Subject, alias: string, columns: readonly Dimension[]) {
  const values: Partial<Record<Dimension, string | undefined>> = {
    topic_id: topic,
    prompt_id: prompt,
    model_id: model,
    model_channel_id: channel,
  }
  const conditions = columns.map((column) =>
    values[column] === undefined ? sql`` : sql` and ${sql.raw(`${alias}.${column}`)} = ${values[column]}`,
  )
  return sql.join(conditions, sql``)
}

function subjectIn({ project, filters: { subject } }: Context, report: Dimension[]) {
  const columns = isSubject(subject, 'r', report)
  if (subject.topic === undefined || report.includes('topic_id')) return columns
  const prompts = sql`select prompt_id from ${of('prompts')} where project_id = ${project} and topic_id = ${subject.topic}`
  return sql`${columns} and r.prompt_id in (${prompts})`
}

function ofChats(project: string, { range, subject }: Filters) {
  const columns = isSubject(subject, 'c', ['prompt_id', 'model_id', 'model_channel_id'])
  return sql`c.project_id = ${project}${columns} and ${between('c.date', range)}`
}

/** The own brand and the most visible rival in each group, where the own brand is weakest first; few answers come last. */
function breakdown(context: Context, by: 1 | 2, subject?: 'prompt_id'): Statement<GroupRow> {
  const { project, filters, before, own } = context
  const report = reportOf(context, subject)
  const dimension = report[by]
  const column = sql.raw(dimension)
  const { name, join } = named(context, dimension, sql`g.id`)
  const ofOwn = (value: string) => sql`max(s.${sql.raw(value)}) filter (where s.brand_id = ${own})`
  // A brand that is tracked since a day of these periods counts in the answers since then; any other, in all answers of the group.
  const first = (before.from < filters.range.from ? before : filters.range).from
  const isNew = sql`(select first_seen_on > ${first} from ${of('brands')} where project_id = ${project} and brand_id = ${own})`
  const answers = (value: string) =>
    sql`case when ${isNew} then ${ofOwn(value)} else max(s.${sql.raw(value)}) end as ${sql.raw(value)}`
  const rows = sql<GroupRow>`with s as (
  ${sums(context, report, sql`r.${column}, r.brand_id`, { where: subjectIn(context, report) })}
), g as (
  select s.${column} as id, coalesce(${ofOwn('k')}, 0) as k, coalesce(${ofOwn('previous_k')}, 0) as previous_k, ${answers('n')}, ${answers('previous_n')},
    (array_agg(coalesce(b.name, s.brand_id) order by s.k / nullif(s.n, 0) desc nulls last) filter (where not coalesce(b.is_own, false)))[1] as rival,
    max(s.k / nullif(s.n, 0)) filter (where not coalesce(b.is_own, false)) as rival_visibility
  from s
  ${brandsOf(project, 's')}
  group by s.${column}
)
select ${dimension} as grouped_by, g.id, ${name} as name, ${compared(context)},
  g.rival, g.rival_visibility, count(*) over () as whole_count
from g
${join}where g.n > 0
order by g.n >= ${ENOUGH} desc, g.k / nullif(g.n, 0) - g.rival_visibility nulls last, g.n desc, g.id`
  return { report, isOfOwn: true, shown: 50, sql: rows }
}
