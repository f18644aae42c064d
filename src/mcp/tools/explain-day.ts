import * as z from 'zod'
import { UsageError } from '../../core/errors.ts'
import { count } from '../../core/text.ts'
import { percent } from '../../web/insights/format.ts'
import { grouped } from '../../web/insights/measure-statements.ts'
import { type Context, text } from '../../web/insights/sql.ts'
import { columnOf, reportWith } from '../dimensions.ts'
import { find } from '../names.ts'
import { inert, type MeasuredRow, numberOf, quoted, TEXT_LENGTH } from '../phrases.ts'
import { aDay, aName, defineTool, ofList, ofProject, openQuestion } from '../question.ts'

interface Reason {
  kind: 'state' | 'edit' | 'model' | 'prompt'
  name: string
  detail: string | null
  count: number | null
  sample: number | null
}

export const explainDay = defineTool({
  name: 'explain_day',
  title: 'Explain a day',
  description:
    'Why the number of a day is what it is, or changed: whether the day is unusual, missing, held, restated or unreconciled, edits of brands, models that answered less, and the prompts and chats behind it.',
  input: z.object({
    ...ofProject,
    day: aDay('The day, UTC.'),
    brand: aName('By default the first own brand.').optional(),
    ...ofList,
  }),
  columns: { texts: 'kind name detail', numbers: 'count sample' },
  about:
    'Reasons by kind. state: streams whose day is not as it should be. edit: a brand that changed. model: chats of the list, and answers of the report as sample. prompt: answers that name the brand, of a sample, with ids of chats.',
  async answer(desk, { day, brand: name, limit, offset, ...asked }) {
    if (day > desk.today) throw new UsageError(`day: got ${day}; allowed: days up to today, ${desk.today}`)
    const question = await openQuestion(desk, { ...asked, from: day, to: day })
    const { project, context, range: period } = question
    const brand = name === undefined ? question.own() : find('brand', name, question.brands)
    const column = columnOf(desk, 'prompt')
    const of = {
      metric: 'visibility' as const,
      report: reportWith(desk, ['date', column]),
      where: '',
      brands: [brand.id],
      column,
    }
    const prompts = await question.read<MeasuredRow & { id: string; name: string; chats: string | null }>(
      (one) => grouped(one, of),
      (sql) => withChats(sql, context, day),
    )
    const reasons = [
      ...(await desk.all<Reason>(reasonsOf(context, day))),
      ...prompts.rows.map(({ name: prompt, count: k = null, sample, chats }) => ({
        kind: 'prompt' as const,
        name: prompt,
        detail: chats,
        count: k,
        sample,
      })),
    ]
    const [value] = await desk.all<
      MeasuredRow &
        Record<'usual' | 'answers' | 'usual_answers', number | null> &
        Record<'is_unusual' | 'are_unusual', boolean | null>
    >(valueOf(context, brand.id, day))
    const { notes } = await question.days()
    return {
      ...{ project, period },
      sentences:
        value === undefined
          ? [`There is no number of ${quoted(brand.name)} on this day.`]
          : [
              `${quoted(brand.name)}: visibility ${numberOf('visibility', value)}; ${usual(value.is_unusual, value.usual === null ? null : percent(value.usual))}.`,
              `The day has ${count(value.answers ?? 0, 'answer')}; ${usual(value.are_unusual, value.usual_answers)}.`,
            ],
      rows: reasons.slice(offset, offset + limit).map((row) => ({ row, line: lineOf(row) })),
      ...{ total: reasons.length, offset, narrower: 'ask for fewer' },
      notes: [...notes, 'Unusual days also happen by chance: about one in seven while there is a trend.'],
      link: question.link(),
    }
  },
})

function usual(is: boolean | null, value: number | string | null): string {
  if (is === null || value === null) return 'what is usual is not known'
  return `${is ? 'unusual' : 'not unusual'}: the same weekday of the eight weeks before had ${value}`
}

function lineOf({ kind, name, detail, count: k, sample }: Reason): string {
  if (kind === 'state') return `${inert(detail ?? '')}: ${inert(name, TEXT_LENGTH)}.`
  if (kind === 'edit') return `Brand ${quoted(name)} changed: ${inert(detail ?? '')}.`
  if (kind === 'model')
    return `Model ${quoted(name)}: ${count(k ?? 0, 'chat')}, ${count(sample ?? 0, 'answer')} in the report${detail === null ? '' : `; ${inert(detail)}`}.`
  return `${quoted(name, TEXT_LENGTH)}: named in ${k} of ${count(sample ?? 0, 'answer')}${detail === null ? '' : ` (chats ${inert(detail, TEXT_LENGTH)})`}.`
}

const valueOf = (
  { of, project }: Context,
  brand: string,
  day: string,
) => `select d.visibility as value, d.visibility_low as low, d.visibility_high as high,
  d.visibility_count as count, d.answers as sample, d.usual_visibility as usual, d.is_unusual, a.answers, a.usual_answers, a.is_unusual as are_unusual
from ${of('visibility_daily')} d
left join ${of('answers_daily')} a on a.project_id = d.project_id and a.date = d.date
where d.project_id = ${project} and d.brand_id = ${text(brand)} and d.date = ${text(day)}`

/** Streams whose day is not as it should be, edits of brands since the week before, and models by how many prompts they missed. */
const reasonsOf = (
  { of, project }: Context,
  day: string,
) => `select 'state' as kind, string_agg(stream, ', ' order by stream) as name, detail,
  count(*)::integer as count, null::integer as sample
from (
  select f.stream, concat_ws(', ',
    case when s.date is null then 'never read' when s.state <> 'read' then s.state when s.is_reconciled is false then 'unreconciled' end,
    case when s.is_provisional then 'may still change' end,
    'restated ' || nullif(s.restatements, 0) || ' times, last on ' || (s.restated_at at time zone 'UTC')::date) as detail
  from ${of('freshness')} f
  left join ${of('data_status')} s on s.project_id = f.project_id and s.stream = f.stream and s.date = ${text(day)}
  where f.project_id = ${project} and f.first_day is not null
) f
where detail <> ''
group by detail
union all
select 'edit', coalesce(h.name, h.brand_id), 'seen on ' || (h.valid_from at time zone 'UTC')::date
  || case when h.name is distinct from b.name then ', before ' || coalesce(b.name, b.brand_id) else ', aliases or pattern' end, null, null
from ${of('brand_history')} h
join ${of('brand_history')} b on b.project_id = h.project_id and b.brand_id = h.brand_id and b.valid_to = h.valid_from
where h.project_id = ${project} and h.valid_from >= ${text(day)}::date - 7
union all
select 'model', model_id, 'did not answer ' || nullif(prompts_missing, 0) || ' of ' || prompts_of_the_day || ' prompts', chats, answers
from ${of('sample_sizes_daily')} where project_id = ${project} and date = ${text(day)}`

const withChats = (sql: string, { of, project }: Context, day: string) => `select g.*, (
  select string_agg(chat_id, ', ' order by chat_id) from (
    select chat_id from ${of('chats')} c
    where c.project_id = ${project} and c.date = ${text(day)} and c.prompt_id = g.id order by chat_id limit 2
  ) c) as chats
from (
${sql}
) g`
