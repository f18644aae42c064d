import * as z from 'zod'
import type { Dimension } from '../../core/vocabulary.ts'
import { percent, verdictFor, whole } from '../../web/insights/format.ts'
import { grouped, headToHeadBy, METRICS, type Metric, overTime } from '../../web/insights/measure-statements.ts'
import type { Row } from '../../web/insights/read-page.ts'
import { reportName, text } from '../../web/insights/sql.ts'
import { columnOf, DIMENSIONS, NARROWING, narrow, reportWith } from '../dimensions.ts'
import { find, type Named } from '../names.ts'
import {
  changeOf,
  kindOf,
  type MeasuredRow,
  numberOf,
  quoted,
  shareWith,
  TEXT_LENGTH,
  withoutNoise,
} from '../phrases.ts'
import {
  aName,
  COMPARISON,
  type Common,
  type Desk,
  defineTool,
  openQuestion,
  PERIOD,
  type Question,
} from '../question.ts'

/* The numbers of brands, and who is ahead. */

const GRAINS = ['day', 'week', 'month'] as const
const MOST_BRANDS = 10
const WEEKS_BY_MONTH = 26
// Of so many comparisons, one is likely to be called clear by chance.
const MANY = 6

type Measured = MeasuredRow & { metric: Metric; brand_id: string; brand: string; name?: string | null } & Partial<
    Record<'is_complete' | 'is_provisional', boolean | null>
  >

const INPUT = {
  brands: z.array(aName('Name or id; or own, rivals, all.')).min(1).max(MOST_BRANDS).default(['own']),
  metric: z.enum(METRICS).optional().describe('By default all four, or visibility of several brands or groups.'),
  by: z.enum(['none', ...GRAINS, ...DIMENSIONS]).default('none'),
  ...{ ...NARROWING, ...PERIOD, ...COMPARISON },
}
type Asked = z.infer<z.ZodObject<typeof INPUT>> & Common
type Plan = Awaited<ReturnType<typeof planOf>>

export const getVisibility = defineTool({
  name: 'get_visibility',
  description:
    'Visibility, share of voice, position and sentiment of brands, against the period before; by day, week or month, or ' +
    'by topic, channel, country, tag or prompt. By default all four of the own brand over the last four complete weeks.',
  input: INPUT,
  columns: {
    texts: 'metric brand brand_id name id verdict',
    numbers: 'value low high count sample previous_value previous_sample change change_low change_high',
    flags: 'is_complete is_provisional',
  },
  about:
    'name and id are those of the topic, channel, country, tag or prompt, or the first day. Shares are from 0 to 1, ' +
    'position 1 is first, sentiment is on the scale of the service. low and high: the 95 % interval, which only ' +
    'visibility has. count of sample: answers or mentions. change: given only if verdict is up or down.',
  async answer(desk, asked) {
    const plan = await planOf(desk, asked)
    const { question, grain, dimension, found, isPlain, of } = plan
    const { rows, missing, total } = isPlain ? await totals(plan, asked) : await split(plan)
    const page = rows.map((row: Measured) => withoutNoise(row))
    const { notes, ...about } = await question.about(reportName(desk.reports, of.report))
    const only = found.map(({ by, name }) => `, only ${by} ${quoted(name, TEXT_LENGTH)}`).join('')
    const by = asked.by === 'none' ? '' : ` by ${asked.by}`
    const subject = found.find(({ by: kind }) => kind === 'topic' || kind === 'prompt')
    return {
      ...about,
      sentences: [
        !isPlain && `${kindOf(of.metric).title}${by}${only}.`,
        missing ?? (page.length === 0 && 'There are no answers in this period.'),
      ],
      rows: page.map((row) => ({ row, line: lineOf(row, grain !== undefined, dimension) })),
      ...{ total, narrower: 'narrow it by brand, topic, channel or period' },
      notes: [...notes, ...cautions(plan, page)],
      link: subject
        ? question.link('', `/insights/${subject.by as 'topic'}`, { [subject.by]: subject.id })
        : question.link(),
    }
  },
})

/** What is read: names are found, and the report is chosen. */
async function planOf(desk: Desk, asked: Asked) {
  const { by, metric = 'visibility' } = asked
  const [grain, dimension] = [GRAINS.find((one) => one === by), DIMENSIONS.find((one) => one === by)]
  const usual = by === 'month' && (asked.from ?? asked.to) === undefined ? WEEKS_BY_MONTH : undefined
  const compare = grain === undefined ? asked.compare : 'none'
  const question = await openQuestion(desk, { ...asked, weeks: asked.weeks ?? usual, compare }, grain && { grain })
  const brands = chooseBrands(question, asked.brands)
  const { found, columns, where } = await narrow(question, asked)
  const isPlain = by === 'none' && found.length === 0
  const column = dimension && columnOf(desk, dimension)
  const needs = new Set<Dimension>(['date', ...columns, ...(column ? [column] : [])])
  const report = isPlain ? ['date' as const] : reportWith(desk, [...needs])
  const of = { metric, report, where, brands: brands.map(({ id }) => id), column }
  return { question, grain, dimension, found, isPlain, brands, of }
}

function chooseBrands({ owns, rivals, brands, own }: Question, asked: readonly string[]): Named[] {
  if (asked.includes('own')) own()
  const words = new Map<string, readonly Named[]>(Object.entries({ own: owns, rivals, all: brands }))
  return [...new Set(asked.flatMap((name) => words.get(name) ?? [find('brand', name, brands)]))]
}

/** By time or by a dimension. */
function split({ question, grain, of }: Plan) {
  const write = grain === undefined ? grouped : overTime
  return question.page<Measured>((context) => write(context, of), 'true', `*, ${text(of.metric)} as metric`)
}

