import { count } from '../../core/text.ts'
import { type Html, html } from '../html.ts'
import { address, COMPARISONS, type Filters, type PagePath, type Subject, subjectAddress } from '../insights/filters.ts'
import {
  changed,
  ENOUGH,
  measured,
  percent,
  plain,
  points,
  type Verdict,
  verdictFor,
  whole,
} from '../insights/format.ts'
import { lineChart, sparkline } from '../insights/line-chart.ts'
import type { AnySection, ChartRow, ChartSection, HeatRow, Read, SummaryRow } from '../insights/read-insights.ts'
import { CHART_KINDS, type ChartData } from '../insights/series.ts'
import { scrolling } from './layout.ts'

const sectionOf = (metric: SummaryRow['metric']) => metric.replaceAll('_', '-') as ChartSection

/** The own brand's numbers of the whole range, each with its change, what that is worth, and its sample. */
export function tiles(
  rows: readonly SummaryRow[],
  charts: Record<ChartSection, ChartData | undefined>,
  /** What the period before is called: with how much of it there is, if that is not all. */
  previous: string,
): Html {
  return html`<ul class="tiles">${rows.map((row) => {
    const section = sectionOf(row.metric)
    const { title, unit } = CHART_KINDS[section]
    const chart = charts[section]
    return html`<li class="tile" id="tile-${section}"><h3 class="label">${title}</h3>
<p class="value">${measured(row.value, unit)}</p>
<p>${row.value === null ? 'No answer of this range has one.' : verdictOf(summaryVerdict(row), row.change === null ? '' : changed(row.change, unit))}</p>
${chart === undefined ? '' : sparkline(chart)}
<p class="note">${sampleOf(row)}${before(row, previous)}</p></li>`
  })}</ul>`
}

/** Of a headline. Without an interval a change may be chance, so it is not called clear. */
function summaryVerdict(row: SummaryRow): Verdict {
  if (row.verdict !== null) return verdictFor(row.verdict)
  if (row.change === null || row.previous_sample === null) return verdictFor('new')
  const samples = [row.sample, row.previous_sample, row.answers, row.previous_answers]
  if (samples.some((sample) => (sample ?? 0) < ENOUGH)) return verdictFor('too_few')
  if (row.change === 0) return plain('As before')
  // The mark has the direction of the chart: a lower position is higher up.
  const higher = row.metric === 'position' ? row.change < 0 : row.change > 0
  const words = row.metric === 'position' ? (higher ? 'Named earlier' : 'Named later') : higher ? 'Higher' : 'Lower'
  return { mark: higher ? '▲' : '▼', words: `${words}; chance is not ruled out`, tone: 'plain' }
}

function sampleOf(row: SummaryRow): string {
  const { name } = CHART_KINDS[sectionOf(row.metric)].sample
  const sample = `${row.count === null ? '' : `${whole(row.count)} of `}${whole(row.sample ?? 0)} ${name}`
  const range = interval(row.low, row.high)
  return range === '' ? `${sample}.` : `${sample}: ${range} with 95 % confidence.`
}

function before({ previous_value, change_low, change_high, metric }: SummaryRow, previous: string): string {
  if (previous_value === null) return ''
  const { unit } = CHART_KINDS[sectionOf(metric)]
  const span =
    change_low === null || change_high === null
      ? ''
      : `. 95 % interval of the change: ${points(change_low).replace(' points', '')} to ${points(change_high)}`
  return ` ${previous}: ${measured(previous_value, unit)}${span}.`
}

// A longer table is better read as a file.
const MOST_ROWS = 60

export function chartPanel(filters: Filters, section: ChartSection, read: Read<ChartRow>, data?: ChartData): Html {
  const { title, about } = CHART_KINDS[section]
  return panel(filters, { id: section, title, about, read, wide: false, body: chart(filters, title, data) })
}

