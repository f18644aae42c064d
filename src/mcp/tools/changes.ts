import { sql } from 'kysely'
import * as z from 'zod'
import { count } from '../../core/text.ts'
import type { Dimension, ReportSubject } from '../../core/vocabulary.ts'
import { ENOUGH, percent, whole } from '../../web/insights/format.ts'
import { changeOf } from '../../web/insights/measure-words.ts'
import { type Rows, type Section, STATEMENTS } from '../../web/insights/read-page.ts'
import { BY_PROMPT_AND_MODEL, type Fragment } from '../../web/insights/sql.ts'
import { quoted, quotedList, TEXT_LENGTH } from '../answer.ts'
import { aName, COMPARISON, defineTool, openQuestion, PERIOD } from '../question.ts'

/* What rose or fell, and where the own brand is missing. */

export const findChanges = defineTool({
  name: 'find_changes',
  description:
    'Clear rises and falls of visibility by brand, topic and model against the period before, with a false discovery rate ' +
    'of 10 %: at most about one in ten is chance. By default of the own brand.',
  input: {
    brand: aName('Name or id, or all.').optional(),
    direction: z.enum(['both', 'up', 'down']).default('both'),
    ...{ ...PERIOD, ...COMPARISON },
  },
  columns: {
    texts: 'brand brand_id grain topic model_id verdict',
    numbers: 'visibility previous_visibility change change_low change_high q_value answers previous_answers',
  },
  about: 'Shares from 0 to 1, the clearest change first. grain: topic and model, topic, model, or brand is compared.',
  async answer(desk, { direction, ...asked }) {
    const question = await openQuestion(desk, asked)
    const brand = asked.brand === 'all' ? undefined : question.brand(asked.brand)
    const counts = sql`coalesce(max(judged_count), 0) as judged, coalesce(max(clear_count), 0) as clear`
    const wrap = (movers: Fragment) => sql<Record<'judged' | 'clear', number>>`select ${counts} from (\n${movers}\n) m`
    const { rows: counted, missing } = await question.read(STATEMENTS.movers, wrap)
    const verdicts = sql.join(direction === 'both' ? ['up', 'down'] : [direction])
    const ofBrand = brand === undefined ? sql`` : sql` and brand_id = ${brand.id}`
    const { rows, total } = await question.page(STATEMENTS.movers, {
      where: sql`q_value <= 0.1 and clarity > 1 and verdict in (${verdicts})${ofBrand}`,
      // What is of all topics has the same name as a topic may have.
      columns: sql<Rows['movers']>`*, case when grain like '%topic%' then topic end as topic`,
    })
    const kind = { both: 'rise or fall', up: 'rise', down: 'fall' }[direction]
    const said = counted.map(
      ({ judged, clear }) =>
        `Of ${whole(judged)} changes of all brands with at least ${ENOUGH} answers in both periods, ` +
        `${whole(clear)} are clear at a false discovery rate of 10 %.`,
    )
    const none = `None of them is a ${kind} of ${brand === undefined ? 'any brand' : quoted(brand.name)}.`
    const about = await question.about()
    return {
      ...about,
      sentences: [...said, missing === undefined && total === 0 && none, !about.notes.includes(missing) && missing],
      ...{ rows, total, narrower: 'name one brand or one direction', link: question.link('movers') },
      line(row: Rows['movers']) {
        const { brand: named, topic, model_id, visibility: value, answers: sample } = row
        const before = { previous_value: row.previous_visibility, previous_sample: row.previous_answers }
        const of = `${topic === null ? '' : `, topic ${quoted(topic)}`}${model_id === null ? '' : `, model ${quoted(model_id)}`}`
        const change = changeOf('visibility', { ...row, ...before, value, sample })
        return `${quoted(named)}${of}: ${percent(value)} of ${whole(sample)} answers.${change}`
      },
    }
  },
})

const URL_LENGTH = 255
const rivalsOf = (names: readonly string[]) => quotedList(names, 5)

const CITED = 'A citation does not show that the source names a brand, nor that it made the answer.'
const UNNAMED = `A brand that no answer names may still be visible: up to 35 % with 7 answers, 11 % with ${ENOUGH}.`

