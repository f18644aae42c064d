import { UsageError } from '../../core/errors.ts'
import { count } from '../../core/text.ts'
import { percent } from '../../web/insights/format.ts'
import { grouped } from '../../web/insights/measure-statements.ts'
import { text } from '../../web/insights/sql.ts'
import { reportWith } from '../dimensions.ts'
import { find } from '../names.ts'
import { inert, type MeasuredRow, numberOf, quoted, TEXT_LENGTH } from '../phrases.ts'
import { aDay, aName, defineTool, openQuestion } from '../question.ts'

/* Why a number is what it is. */

interface Reason {
  kind: 'state' | 'edit' | 'model' | 'prompt'
  name: string
  detail: string | null
  count: number | null
  sample: number | null
}
type DayRow = MeasuredRow &
  Record<'usual' | 'answers' | 'usual_answers', number | null> &
  Record<'is_unusual' | 'are_unusual', boolean | null>

export const explainDay = defineTool({
  name: 'explain_day',
  description:
    'Why the number of a day is what it is, or changed: whether the day is unusual, missing, held, restated or ' +
    'unreconciled, edits of brands, models that answered less, and the prompts and chats behind it.',
  input: { day: aDay('The day, UTC.'), brand: aName('By default the first own brand.').optional() },
  columns: { texts: 'kind name detail', numbers: 'count sample' },
  about:
    'Reasons by kind. state: streams whose day is not as it should be. edit: a brand that changed. model: chats of the ' +
    'list, and answers of the report as sample. prompt: answers that name the brand, of a sample, with ids of chats.',
  async answer(desk, { day, brand: name, ...asked }) {
    const { limit, offset } = asked
    if (day > desk.today) throw new UsageError(`day: got ${day}; allowed: days up to today, ${desk.today}`)
    const question = await openQuestion(desk, { ...asked, from: day, to: day })
    const brand = name === undefined ? question.own() : find('brand', name, question.brands)
    const values = { project: question.project.id, brand: brand.id, day }
    const report = reportWith(desk, ['date', 'prompt_id'])
    const of = { metric: 'visibility', report, where: '', brands: [brand.id], column: 'prompt_id' } as const
    const { of: named, project } = question.context
    const chats = `select chat_id from ${named('chats')} c where project_id = ${project} and date = ${text(day)} and prompt_id = id`
    const prompts = await question.read<Reason>(
      (context) => grouped(context, of),
      (sql) => `select 'prompt' as kind, name, count, sample,
  (select string_agg(chat_id, ', ') from (${chats} order by chat_id limit 2) c) as detail
from (\n${sql}\n) g
order by value, name`,
    )
    const reasons = [...(await desk.rows<Reason>('reasons', values)), ...prompts.rows]
    const [value] = await desk.rows<DayRow>('day', values)
    const { notes, ...about } = await question.about()
    return {
      ...about,
      sentences:
        value === undefined
          ? [`There is no number of ${quoted(brand.name)} on this day.`]
          : [
              `${quoted(brand.name)}: visibility ${numberOf('visibility', value)}; ${usual(value.is_unusual, value.usual === null ? null : percent(value.usual))}.`,
              `The day has ${count(value.answers ?? 0, 'answer')}; ${usual(value.are_unusual, value.usual_answers)}.`,
            ],
      rows: reasons.slice(offset, offset + limit).map((row) => ({ row, line: lineOf(row) })),
      total: reasons.length,
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
  const more = detail === null ? '' : inert(detail, TEXT_LENGTH)
  const answers = count(sample ?? 0, 'answer')
  return {
    state: `${more}: ${inert(name, TEXT_LENGTH)}.`,
    edit: `Brand ${quoted(name)} changed: ${more}.`,
    model: `Model ${quoted(name)}: ${count(k ?? 0, 'chat')}, ${answers} in the report${more && `; ${more}`}.`,
    prompt: `${quoted(name, TEXT_LENGTH)}: named in ${k} of ${answers}${more && ` (chats ${more})`}.`,
  }[kind]
}
