import { sql } from 'kysely'
import { UsageError } from '../../core/errors.ts'
import { count } from '../../core/text.ts'
import { dataTable } from '../../warehouse/database.ts'
import { percent } from '../../web/insights/format.ts'
import { channelsOf, columnOf, grouped, reportWith } from '../../web/insights/measure-statements.ts'
import { numberOf } from '../../web/insights/measure-words.ts'
import type { MeasuredRow, Row } from '../../web/insights/rows.ts'
import { href } from '../../web/pages/layout.ts'
import { find, inert, MOST_IN_LIST, quoted, quotedList, TEXT_LENGTH } from '../answer.ts'
import { aDay, aName, type Desk, defineTool, findProject, openQuestion } from '../question.ts'

/* What there is, whether it can be trusted, and why it is what it is. */

const LISTS = ['own_brands', 'rivals', 'channels', 'topics', 'tags'] as const
type ProjectRow = Record<'id' | 'name' | 'complete_from', string> &
  Record<(typeof LISTS)[number], string[]> & { complete_to: string | null; is_stale: boolean | null }

export const listProjects = defineTool({
  name: 'list_projects',
  description: 'Ask this first: projects, their brands, channels, topics and tags, and which days are complete.',
  input: {},
  columns: {
    ...{ texts: 'id name complete_from complete_to', numbers: 'missing_days', flags: 'is_stale' },
    lists: LISTS.join(' '),
  },
  about: 'Projects. All days from complete_from to complete_to are complete.',
  async answer(desk, { project }) {
    const all = await desk.rows<ProjectRow>('projects')
    const rows = project === undefined ? all : [find('project', project, all)]
    const hasChannels = desk.reports.some(({ dimensions }) => dimensions.includes(columnOf(desk.reports, 'channel')))
    for (const row of hasChannels ? rows : [])
      row.channels = (await desk.run(channelsOf(desk.reports, row.id))).map(({ name }) => name)
    const isCut = rows.some((row) => LISTS.some((name) => row[name].length > MOST_IN_LIST))
    return {
      sentences: [`${count(rows.length, 'project')}. Today is ${desk.today}, UTC.`],
      ...{ rows, narrower: 'name one project', link: desk.pages && `${desk.pages}/insights` },
      line({ id, name, complete_from, complete_to, is_stale, ...row }: ProjectRow) {
        const days = complete_to === null ? 'no day is complete' : `complete from ${complete_from} to ${complete_to}`
        const lists = LISTS.map((list) => `${list.replace('_', ' ')}: ${quotedList(row[list])}`).join('; ')
        return `${quoted(name)} (${inert(id)}): ${days}${is_stale === false ? '' : ', and stale'}; ${lists}.`
      },
      notes: [isCut && `Lists show ${MOST_IN_LIST} names; get_visibility lists all, by topic, channel or tag.`],
    }
  },
})

export const checkData = defineTool({
  name: 'check_data',
  description: 'Whether the numbers can be trusted now: how fresh and whole each stream is, and the last runs.',
  input: {},
  columns: {
    texts: 'stream last_read_at last_day',
    numbers: 'missing_days held_days unreconciled_days stale_days quarantined_rows',
    flags: 'is_stale is_fine',
  },
  about: 'Streams, those that need attention first. Unreconciled days do not add up to the totals of the service.',
  async answer(desk, asked) {
    const project = await findProject(desk, asked.project)
    const of = { project: project.id }
    const rows = await desk.rows<{ stream: string; state: string; is_fine: boolean }>('streams', of)
    const wrong = rows.filter(({ is_fine }) => !is_fine).length
    const all = count(rows.length, 'stream')
    return {
      project,
      sentences: [
        wrong === 0 ? `All ${all} are fresh and whole.` : `${wrong} of ${all} need attention.`,
        ...(await readLedger(desk, project.id)),
      ],
      ...{ rows, link: desk.pages && `${desk.pages}${href('/', of)}` },
      line: ({ stream, state }: (typeof rows)[number]) => `${inert(stream)}: ${state}.`,
    }
  },
})

/** The last runs and the reasons of quarantine, from the ledger, which a restricted reader may not read. */
async function readLedger(desk: Desk, project: string) {
  const schema = sql`to_regnamespace(quote_ident(${desk.warehouse.opsSchema}))`
  const [found] = await desk.run(sql<{ may: boolean | null }>`select has_schema_privilege(${schema}, 'usage') as may`)
  if (found?.may !== true) return ['The last runs and the reasons of quarantine are not visible to this role.']
  const entries = await desk.rows<{ what: string; state: string }>('ledger', { project })
  return entries.map(({ what, state }) => `${inert(what, TEXT_LENGTH)}: ${quoted(state, TEXT_LENGTH)}.`)
}

type Reason = Record<'name' | 'words', string>
type DayRow = MeasuredRow & Row<'usual answers usual_answers'> & Record<'is_unusual' | 'are_unusual', boolean | null>

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
  async answer(desk, { day, ...asked }) {
    if (day > desk.today) throw new UsageError(`day: got ${day}; allowed: days up to today, ${desk.today}`)
    const question = await openQuestion(desk, { ...asked, from: day, to: day })
    const brand = question.brand(asked.brand)
    const values = { project: question.project.id, brand: brand.id, day }
    const report = reportWith(desk.reports, ['date', 'prompt_id'])
    const of = { metric: 'visibility', report, where: sql``, brands: [brand.id], column: 'prompt_id' } as const
    const chats = sql`select chat_id from ${dataTable('chats')} c where project_id = ${values.project} and date = ${day} and prompt_id = id`
    const prompts = await question.read(
      (context) => grouped(context, of),
      (all) => sql<Reason>`select 'prompt' as kind, name, chats as detail, count, sample,
  concat('named in ', count, ' of ', sample, ' answers', ' (chats ' || chats || ')') as words
from (\n${all}\n) g
cross join lateral (select string_agg(chat_id, ', ') as chats from (${chats} order by chat_id limit 2) c) c
order by value, name`,
    )
    const [value] = await desk.rows<DayRow>('day', values)
    const number =
      value && `visibility ${numberOf('visibility', value)}; ${usual(value.is_unusual, value.usual, percent)}`
    return {
      ...(await question.about(['Unusual days also happen by chance: about one in six while there is a trend.'])),
      sentences: [
        number ? `${quoted(brand.name)}: ${number}.` : `There is no number of ${quoted(brand.name)} on this day.`,
        value &&
          `The day has ${count(value.answers ?? 0, 'answer')}; ${usual(value.are_unusual, value.usual_answers)}.`,
      ],
      rows: [...(await desk.rows<Reason>('reasons', values)), ...prompts.rows],
      line: ({ name, words }: Reason) => `${quoted(name, TEXT_LENGTH)}: ${inert(words, TEXT_LENGTH)}.`,
      link: question.link(),
    }
  },
})

function usual(is: boolean | null, value: number | null, show: (value: number) => unknown = String): string {
  if (value === null) return 'the baseline is not known'
  const judged = is === null ? 'not judged yet' : is ? 'unusual' : 'not unusual'
  return `${judged}: the same weekday of past weeks had ${show(value)}`
}