/** What is listed: a section, where its page shows it, the report that it needs, and each row in words. */
const KINDS = {
  prompts: {
    ...{ section: 'absent-prompts', anchor: 'absent-prompts', note: UNNAMED, of: 'brands', by: BY_PROMPT_AND_MODEL },
    title: 'Prompts by model whose answers of a week name rivals and never',
    line({ answers, weeks_absent, named_count, best_rival_visibility, ...row }: Rows['absent-prompts']) {
      const rivals = rivalsOf((row.rivals_in_their_best_week ?? '').split(', '))
      const absent = `absent from ${count(answers ?? 0, 'answer')} in ${count(weeks_absent ?? 0, 'week')}`
      const few = (answers ?? 0) < ENOUGH ? ', too few for a conclusion' : ''
      const named = named_count ? `, but named in ${count(named_count, 'answer')} of other weeks` : ''
      const best = `best rival ${percent(best_rival_visibility)} in its best week (${rivals})`
      return `${quoted(row.prompt, TEXT_LENGTH)} in ${quoted(row.model_id ?? '(no model)')}: ${absent}${few}${named}; ${best}.`
    },
  },
  sources: {
    ...{ section: 'source-gaps', anchor: 'sources', note: CITED, of: 'domains', by: BY_PROMPT_AND_MODEL },
    title: 'Domains cited for prompts where rivals appear and no answer names',
    line({ domain, classification, citation_count, weeks, most_prompts_in_a_week: most }: Rows['source-gaps']) {
      const kind = classification === null ? '' : ` (${quoted(classification)})`
      const cited = `cited ${whole(citation_count)} times in ${count(weeks ?? 0, 'week')}`
      return `${quoted(domain, URL_LENGTH)}${kind}: ${cited}, for up to ${count(most ?? 0, 'prompt')} a week.`
    },
  },
  pages: {
    ...{ section: 'source-pages', anchor: 'sources', note: CITED, of: 'urls', by: ['date'] },
    title: 'Cited pages that mention rivals and not',
    line({ url, title, citation_count, rival_names }: Rows['source-pages']) {
      const page = `${quoted(url, URL_LENGTH)}${title === null ? '' : `, titled ${quoted(title)}`}`
      return `${page}: cited ${whole(citation_count)} times; mentions ${rivalsOf([rival_names ?? []].flat())}.`
    },
  },
} satisfies Record<string, Record<string, unknown> & { section: Section; of: ReportSubject; by: Dimension[] }>

export const findGaps = defineTool({
  name: 'find_gaps',
  description: 'Where rivals appear and the own brand does not: prompts by model, cited domains, or cited pages.',
  input: {
    brand: aName('An own brand, by name or id; by default the first.').optional(),
    kind: z.enum(['prompts', 'sources', 'pages']).default('prompts'),
    ...PERIOD,
  },
  columns: {
    texts: 'prompt prompt_id topic model_id last_week rivals_in_their_best_week domain classification url title',
    numbers: 'answers weeks_absent named_count best_rival_visibility most_prompts_in_a_week weeks citation_count',
    lists: 'rival_names',
  },
  about: 'Columns of other kinds are null. best_rival_visibility is the highest of a week, from 0 to 1.',
  async answer(desk, asked) {
    const { section, title, anchor, note, line, of, by } = KINDS[asked.kind]
    const question = await openQuestion(desk, asked)
    const own = question.brand(asked.brand, true)
    const { rows, total, missing } = await question.page<object>(STATEMENTS[section])
    const reports = desk.reports.filter((report) => (report.of ?? 'brands') === of)
    const stream = reports.find(({ dimensions }) => by.every((name) => dimensions.includes(name)))?.name
    const weeks = await question.completeWeeks(stream ?? '')
    const found = `${title} ${quoted(own.name)}, in ${count(weeks, 'complete week')}: ${whole(total)}.`
    const isUnread = stream === undefined && of !== 'brands'
    const unread = isUnread ? `Nothing is known of ${of}: no report of ${of} is configured.` : missing
    return {
      ...(await question.about([note], stream, question.whole('week'))),
      sentences: [unread ?? (weeks === 0 ? 'No complete week begins in this period.' : found)],
      ...{ rows, total, line, narrower: 'ask for a shorter period', link: question.link(anchor) },
    }
  },
})
