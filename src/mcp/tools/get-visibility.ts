import * as z from 'zod'
import type { Dimension } from '../../core/vocabulary.ts'
import { grouped, METRICS, type Metric, overTime } from '../../web/insights/measure-statements.ts'
import { reportName, text } from '../../web/insights/sql.ts'
import { columnOf, DIMENSIONS, narrow, narrowing, reportWith } from '../dimensions.ts'
import { find, type Named } from '../names.ts'
import { changeOf, kindOf, type MeasuredRow, numberOf, quoted, TEXT_LENGTH, withoutNoise } from '../phrases.ts'
import {
  aName,
  defineTool,
  ofComparison,
  ofList,
  ofPeriod,
  ofProject,
  openQuestion,
  type Question,
} from '../question.ts'

const GRAINS = ['day', 'week', 'month'] as const
const MOST_BRANDS = 10
const WEEKS_BY_MONTH = 26
// Of so many comparisons, one is likely to be called clear by chance.
const MANY = 6

type Measured = MeasuredRow & {
  metric: Metric
  brand_id: string
  brand: string
  name?: string | null
  is_complete?: boolean | null
  is_provisional?: boolean | null
  total?: number
}

export const getVisibility = defineTool({
  name: 'get_visibility',
  title: 'Get visibility',
  description:
    'Visibility, share of voice, position and sentiment of brands, against the period before; by day, week or month, or by topic, channel, country, tag or prompt. By default all four of the own brand over the last four complete weeks.',
  input: z.object({
    ...ofProject,
    brands: z.array(aName('Name or id; or own, rivals, all.')).min(1).max(MOST_BRANDS).default(['own']),
    metric: z
      .enum(METRICS)
      .optional()
      .describe('By default all four, or visibility if there are several brands or groups.'),
    by: z.enum(['none', ...GRAINS, ...DIMENSIONS]).default('none'),
    ...narrowing,
    ...ofPeriod,
    ...ofComparison,
    ...ofList,
  }),
  columns: {
    texts: 'metric brand brand_id name id verdict',
    numbers: 'value low high count sample previous_value previous_sample change change_low change_high',
    flags: 'is_complete is_provisional',
  },
  about:
    'name and id are those of the topic, channel, country, tag or prompt, or the first day. Shares are from 0 to 1, position 1 is first, sentiment is on the scale of the service. low and high: the 95 % interval, which only visibility has. count of sample: answers or mentions. change: given only if verdict is up or down.',
  async answer(desk, asked) {
    const { by, metric, limit, offset } = asked
    const grain = GRAINS.find((one) => one === by)
    const isUsual = asked.weeks === undefined && asked.from === undefined && asked.to === undefined
    const weeks = by === 'month' && isUsual ? WEEKS_BY_MONTH : asked.weeks
    const compare = grain === undefined ? asked.compare : 'none'
    const question = await openQuestion(desk, { ...asked, weeks, compare }, grain && { grain })
    const brands = chooseBrands(question, asked.brands)
    const { found, columns, where } = await narrow(question, asked)
    const isPlain = by === 'none' && found.length === 0
    const first = metric ?? 'visibility'
    const metrics = metric === undefined && isPlain && brands.length === 1 ? METRICS : [first]
    const dimension = DIMENSIONS.find((one) => one === by)
    const column = dimension && columnOf(desk, dimension)
    const report = isPlain
      ? undefined
      : reportWith(desk, [...new Set<Dimension>(['date', ...columns, ...(column ? [column] : [])])])
    const of = { metric: first, report: report!, where, brands: brands.map(({ id }) => id), column }
    const { rows, missing } = isPlain
      ? await totals(question, metrics, brands)
      : await question.read<Measured>(
          (context) => (grain === undefined ? grouped(context, of) : overTime(context, of)),
          (sql) =>
            `select *, ${text(first)} as metric, count(*) over () as total from (\n${sql}\n) t\nlimit ${limit} offset ${offset}`,
        )
    const page = (isPlain ? rows.slice(offset, offset + limit) : rows).map(withoutNoise)
    const { notes, comparedWith } = await question.days(report && reportName(desk.reports, report))
    const only = found.map(({ by: kind, name }) => `${kind} ${quoted(name, TEXT_LENGTH)}`).join(', ')
    const judged = page.filter(({ verdict }) => ['up', 'down', 'no_clear_change'].includes(verdict ?? '')).length
    const subject = found.find(({ by: kind }) => kind === 'topic' || kind === 'prompt')
    return {
      ...{ project: question.project, period: question.range, comparedWith },
      sentences: [
        ...(isPlain
          ? []
          : [`${kindOf(first).title}${by === 'none' ? '' : ` by ${by}`}${only === '' ? '' : `, only ${only}`}.`]),
        ...(missing === undefined ? (page.length === 0 ? ['There are no answers in this period.'] : []) : [missing]),
      ],
      rows: page.map((row) => ({ row, line: lineOf(row, grain !== undefined, dimension) })),
      ...{
        total: isPlain ? rows.length : (rows[0]?.total ?? 0),
        offset,
        narrower: 'narrow it by brand, topic, channel or period',
      },
      notes: [
        ...notes,
        ...(grain === undefined ? [] : ['They are not judged against each other: find_changes does that.']),
        ...(grain === undefined || grain === 'day'
          ? []
          : [`Only ${grain}s that begin in the period are listed, the last one as a whole.`]),
        ...(judged < MANY
          ? []
          : [`Of ${judged} comparisons, about one in 20 is called clear by chance: find_changes corrects for that.`]),
        ...(dimension === 'tag' ? ['A prompt can have several tags: rows overlap and must not be added up.'] : []),
      ],
      link:
        subject === undefined
          ? question.link()
          : question.link('', `/insights/${subject.by as 'topic'}`, { [subject.by]: subject.id }),
    }
  },
})

function chooseBrands({ owns, rivals, brands, own }: Question, asked: readonly string[]): Named[] {
  const words = new Map<string, () => readonly Named[]>([
    ['own', () => (owns.length > 0 ? owns : [own()])],
    ['rivals', () => rivals],
    ['all', () => brands],
  ])
  return [...new Set(asked.flatMap((name) => words.get(name)?.() ?? [find('brand', name, brands)]))]
}

/** Over the whole period, as the headlines of the page. */
async function totals(question: Question, metrics: readonly Metric[], brands: readonly Named[]) {
  const rows: Measured[] = []
  for (const { id: brand_id, name: brand } of brands) {
    question.context.own = text(brand_id)
    const read = await question.read<Measured>('summary')
    if (read.missing !== undefined) return read
    const wanted = read.rows.filter(({ metric, sample }) => metrics.includes(metric) && sample !== null)
    rows.push(...wanted.map((row) => ({ ...row, brand_id, brand })))
  }
  if (metrics.length === 1) rows.sort((a, b) => (b.value ?? -1) - (a.value ?? -1))
  return { rows, missing: undefined }
}

function lineOf(row: Measured, isPeriod: boolean, dimension: string | undefined): string {
  const { metric, brand, is_complete, is_provisional } = row
  const name = row.name ?? (dimension && `(no ${dimension})`)
  const group = name === undefined ? '' : `${isPeriod ? name : quoted(name, TEXT_LENGTH)}, `
  const states = [
    isPeriod && is_complete !== true && 'incomplete',
    isPeriod && is_provisional !== false && 'may still change',
  ]
  const state = states.filter(Boolean).join(', ')
  return `${group}${quoted(brand)}: ${kindOf(metric).title.toLowerCase()} ${numberOf(metric, row)}${state === '' ? '' : `; ${state}`}.${changeOf(metric, row)}`
}
