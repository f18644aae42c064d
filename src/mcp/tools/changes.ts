import * as z from 'zod'
import { UsageError } from '../../core/errors.ts'
import { count } from '../../core/text.ts'
import { ENOUGH, percent, whole } from '../../web/insights/format.ts'
import type { Row, Section } from '../../web/insights/read-page.ts'
import { text } from '../../web/insights/sql.ts'
import { findIn } from '../dimensions.ts'
import { find } from '../names.ts'
import { changeOf, quoted, quotedList, TEXT_LENGTH } from '../phrases.ts'
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
  about:
    'Clear changes of shares from 0 to 1, the clearest first. ' +
    'grain says what is compared: topic and model, topic, model, or brand.',
  async answer(desk, asked) {
    const { brand: name, direction } = asked
    const question = await openQuestion(desk, asked)
    const brand =
      name === 'all' ? undefined : name === undefined ? question.own() : find('brand', name, question.brands)
    const counts = 'coalesce(max(judged_count), 0) as judged, coalesce(max(clear_count), 0) as clear'
    const {
      rows: [counted],
      missing,
    } = await question.read<Record<'judged' | 'clear', number>>(
      'movers',
      (sql) => `select ${counts} from (\n${sql}\n) m`,
    )
    const verdicts = direction === 'both' ? "'up', 'down'" : text(direction)
    const isAsked = `q_value <= 0.1 and clarity > 1 and verdict in (${verdicts})`
    const ofBrand = brand === undefined ? '' : ` and brand_id = ${text(brand.id)}`
    const { rows, total } = await question.page<Row>('movers', `${isAsked}${ofBrand}`)
    const kind = { both: 'rise or fall', up: 'rise', down: 'fall' }[direction]
    const judged = `Of ${whole(counted?.judged ?? 0)} changes of all brands with at least ${ENOUGH} answers in both periods`
    const about = await question.about()
    return {
      ...about,
      sentences: [
        counted && `${judged}, ${whole(counted.clear)} are clear at a false discovery rate of 10 %.`,
        counted &&
          total === 0 &&
          `None of them is a ${kind} of ${brand === undefined ? 'any brand' : quoted(brand.name)}.`,
        !about.notes.includes(missing) && missing,
      ],
      rows: rows.map((row) => ({ row: { ...row, topic: hasTopic(row) ? row.topic : null }, line: lineOf(row) })),
      ...{ total, narrower: 'name one brand or one direction', link: question.link('movers') },
    }
  },
})

const hasTopic = ({ grain }: Row) => grain.includes('topic')

function lineOf(row: Row): string {
  const {
    visibility: value,
    previous_visibility: previous_value,
    previous_answers: previous_sample,
    answers: sample,
  } = row
  const where = [
    hasTopic(row) && `topic ${quoted(row.topic)}`,
    row.model_id !== null && `model ${quoted(row.model_id)}`,
  ]
  const change = changeOf('visibility', { ...row, value, sample, previous_value, previous_sample })
  const subject = [quoted(row.brand), ...where].filter(Boolean).join(', ')
  return `${subject}: ${percent(value)} of ${whole(sample)} answers.${change}`
}

const DOMAIN_LENGTH = 255
const MOST_RIVALS = 5
const noFewer = (number: number | null, noun: string) => count(number ?? 0, noun)