/** A chart with what its signs mean and its numbers. */
export function chart(filters: Filters, title: string, data: ChartData | undefined): Html {
  return data === undefined
    ? html`<p class="empty">No ${filters.grain} of this range has a value.</p>`
    : html`${lineChart(data, filters.print)}${filters.print ? '' : html`${key(data)}${numbers(title, data)}`}`
}

/** What the signs in a chart mean, those that occur in it. */
function key({ kind, grain, isComplete, isProvisional, left, series }: ChartData): Html | '' {
  const hasMeans = series[0]?.means !== undefined
  const hasBand = kind.interval !== undefined && !hasMeans && series.some(({ isFocus }) => isFocus)
  const signs = [
    hasBand && 'Band: 95 % interval.',
    hasMeans && 'Lines: means of seven days. Points: single days of the own brand.',
    isComplete.includes(false) && `Dashed and hollow: the ${grain} is incomplete.`,
    isProvisional.includes(true) && 'Shaded: may still change.',
    left > 0 && `${left} more ${left === 1 ? 'brand is' : 'brands are'} in the CSV.`,
  ].filter(Boolean)
  return signs.length === 0 ? '' : html`<p class="note">${signs.join(' ')}</p>`
}

function numbers(title: string, { kind, grain, x, isComplete, isProvisional, series }: ChartData): Html {
  const shown = x.map((_, index) => index).slice(-MOST_ROWS)
  const table = html`<table class="table"><thead><tr><th scope="col">${grain}</th>${series.map(({ name, isFocus }) => html`<th scope="col" class="n">${name}</th>${isFocus && kind.interval !== undefined ? html`<th scope="col" class="n">95 % interval</th>` : ''}${isFocus ? html`<th scope="col" class="n">${kind.sample.name}</th>` : ''}`)}<th scope="col">state</th></tr></thead>
<tbody>${shown.map(
    (at) =>
      html`<tr><th scope="row">${x[at]}</th>${series.map(({ points, isFocus }) => {
        const point = points[at]
        return html`<td class="n">${measured(point?.value ?? null, kind.unit)}</td>${isFocus && kind.interval !== undefined ? html`<td class="n">${point?.low == null ? '–' : `${measured(point.low, kind.unit)} to ${measured(point.high, kind.unit)}`}</td>` : ''}${isFocus ? html`<td class="n">${whole(point?.sample ?? 0)}</td>` : ''}`
      })}<td>${isComplete[at] ? (isProvisional[at] ? 'may still change' : 'final') : 'incomplete'}</td></tr>
`,
  )}</tbody></table>`
  const cut = x.length - shown.length
  return html`<details><summary>Numbers</summary>${scrolling(`Numbers of ${title}`, table)}${cut > 0 ? html`<p class="note">The last ${MOST_ROWS}; the CSV has all ${x.length}.</p>` : ''}</details>`
}

const COLOURS = 6
const MOST_TOPICS = 15
const MOST_TOPICS_IN_PRINT = 8
const MOST_MODELS = 12
const MOST_MODELS_IN_PRINT = 5
interface Sum {
  name: string
  count: number
  answers: number
}

/** Where the own brand is strong and where it is not to be seen: topics down, models across. */
export function heatPanel(filters: Filters, read: Read<HeatRow>, own: string): Html {
  return panel(filters, {
    id: 'topics-by-model',
    title: isByChannel(read.rows) ? 'Topics by channel' : 'Topics by model',
    about: `Share of answers that name ${own}.${filters.comparison === 'none' ? '' : ` ▲ and ▼ mark clear changes against ${COMPARISONS[filters.comparison]}.`}`,
    read,
    body:
      read.rows.length === 0
        ? html`<p class="empty">No topic had an answer in this range.</p>`
        : map(read.rows, filters),
  })
}

const isByChannel = (rows: readonly HeatRow[]) => rows[0]?.model_channel_id !== undefined
const modelOf = (row: HeatRow) => row.model_channel_id ?? row.model_id ?? ''

