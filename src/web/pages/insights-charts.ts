import { count } from '../../core/text.ts'
import { type Html, html } from '../html.ts'
import type { Filters } from '../insights/filters.ts'
import {
  changed,
  ENOUGH,
  interval,
  measured,
  percent,
  plain,
  pointsInterval,
  type Verdict,
  verdictFor,
  whole,
} from '../insights/format.ts'
import { lineChart, sparkline } from '../insights/line-chart.ts'
import type { ChartSection, Found, Rows } from '../insights/read-page.ts'
import type { ChartRow } from '../insights/rows.ts'
import { CHART_KINDS, type ChartData, chartData, isDrawable } from '../insights/series.ts'
import { dataTable, name, number, subjectLink, verdictOf, words } from './insights-columns.ts'
import { scrolling } from './layout.ts'

/* The headlines, the charts and the heat map. */

export function chartOf(
  kind: ChartSection,
  { grain, range }: Filters,
  { own, brands }: Found,
  rows: readonly ChartRow[],
): ChartData | undefined {
  const data = chartData(kind, rows, { grain, focus: own?.id, from: range.from, brands })
  return isDrawable(data) ? data : undefined
}

type Tile = Rows['summary']
const sectionOf = (metric: string) => metric.replaceAll('_', '-') as ChartSection

/** The own brand's numbers of the whole range, each with its change, what that is worth, and its sample. */
export function tiles(
  rows: readonly Tile[],
  charts: (section: ChartSection) => ChartData | undefined,
  /** The name of the period before, and how much of it was read if that is not all. */
  previous: string,
): Html {
  return html`<ul class="tiles">${rows.map((row) => {
    const section = sectionOf(row.metric)
    const { title, unit } = CHART_KINDS[section]
    const chart = charts(section)
    return html`<li class="tile" id="tile-${section}"><h3 class="label">${title}</h3>
<p class="value">${measured(row.value, unit)}</p>
<p>${row.value === null ? 'No answer of this range has one.' : verdictOf(summaryVerdict(row), row.change === null ? '' : changed(row.change, unit))}</p>
${chart && sparkline(chart)}
<p class="note">${sampleOf(row)}${before(row, previous)}</p></li>`
  })}</ul>`
}

/** Of a headline. Without an interval a change may be chance, so it is not called clear. */
function summaryVerdict(row: Tile): Verdict {
  if (row.verdict !== null) return verdictFor(row.verdict)
  if (row.change === null || row.previous_sample === null) return verdictFor('new')
  const samples = [row.sample, row.previous_sample, row.answers, row.previous_answers]
  if (samples.some((sample) => (sample ?? 0) < ENOUGH)) return verdictFor('too_few')
  if (changed(row.change, CHART_KINDS[sectionOf(row.metric)].unit).startsWith('0')) return plain('As before')
  // The mark has the direction of the chart: a lower position is higher up.
  const isPosition = row.metric === 'position'
  const isHigher = row.change > 0 !== isPosition
  const [up, down] = isPosition ? ['Named earlier', 'Named later'] : ['Higher', 'Lower']
  return { mark: isHigher ? '▲' : '▼', words: `${isHigher ? up : down}; chance is not ruled out`, tone: 'plain' }
}

function sampleOf(row: Tile): string {
  const { sampleName } = CHART_KINDS[sectionOf(row.metric)]
  const sample = `${row.count === null ? '' : `${whole(row.count)} of `}${whole(row.sample ?? 0)} ${sampleName}`
  return row.low === null ? `${sample}.` : `${sample}: ${interval(row.low, row.high)} with 95 % confidence.`
}

function before({ previous_value, change_low, change_high, metric }: Tile, previous: string): string {
  if (previous_value === null) return ''
  const span =
    change_low === null ? '' : `. 95 % interval of the change: ${pointsInterval(change_low, change_high)} points`
  return ` ${previous}: ${measured(previous_value, CHART_KINDS[sectionOf(metric)].unit)}${span}.`
}

// A longer table is better read as a file.
const MOST_ROWS = 60