/** Over the whole period, as the headlines of the page. */
async function totals({ question, brands }: Plan, { metric, offset, limit }: Asked) {
  const all: Measured[] = []
  for (const { id: brand_id, name: brand } of brands) {
    question.context.own = text(brand_id)
    const { rows, missing } = await question.read<Measured>('summary')
    if (missing !== undefined) return { rows: [], missing, total: 0 }
    all.push(...rows.map((row) => ({ ...row, brand_id, brand })))
  }
  const isAll = metric === undefined && brands.length === 1
  const rows = all.filter((row) => row.sample !== null && (isAll || row.metric === (metric ?? 'visibility')))
  if (!isAll) rows.sort((a, b) => (b.value ?? -1) - (a.value ?? -1))
  return { rows: rows.slice(offset, offset + limit), missing: undefined, total: rows.length }
}

function cautions({ grain, dimension }: Plan, rows: readonly Measured[]) {
  const judged = rows.filter(({ verdict }) => ['up', 'down', 'no_clear_change'].includes(verdict ?? '')).length
  return [
    grain !== undefined && `The ${grain}s are not judged against each other: find_changes does that.`,
    (grain === 'week' || grain === 'month') && `Only ${grain}s that begin in the period are listed, as a whole.`,
    judged >= MANY && `Of ${judged} comparisons, about one in 20 is called clear by chance; see find_changes.`,
    dimension === 'tag' && 'A prompt can have several tags: rows overlap and must not be added up.',
  ]
}

function lineOf(row: Measured, isTime: boolean, dimension: string | undefined): string {
  const { metric, brand, is_complete, is_provisional } = row
  const name = row.name ?? (dimension && `(no ${dimension})`)
  const group = name === undefined ? '' : `${isTime ? name : quoted(name, TEXT_LENGTH)}, `
  const state = `${isTime && !is_complete ? '; incomplete' : ''}${isTime && is_provisional !== false ? '; may still change' : ''}`
  const number = `${kindOf(metric).title.toLowerCase()} ${numberOf(metric, row)}`
  return `${group}${quoted(brand)}: ${number}${state}.${changeOf(metric, row)}`
}

type Lead = Row & { own_answers: number }

export const compareBrands = defineTool({
  name: 'compare_brands',
  description:
    'The own brand against its rivals in the same answers, over a period; or by topic or channel against one rival. ' +
    'Says who is clearly ahead, and where no lead is clear.',
  input: {
    brand: aName('An own brand, by name or id; by default the first.').optional(),
    rival: aName('By default all rivals, and by topic or channel the most visible one.').optional(),
    by: z.enum(['none', 'topic', 'channel']).default('none'),
    ...PERIOD,
  },
  columns: {
    texts: 'name rival_brand rival_brand_id lead_verdict',
    numbers:
      'own_visibility own_visibility_low own_visibility_high own_answers rival_visibility rival_visibility_low ' +
      'rival_visibility_high answers lead own_share_of_both',
  },
  about:
    'Shares from 0 to 1 with 95 % intervals. name is the topic or channel; answers is the sample of the rival. ' +
    'lead is given only if lead_verdict is ahead or behind.',
  async answer(desk, asked) {
    const { by, limit, offset } = asked
    const question = await openQuestion(desk, asked)
    const { context, filters, rivals, read } = question
    const own = question.own(asked.brand)
    const chosen = asked.rival === undefined ? undefined : find('rival', asked.rival, rivals)
    const all = await read<Lead>('head-to-head')
    const rival = chosen ?? rivals.find(({ id }) => id === all.rows[0]?.rival_brand_id)
    const column = by === 'none' ? undefined : columnOf(desk, by)
    context.rival = text(rival?.id ?? '')
    if (column !== undefined) filters.rival = rival?.id
    const { rows, missing } = column === undefined ? all : await read<Lead>((of) => headToHeadBy(of, column))
    const leads = rows.filter(({ rival_brand_id }) => chosen === undefined || rival_brand_id === chosen.id)
    const { notes, ...about } = await question.about(column && reportName(desk.reports, ['date', column]))
    const against = column === undefined ? 'its rivals' : `${quoted(rival?.name ?? '')} by ${by}`
    return {
      ...about,
      sentences: [
        missing ?? `${quoted(own.name)} against ${against}, in the same answers.`,
        leads.length === 0 && 'There are no answers in this period.',
      ],
      rows: leads.slice(offset, offset + limit).map((row) => ({
        row: { ...row, lead: ['ahead', 'behind'].includes(row.lead_verdict) ? row.lead : null },
        line: `${column === undefined ? '' : `${quoted(row.name ?? `(no ${by})`)}: `}${leadOf(row, own.name)}`,
      })),
      ...{ total: leads.length, narrower: 'name one rival' },
      notes: [...notes, 'A lead is clear only if the two 95 % intervals do not overlap.'],
      link: question.link('head-to-head'),
    }
  },
})

function leadOf(row: Lead, own: string): string {
  const mine = shareWith(row.own_visibility, row.own_visibility_low, row.own_visibility_high)
  const theirs = shareWith(row.rival_visibility, row.rival_visibility_low, row.rival_visibility_high)
  const both = row.own_share_of_both === null ? '' : `, with ${percent(row.own_share_of_both)} of the mentions of both`
  const numbers = `${quoted(own)} ${mine} of ${whole(row.own_answers)} answers, ${quoted(row.rival_brand)} ${theirs}`
  return `${numbers} of ${whole(row.answers)}. ${verdictFor(row.lead_verdict).words}${both}.`
}