function map(rows: readonly HeatRow[], filters: Filters): Html {
  const topics = summed(rows, (row) => [row.topic_id ?? '', row.topic])
  const models = summed(rows, (row) => [modelOf(row), row.model ?? '(no model)'])
  const shownTopics = [...topics].slice(0, filters.print ? MOST_TOPICS_IN_PRINT : MOST_TOPICS)
  const shownModels = [...models].slice(0, filters.print ? MOST_MODELS_IN_PRINT : MOST_MODELS)
  const steps = stepsOf(rows)
  const link = (path: PagePath, subject: Subject, name: string) =>
    filters.print ? html`${name}` : html`<a href="${subjectAddress(filters, path, subject)}">${name}</a>`
  const topicLink = (id: string, name: string) =>
    id === '' ? html`${name}` : link('/insights/topic', { topic: id }, name)
  const modelLink = (id: string, name: string) =>
    id === ''
      ? html`${name}`
      : isByChannel(rows)
        ? link('/insights/channel', { channel: id }, name)
        : link('/insights/model', { model: id }, name)
  const cells = new Map(rows.map((row) => [`${row.topic_id ?? ''}\n${modelOf(row)}`, row]))
  const left = [
    ...(topics.size > shownTopics.length ? [count(topics.size - shownTopics.length, 'more topic')] : []),
    ...(models.size > shownModels.length ? [count(models.size - shownModels.length, 'more model')] : []),
  ]
  const table = html`<table class="heat"><thead><tr><th scope="col">topic</th><th scope="col" class="n">${isByChannel(rows) ? 'all channels' : 'all models'}</th>${shownModels.map(([id, { name }]) => html`<th scope="col" class="n">${modelLink(id, name)}</th>`)}</tr></thead>
<tbody>${shownTopics.map(
    ([
      topicId,
      topic,
    ]) => html`<tr><th scope="row">${topicLink(topicId, topic.name)}</th>${total(topic)}${shownModels.map(([modelId]) => cell(cells.get(`${topicId}\n${modelId}`), steps, filters))}</tr>
`,
  )}</tbody>
<tfoot><tr><th scope="row">all topics</th>${total(sumOf('', [...topics.values()]))}${shownModels.map(([, model]) => total(model))}</tr></tfoot></table>`
  return html`${scrolling('Visibility by topic and model', table)}
<p class="note scale"><span>The number of answers is below each share; hatched: fewer than ${ENOUGH}.</span> ${steps.map((step, index) => html`<span class="step heat-${colourOf(index, steps)}">from ${percent(step)}</span>`)}</p>
${left.length === 0 ? '' : html`<p class="note">${left.join(', ')} ${filters.print ? 'are not shown' : 'in the CSV'}.</p>`}`
}

/** The lower bounds of the steps of colour: each step has as many cells with enough answers as the others. */
function stepsOf(rows: readonly HeatRow[]): number[] {
  const sure = rows.filter(({ answers }) => answers >= ENOUGH)
  const shares = (sure.length > 0 ? sure : rows).map(({ visibility }) => visibility).sort((a, b) => a - b)
  const bounds = Array.from({ length: COLOURS }, (_, index) => shares[Math.floor((index * shares.length) / COLOURS)]!)
  return [...new Set(bounds.map((bound) => Math.floor(bound * 1000) / 1000))]
}

/** If there are fewer steps than colours, they are the outer ones. */
const colourOf = (index: number, steps: readonly number[]) =>
  steps.length === 1 ? 2 : Math.round((index * (COLOURS - 1)) / (steps.length - 1))

/** Sums by a key, the highest share first. Counts and answers add up over topics and models: a prompt has one topic. */
function summed(rows: readonly HeatRow[], keyOf: (row: HeatRow) => [key: string, name: string]): Map<string, Sum> {
  const groups = new Map<string, Sum>()
  for (const row of rows) {
    const [key, name] = keyOf(row)
    const group = groups.get(key) ?? { name, count: 0, answers: 0 }
    group.count += row.visibility_count
    group.answers += row.answers
    groups.set(key, group)
  }
  return new Map([...groups].sort(([, a], [, b]) => b.count / b.answers - a.count / a.answers))
}