export function chart({ grain, print }: Filters, title: string, data: ChartData | undefined): Html {
  if (data === undefined) return html`<p class="empty">No ${grain} of this range has a value.</p>`
  return html`${lineChart(data, print)}${print ? '' : html`${key(data)}${numbers(title, data)}`}`
}

function key({ kind, grain, isComplete, isProvisional, hasMeans, left, series }: ChartData): Html | '' {
  const signs = [
    kind.hasInterval && !hasMeans && series.some(({ isFocus }) => isFocus) && 'Band: 95 % interval.',
    hasMeans && 'Lines: means of seven days. Points: single days of the own brand.',
    isComplete.includes(false) && `Dashed and hollow: the ${grain} is incomplete.`,
    isProvisional.includes(true) && 'Shaded: may still change.',
    left > 0 && `${count(left, 'more brand is', 'more brands are')} in the CSV.`,
  ].filter(Boolean)
  return signs.length === 0 ? '' : html`<p class="note">${signs.join(' ')}</p>`
}

function numbers(title: string, { kind, grain, x, isComplete, isProvisional, series }: ChartData): Html {
  const state = (at: number) => (isProvisional[at] ? 'may still change' : 'final')
  const columns = [
    name<number>(grain, (at) => x[at]!),
    ...series.flatMap(({ name: brand, points, isFocus }) => [
      number<number>(brand, (at) => measured(points[at]?.value ?? null, kind.unit)),
      ...(isFocus && kind.hasInterval
        ? [number<number>('95 % interval', (at) => interval(points[at]?.low ?? null, points[at]?.high ?? null) || '–')]
        : []),
      ...(isFocus ? [number<number>(kind.sampleName, (at) => whole(points[at]?.sample ?? 0))] : []),
    ]),
    words<number>('state', (at) => (isComplete[at] ? state(at) : 'incomplete')),
  ]
  const shown = [...x.keys()].slice(-MOST_ROWS)
  const isCut = x.length > MOST_ROWS
  return html`<details><summary>Numbers</summary>${dataTable(`Numbers of ${title}`, columns, shown)}${isCut && html`<p class="note">The last ${MOST_ROWS}; the CSV has all ${x.length}.</p>`}</details>`
}

const COLOURS = 6

/** A topic or a model of the heat map. */
interface Sum {
  id: string
  name: string
  count: number
  answers: number
}

type Cell = Rows['topics-by-model']
export const isByChannel = (rows: readonly Cell[]) => rows[0]?.model_channel_id !== undefined
const modelOf = (row: Cell) => row.model_channel_id ?? row.model_id ?? ''

/** Where the own brand is strong and where it is not to be seen: topics down, models across. */
export function heatMap(filters: Filters, rows: readonly Cell[]): Html {
  const { print } = filters
  const topics = summed(rows, (row) => [row.topic_id ?? '', row.topic])
  const models = summed(rows, (row) => [modelOf(row), row.model ?? '(no model)'])
  const shownTopics = topics.slice(0, print ? 8 : 15)
  const shownModels = models.slice(0, print ? 5 : 12)
  const steps = stepsOf(rows)
  const kind = isByChannel(rows) ? 'channel' : 'model'
  const link = (what: 'topic' | 'model' | 'channel', { id, name: text }: Sum) =>
    id === '' ? text : subjectLink(filters, `/insights/${what}`, { [what]: id }, text)
  const cells = new Map(rows.map((row) => [`${row.topic_id ?? ''}\n${modelOf(row)}`, row]))
  const table = html`<table class="heat"><thead><tr><th scope="col">topic</th><th scope="col" class="n">all ${kind}s</th>${shownModels.map((model) => html`<th scope="col" class="n">${link(kind, model)}</th>`)}</tr></thead>
<tbody>${shownTopics.map(
    (
      topic,
    ) => html`<tr><th scope="row">${link('topic', topic)}</th>${total(topic)}${shownModels.map((model) => cell(cells.get(`${topic.id}\n${model.id}`), steps, filters))}</tr>
`,
  )}</tbody>
<tfoot><tr><th scope="row">all topics</th>${[totalOf(topics), ...shownModels].map(total)}</tr></tfoot></table>`
  const left = [
    topics.length > shownTopics.length && count(topics.length - shownTopics.length, 'more topic'),
    models.length > shownModels.length && count(models.length - shownModels.length, 'more model'),
  ].filter(Boolean)
  return html`${scrolling('Visibility by topic and model', table)}
<p class="note scale"><span>The number of answers is below each share; hatched: fewer than ${ENOUGH}.</span> ${steps.map((step, index) => html`<span class="step heat-${colourOf(index, steps)}">from ${percent(step)}</span>`)}</p>
${left.length > 0 && html`<p class="note">${left.join(', ')} ${print ? 'are not shown' : 'in the CSV'}.</p>`}`
}