/** What is listed: a section of the page, its title, and each row in words. */
const KINDS = {
  prompts: {
    ...{
      section: 'absent-prompts',
      title: 'Prompts by model whose answers of a week name rivals and never',
      anchor: 'absent-prompts',
    },
    note: `A brand that no answer names may still be visible: up to 35 % with 7 answers, 11 % with ${ENOUGH}.`,
    line: (row: Row) =>
      `${quoted(row.prompt, TEXT_LENGTH)} in ${quoted(row.model_id ?? '(no model)')}: absent from ` +
      `${noFewer(row.answers, 'answer')} in ${noFewer(row.weeks_absent, 'week')}` +
      `${(row.answers ?? 0) < ENOUGH ? ', too few for a conclusion' : ''}; best rival ` +
      `${percent(row.best_rival_visibility)} in its best week ` +
      `(${quotedList((row.rivals_in_their_best_week ?? '').split(', '), MOST_RIVALS)}).`,
  },
  sources: {
    ...{
      section: 'source-gaps',
      title: 'Domains cited for prompts where rivals appear and no answer names',
      anchor: 'sources',
    },
    note: 'A citation does not show that the source names a brand, nor that it made the answer.',
    line: (row: Row) =>
      `${quoted(row.domain, DOMAIN_LENGTH)}${row.classification === null ? '' : ` (${quoted(row.classification)})`}: cited ` +
      `${whole(row.citation_count)} times in ${noFewer(row.weeks, 'week')}, for up to ` +
      `${noFewer(row.most_prompts_in_a_week, 'prompt')} a week.`,
  },
  pages: {
    ...{ section: 'source-pages', title: 'Cited pages that mention rivals and not', anchor: 'sources' },
    note: 'A citation does not show that the page made the answer.',
    line: (row: Row) =>
      `${quoted(row.url, DOMAIN_LENGTH)}${row.title === null ? '' : `, titled ${quoted(row.title)}`}: cited ` +
      `${whole(row.citation_count)} times; mentions ${quotedList([row.rival_names ?? []].flat(), MOST_RIVALS)}.`,
  },
} satisfies Record<string, { section: Section; title: string; anchor: string; note: string; line(row: Row): string }>

export const findGaps = defineTool({
  name: 'find_gaps',
  description:
    'Where rivals appear and the own brand does not: prompts by model, sources (domains) that answers cite without it, ' +
    'and pages that mention only rivals.',
  input: {
    brand: aName('An own brand, by name or id; by default the first.').optional(),
    kind: z.enum(['prompts', 'sources', 'pages']).default('prompts'),
    topic: aName('Only prompts of this topic.').optional(),
    domain: aName('Only pages of this domain.').optional(),
    ...PERIOD,
  },
  columns: {
    texts: 'prompt prompt_id topic model_id last_week rivals_in_their_best_week domain classification url title',
    numbers: 'answers weeks_absent best_rival_visibility most_prompts_in_a_week weeks citation_count',
    lists: 'rival_names',
  },
  about:
    'Prompts, domains or pages; columns of other kinds are null. ' +
    'best_rival_visibility is the highest of a week, from 0 to 1.',
  async answer(desk, { kind, domain, ...asked }) {
    const { section, title, anchor, note, line } = KINDS[kind]
    if (domain !== undefined && kind !== 'pages') throw new UsageError('domain: allowed only with kind pages')
    if (asked.topic !== undefined && kind !== 'prompts') throw new UsageError('topic: allowed only with kind prompts')
    const subject = domain === undefined ? {} : { domain }
    const question = await openQuestion(desk, asked, { subject })
    const own = question.own(asked.brand)
    const topic = asked.topic === undefined ? undefined : await findIn(question, 'topic', asked.topic)
    const { rows, total, missing } = await question.page<Row>(section, topic && `topic_id = ${text(topic.id)}`)
    const name = topic?.name ?? domain
    const only = name === undefined ? '' : ` (only ${quoted(name)})`
    const { notes, ...about } = await question.about()
    return {
      ...about,
      sentences: [missing ?? `${title} ${quoted(own.name)}${only}, in complete weeks: ${whole(total)}.`],
      rows: rows.map((row) => ({ row, line: line(row) })),
      ...{ total, narrower: kind === 'pages' ? 'name one domain' : 'ask for a shorter period' },
      notes: [...notes, note],
      link: domain === undefined ? question.link(anchor) : question.link('', '/insights/source', subject),
    }
  },
})
