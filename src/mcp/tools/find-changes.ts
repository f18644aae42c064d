import * as z from 'zod'
import { ENOUGH, percent, whole } from '../../web/insights/format.ts'
import type { Row } from '../../web/insights/read-page.ts'
import { text } from '../../web/insights/sql.ts'
import { find } from '../names.ts'
import { changeOf, quoted } from '../phrases.ts'
import { aName, defineTool, ofComparison, ofList, ofPeriod, ofProject, openQuestion } from '../question.ts'

export const findChanges = defineTool({
  name: 'find_changes',
  title: 'Find changes',
  description:
    'Clear rises and falls of visibility by brand, topic and model against the period before, with a false discovery rate of 10 %: at most about one in ten is chance. By default of the own brand.',
  input: z.object({
    ...ofProject,
    brand: aName('Name or id, or all.').optional(),
    direction: z.enum(['both', 'up', 'down']).default('both'),
    ...ofPeriod,
    ...ofComparison,
    ...ofList,
  }),
  columns: {
    texts: 'brand brand_id grain topic model_id verdict',
    numbers: 'visibility previous_visibility change change_low change_high q_value answers previous_answers',
  },
  about:
    'Clear changes of shares from 0 to 1, the clearest first. grain says what is compared: topic and model, topic, model, or brand.',
  async answer(desk, { brand: name, direction, limit, offset, ...asked }) {
    const question = await openQuestion(desk, asked)
    const { brands, own, read } = question
    const brand = name === 'all' ? undefined : name === undefined ? own() : find('brand', name, brands)
    const counted = await read<{ judged: number; clear: number }>(
      'movers',
      (sql) =>
        `select coalesce(max(judged_count), 0) as judged, coalesce(max(clear_count), 0) as clear from (\n${sql}\n) m`,
    )
    const ofBrand = brand === undefined ? '' : ` and brand_id = ${text(brand.id)}`
    const { rows, missing } = await read<Row & { total: number }>(
      'movers',
      (sql) => `select *, count(*) over () as total from (
${sql}
) m
where q_value <= 0.1 and clarity > 1 and verdict in (${direction === 'both' ? "'up', 'down'" : text(direction)})${ofBrand}
order by rank, brand_id, topic_id, model_id limit ${limit} offset ${offset}`,
    )
    const { judged = 0, clear = 0 } = counted.rows[0] ?? {}
    const kind = { both: 'rise or fall', up: 'rise', down: 'fall' }[direction]
    const { project, range: period } = question
    const days = await question.days()
    return {
      ...{ project, period, ...days },
      sentences: [
        ...(missing === undefined
          ? [
              `Of ${whole(judged)} changes of all brands with at least ${ENOUGH} answers in both periods, ${whole(clear)} are clear at a false discovery rate of 10 %.`,
            ]
          : days.notes.includes(missing)
            ? []
            : [missing]),
        ...(missing === undefined && rows.length === 0
          ? [`None of them is a ${kind} of ${brand === undefined ? 'any brand' : quoted(brand.name)}.`]
          : []),
      ],
      rows: rows.map((row) => ({ row: { ...row, topic: hasTopic(row) ? row.topic : null }, line: lineOf(row) })),
      ...{ total: rows[0]?.total ?? 0, offset, narrower: 'name one brand or one direction' },
      link: question.link('movers'),
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
  return `${[quoted(row.brand), ...where].filter(Boolean).join(', ')}: ${percent(value)} of ${whole(sample)} answers.${change}`
}