/** The lower bounds of the steps of colour: each step has as many cells with enough answers as the others. */
function stepsOf(rows: readonly Cell[]): number[] {
  const sure = rows.filter(({ answers }) => (answers ?? 0) >= ENOUGH)
  const shares = (sure.length > 0 ? sure : rows).map(({ visibility }) => visibility ?? 0).sort((a, b) => a - b)
  const bounds = Array.from({ length: COLOURS }, (_, index) => shares[Math.floor((index * shares.length) / COLOURS)]!)
  return [...new Set(bounds.map((bound) => Math.floor(bound * 1000) / 1000))]
}

/** If there are fewer steps than colours, they are the outer ones. */
const colourOf = (index: number, steps: readonly number[]) =>
  steps.length === 1 ? 2 : Math.round((index * (COLOURS - 1)) / (steps.length - 1))

/** Sums by a key, the highest share first. Counts and answers add up over topics and models: a prompt has one topic. */
function summed(rows: readonly Cell[], keyOf: (row: Cell) => [id: string, name: string]): Sum[] {
  const sums = new Map<string, Sum>()
  for (const row of rows) {
    const [id, name] = keyOf(row)
    const { count, answers } = sums.get(id) ?? { count: 0, answers: 0 }
    sums.set(id, { id, name, count: count + (row.visibility_count ?? 0), answers: answers + (row.answers ?? 0) })
  }
  return [...sums.values()].sort((a, b) => b.count / b.answers - a.count / a.answers)
}

function totalOf(parts: readonly Sum[]) {
  const sum = (column: 'count' | 'answers') => parts.reduce((all, part) => all + part[column], 0)
  return { count: sum('count'), answers: sum('answers') }
}

const total = (sum: Pick<Sum, 'count' | 'answers'>) =>
  html`<td class="n total">${percent(sum.count / sum.answers)}<small>${whole(sum.answers)}</small></td>`

function cell(row: Cell | undefined, steps: readonly number[], filters: Filters): Html {
  if (row === undefined) return html`<td class="n none">–</td>`
  const index = steps.findLastIndex((bound) => (row.visibility ?? 0) >= bound)
  const { mark, words: verdict } = verdictFor(row.verdict)
  const share = percent(row.visibility)
  const was =
    row.previous_visibility === null ? verdict : `${percent(row.previous_visibility)} before: ${verdict.toLowerCase()}`
  const tip = `${row.topic}, ${row.model ?? '(no model)'}: ${share}, ${interval(row.visibility_low, row.visibility_high)}, ${whole(row.visibility_count)} of ${whole(row.answers)} answers; ${was}`
  const subject = { topic: row.topic_id ?? '', [isByChannel([row]) ? 'channel' : 'model']: modelOf(row) }
  const isLinked = row.topic_id !== null && modelOf(row) !== ''
  const few = (row.answers ?? 0) < ENOUGH && ' few'
  return html`<td class="n heat-${colourOf(Math.max(0, index), steps)}${few}" title="${tip}">${isLinked ? subjectLink(filters, '/insights/topic', subject, share) : share}${mark !== '=' && html` <span class="mark">${mark}</span>`}<small>${whole(row.answers)}</small></td>`
}