function sumOf(name: string, sums: readonly Sum[]): Sum {
  return {
    name,
    count: sums.reduce((total, sum) => total + sum.count, 0),
    answers: sums.reduce((total, sum) => total + sum.answers, 0),
  }
}

const total = ({ count, answers }: Sum) =>
  html`<td class="n total">${percent(count / answers)}<small>${whole(answers)}</small></td>`

function cell(row: HeatRow | undefined, steps: readonly number[], filters: Filters): Html {
  if (row === undefined) return html`<td class="n none">–</td>`
  const step = colourOf(
    Math.max(
      0,
      steps.findLastIndex((bound) => row.visibility >= bound),
    ),
    steps,
  )
  const { mark, words } = verdictFor(row.verdict)
  const before =
    row.previous_visibility === null ? words : `${percent(row.previous_visibility)} before: ${words.toLowerCase()}`
  const tip = `${row.topic}, ${row.model ?? '(no model)'}: ${percent(row.visibility)}, ${interval(row.visibility_low, row.visibility_high)}, ${whole(row.visibility_count)} of ${whole(row.answers)} answers; ${before}`
  const isLinked = !filters.print && row.topic_id !== null && modelOf(row) !== ''
  const subject = { topic: row.topic_id ?? '', [isByChannel([row]) ? 'channel' : 'model']: modelOf(row) }
  const share = isLinked
    ? html`<a href="${subjectAddress(filters, '/insights/topic', subject)}">${percent(row.visibility)}</a>`
    : percent(row.visibility)
  return html`<td class="n heat-${step}${row.answers < ENOUGH ? ' few' : ''}" title="${tip}">${share}${mark === '=' ? '' : html` <span class="mark">${mark}</span>`}<small>${whole(row.answers)}</small></td>`
}

export interface Panel {
  id: AnySection
  title: string
  about: Html | string
  read: Pick<Read<unknown>, 'sql' | 'missing'>
  /** Links to other views of the section; they stay if there is nothing to show. */
  links?: Html | ''
  body: Html | ''
  wide?: boolean
}

/** The frame of a section: its title, a link to it, its rows as a file, and its SQL. On paper only the numbers are left. */
export function panel(filters: Filters, { id, title, about, read, links = '', body, wide = true }: Panel): Html {
  return html`<section class="card${wide ? ' wide' : ''}" id="${id}" aria-labelledby="${id}-title">
<header><h2 id="${id}-title">${title}</h2>${filters.print || read.missing !== undefined ? '' : actions(filters, id, title)}</header>
<p class="about">${about}</p>
${links}${read.missing === undefined ? body : html`<p class="empty">${read.missing}</p>`}
${filters.print || read.missing !== undefined ? '' : sqlOf(title, read.sql)}</section>`
}

function actions(filters: Filters, id: AnySection, title: string): Html {
  return html`<p class="actions"><a href="${address(filters, filters.path, id)}" aria-label="Link to ${title}, with these filters">Link</a><a href="${address(filters, `${filters.path}/${id}.csv`)}" aria-label="${title} as CSV" download>CSV</a></p>`
}

export function sqlOf(title: string, sql: string, summary = 'SQL'): Html {
  return html`<details class="sql"><summary>${summary}</summary><pre tabindex="0" role="region" aria-label="SQL of ${title}"><code>${sql}</code></pre></details>`
}

export function verdictOf({ mark, words, tone }: Verdict, change = ''): Html {
  return html`<span class="judged ${tone}">${mark === '=' ? '' : html`<span aria-hidden="true">${mark}</span> `}${change === '' ? '' : html`<span class="change">${change}</span> `}<span class="words">${words}</span></span>`
}

export const interval = (low: number | null, high: number | null) =>
  low === null || high === null ? '' : `${percent(low)} to ${percent(high)}`
