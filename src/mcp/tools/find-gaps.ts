import * as z from 'zod'
import { UsageError } from '../../core/errors.ts'
import { count } from '../../core/text.ts'
import { ENOUGH, percent, whole } from '../../web/insights/format.ts'
import type { Row } from '../../web/insights/read-page.ts'
import { text } from '../../web/insights/sql.ts'
import { findIn } from '../dimensions.ts'
import { quoted, quotedList, TEXT_LENGTH } from '../phrases.ts'
import { aName, defineTool, ofList, ofPeriod, ofProject, openQuestion } from '../question.ts'

const DOMAIN_LENGTH = 255
const MOST_RIVALS = 5

/** What is listed: a section of the page, its title, and each row in words. */
const KINDS = {
  prompts: {
    section: 'absent-prompts',
    title: 'Prompts by model whose answers name rivals and never',
    anchor: 'absent-prompts',
    note: `A brand that no answer names may still be visible: up to 35 % with 7 answers, 11 % with ${ENOUGH}.`,
    line: ({
      prompt,
      model_id,
      answers = 0,
      weeks_absent,
      best_rival_visibility,
      rivals_in_their_best_week: rivals,
    }: Row) =>
      `${quoted(prompt, TEXT_LENGTH)} in ${quoted(model_id ?? '(no model)')}: absent from ${count(answers ?? 0, 'answer')} in ${count(weeks_absent ?? 0, 'week')}${(answers ?? 0) < ENOUGH ? ', too few for a conclusion' : ''}; best rival ${percent(best_rival_visibility)} in its best week (${quotedList((rivals ?? '').split(', '), MOST_RIVALS)}).`,
  },
  sources: {
    section: 'source-gaps',
    title: 'Domains cited for prompts where rivals appear and no answer names',
    anchor: 'sources',
    note: 'A citation does not show that the source names a brand, nor that it made the answer.',
    line: ({ domain, classification, citation_count, most_prompts_in_a_week: prompts, weeks }: Row) =>
      `${quoted(domain, DOMAIN_LENGTH)}${classification === null ? '' : ` (${quoted(classification)})`}: cited ${whole(citation_count)} times in ${count(weeks ?? 0, 'week')}, for up to ${count(prompts ?? 0, 'prompt')} a week.`,
  },
  pages: {
    section: 'source-pages',
    title: 'Cited pages that mention rivals and not',
    anchor: 'sources',
    note: 'A citation does not show that the page made the answer.',
    line: ({ url, title, citation_count, rival_names }: Row) =>
      `${quoted(url, DOMAIN_LENGTH)}${title === null ? '' : `, titled ${quoted(title)}`}: cited ${whole(citation_count)} times; mentions ${quotedList([rival_names ?? []].flat(), MOST_RIVALS)}.`,
  },
} as const

export const findGaps = defineTool({
  name: 'find_gaps',
  title: 'Find gaps',
  description:
    'Where rivals appear and the own brand does not: prompts by model, sources (domains) that answers cite without it, and pages that mention only rivals.',
  input: z.object({
    ...ofProject,
    brand: aName('An own brand, by name or id; by default the first.').optional(),
    kind: z.enum(['prompts', 'sources', 'pages']).default('prompts'),
    topic: aName('Only prompts of this topic.').optional(),
    domain: aName('Only pages of this domain.').optional(),
    ...ofPeriod,
    ...ofList,
  }),
  columns: {
    texts: 'prompt prompt_id topic model_id last_week rivals_in_their_best_week domain classification url title',
    numbers: 'answers weeks_absent best_rival_visibility most_prompts_in_a_week weeks citation_count',
    lists: 'rival_names',
  },
  about:
    'Prompts, domains or pages; columns of other kinds are null. best_rival_visibility is the highest of a week, from 0 to 1.',
  async answer(desk, { kind, limit, offset, domain, ...asked }) {
    const { section, title, anchor, note, line } = KINDS[kind]
    if (domain !== undefined && kind !== 'pages') throw new UsageError('domain: allowed only with kind pages')
    if (asked.topic !== undefined && kind !== 'prompts') throw new UsageError('topic: allowed only with kind prompts')
    const subject = domain === undefined ? {} : { domain }
    const question = await openQuestion(desk, asked, { subject })
    const { project, range: period } = question
    const own = question.own(asked.brand)
    const topic = asked.topic === undefined ? undefined : await findIn(question, 'topic', asked.topic)
    const { rows, missing } = await question.read<Row & { total: number }>(
      section,
      (sql) => `select *, count(*) over () as total from (
${sql}
) g${topic === undefined ? '' : `\nwhere topic_id = ${text(topic.id)}`}
limit ${limit} offset ${offset}`,
    )
    const only = topic === undefined ? (domain ?? '') : topic.name
    const { notes } = await question.days()
    return {
      ...{ project, period },
      sentences: [
        missing ??
          `${title} ${quoted(own.name)}${only === '' ? '' : ` (only ${quoted(only)})`}, in complete weeks: ${whole(rows[0]?.total ?? 0)}.`,
      ],
      rows: rows.map((row) => ({ row, line: line(row) })),
      ...{
        total: rows[0]?.total ?? 0,
        offset,
        narrower: kind === 'pages' ? 'name one domain' : 'ask for a shorter period',
      },
      notes: [...notes, note],
      link: domain === undefined ? question.link(anchor) : question.link('', '/insights/source', subject),
    }
  },
})
