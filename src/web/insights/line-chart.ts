import { type Day, dayNumber } from '../../core/day.ts'
import { clip } from '../../core/text.ts'
import { type Html, html, jsonFor } from '../html.ts'
import { shortDay } from '../pages/layout.ts'
import { interval, measured, type Unit, whole } from './format.ts'
import { adjoin, type ChartData, type Series } from './series.ts'

/*
 * Charts as SVG, drawn here, so that they are there without any script and on paper. Lines are stretched to the width of
 * the page; texts and points are placed at percentages, so that they keep their size on every screen.
 */

const SIZE = 1000
// In percent of the height: what a label needs, on the screen and in a smaller chart on paper.
const LABEL_ROOM = 7.5
const LABEL_ROOM_IN_PRINT = 11
const LABEL_LENGTH = 14
// A smaller share of the width has no room for its name.
const LEAST_LABELLED = 0.3
// Beyond this, points would touch each other.
const MOST_POINTS = 35

/** Where each x and a value lie in the chart, as shares of its width and height from the top left. */
interface Frame {
  across: number[]
  down(value: number): number
}

export function lineChart(data: ChartData, print = false): Html {
  const { kind, series, x } = data
  const { ticks, down } = axisOf(valuesOf(data), kind.unit)
  const frame = { across: acrossOf(x), down }
  const quietFirst = [...series].reverse()
  return html`<div class="chart-box"><div class="plot" role="img" aria-label="${describe(data)}">
<svg class="y-axis" aria-hidden="true">${ticks.map((tick) => html`<text x="100%" y="${percentOf(down(tick))}" dy="0.32em" text-anchor="end">${measured(tick, kind.unit)}</text>`)}</svg>
<div class="area"><svg aria-hidden="true">
${ticks.map((tick) => html`<line class="grid" x1="0" x2="100%" y1="${percentOf(down(tick))}" y2="${percentOf(down(tick))}"/>`)}
${stretched(html`${provisional(data, frame)}${quietFirst.map((one) => lines(data, one, frame))}`)}
${quietFirst.map((one) => dots(data, one, frame))}
${beginning(data, frame)}
</svg></div>
<svg class="ends" aria-hidden="true">${endLabels(data, frame, print ? LABEL_ROOM_IN_PRINT : LABEL_ROOM)}</svg>
<svg class="x-axis" aria-hidden="true">${dayLabels(x, frame)}</svg>
</div>${series.length < 2 || print ? '' : legend(series)}<script type="application/json">${jsonFor(numbersOf(data, frame))}</script></div>`
}

const stretched = (shapes: Html) =>
  html`<svg class="lines" viewBox="0 0 ${SIZE} ${SIZE}" preserveAspectRatio="none" width="100%" height="100%">${shapes}</svg>`

/** A script makes each name a button that brings its line out. */
function legend(series: readonly Series[]): Html {
  return html`<ul class="legend" aria-label="Brands">${series.map((one) => html`<li class="c${one.colour}" data-series="${one.colour}"><span class="name">${one.name}</span></li>`)}</ul>`
}

/** The values that the axis must include. A day that has just begun is ignored: it would squeeze the others together. */
function valuesOf({ series, isComplete, hasMeans }: ChartData): number[] {
  const within = (wanted: readonly boolean[]) =>
    series
      .flatMap(({ points, isFocus }) =>
        points
          .filter((_, index) => wanted[index])
          .flatMap((point) => (isFocus && !hasMeans ? [point?.value, point?.low, point?.high] : [point?.value])),
      )
      .filter((value) => typeof value === 'number')
  const complete = within(isComplete)
  return complete.length > 0 ? complete : within(isComplete.map(() => true))
}

const percentOf = (share: number) => `${Number((share * 100).toFixed(1))}%`

function acrossOf(x: readonly Day[]): number[] {
  const [first, last] = [dayNumber(x[0]!), dayNumber(x.at(-1)!)]
  return x.map((day) => (last === first ? 0.5 : (dayNumber(day) - first) / (last - first)))
}

/** Values beyond the axis are drawn at its edge. */
const place = ({ across, down }: Frame, index: number, value: number) =>
  `${Math.round(across[index]! * SIZE)} ${Math.round(Math.max(0, Math.min(1, down(value))) * SIZE)}`

/** The paths through values that adjoin: between complete neighbours, and those that touch an incomplete one. */
function pathsOf(data: ChartData, values: readonly (number | null)[], frame: Frame): { whole: string; open: string } {
  const paths = { whole: '', open: '' }
  let before: keyof typeof paths | undefined
  for (let index = 1; index < values.length; index++) {
    const [from, to] = [values[index - 1]!, values[index]!]
    const isOpen = !data.isComplete[index - 1] || !data.isComplete[index]
    const kind = from === null || to === null || !adjoin(data, index) ? undefined : isOpen ? 'open' : 'whole'
    if (kind !== undefined)
      paths[kind] += `${kind === before ? '' : `M${place(frame, index - 1, from)}`}L${place(frame, index, to)}`
    before = kind
  }
  return paths
}

/** The line of a brand, dashed where an end of it is incomplete, and the band of the own brand's interval. */
function lines(data: ChartData, series: Series, frame: Frame): Html {
  const { whole: closed, open } = pathsOf(data, series.line, frame)
  const band = series.isFocus && !data.hasMeans ? bandOf(data, series, frame) : ''
  return html`<g class="c${series.colour}" data-series="${series.colour}">${band !== '' && html`<path class="band" d="${band}"/>`}${closed !== '' && html`<path d="${closed}"/>`}${open !== '' && html`<path class="open" d="${open}"/>`}</g>`
}

function bandOf(data: ChartData, { points }: Series, frame: Frame): string {
  return points
    .map((point, index) => {
      const before = points[index - 1]
      if (point?.low == null || before?.low == null || !adjoin(data, index)) return ''
      const upper = `${place(frame, index - 1, before.high!)}L${place(frame, index, point.high!)}`
      return `M${upper}L${place(frame, index, point.low)}L${place(frame, index - 1, before.low)}Z`
    })
    .join('')
}

function provisional({ isProvisional, x }: ChartData, { across }: Frame): Html | '' {
  if (x.length < 2 || !isProvisional.includes(true)) return ''
  const half = (across[1]! - across[0]!) / 2
  const areas = across.map((share, index) => {
    const [from, to] = [Math.max(0, share - half), Math.min(1, share + half)].map((end) => Math.round(end * SIZE))
    return isProvisional[index] ? `M${from} 0H${to}V${SIZE}H${from}Z` : ''
  })
  return html`<path class="provisional" d="${areas.join('')}"/>`
}

function beginning({ start, x }: ChartData, { across }: Frame): Html | '' {
  if (start === 0 || start >= x.length) return ''
  const share = (across[start - 1]! + across[start]!) / 2
  const at = percentOf(share)
  const label = html`<text class="before" x="${at}" y="0" dx="-6" dy="0.9em" text-anchor="end">period before</text>`
  return html`<line class="start" x1="${at}" x2="${at}" y1="0" y2="100%"/>${share < LEAST_LABELLED ? '' : label}`
}

/** Points of the own brand, and those of any brand that no line reaches. Hollow where days are missing. */
function dots(data: ChartData, { isFocus, points, line, colour }: Series, { across, down }: Frame): Html {
  const { x, isComplete, hasMeans } = data
  const values = isFocus ? points.map((point) => point?.value ?? null) : line
  let radius = isFocus ? 3.5 : 2.5
  if (hasMeans) radius = 2
  const isOnLine = (index: number) => adjoin(data, index) && values[index - 1] !== null && values[index] !== null
  const circles = values.map((value, index) => {
    if (value === null) return ''
    const isReached = isOnLine(index) || (index + 1 < x.length && isOnLine(index + 1))
    const isWanted = hasMeans || x.length <= MOST_POINTS || !isComplete[index] || index === x.length - 1
    if (isReached && !(isFocus && isWanted)) return ''
    const y = percentOf(Math.max(0, Math.min(1, down(value))))
    return html`<circle${isComplete[index] ? '' : html` class="open"`} cx="${percentOf(across[index]!)}" cy="${y}" r="${radius}"/>`
  })
  return html`<g class="c${colour}${hasMeans ? ' days' : ''}" data-series="${colour}">${circles}</g>`
}

function endsOf({ series, isComplete }: ChartData) {
  return series.flatMap(({ name, colour, line }) => {
    const complete = line.findLastIndex((value, index) => value !== null && isComplete[index])
    const index = complete >= 0 ? complete : line.findLastIndex((value) => value !== null)
    return index < 0 ? [] : [{ name, colour, index, value: line[index]! }]
  })
}

/** The name and the last value of each brand beside the end of its line, moved apart if they would touch. */
function endLabels(data: ChartData, { down }: Frame, room: number): Html[] {
  const { kind, x, grain, hasMeans } = data
  const labels = endsOf(data).map((end) => ({ ...end, at: down(end.value) * 100 }))
  if (labels.length === 0) return []
  labels.sort((a, b) => a.at - b.at)
  for (let index = 1; index < labels.length; index++)
    labels[index]!.at = Math.max(labels[index]!.at, labels[index - 1]!.at + room)
  let bottom = 100
  for (const label of labels.reverse()) {
    label.at = Math.min(label.at, bottom)
    bottom = label.at - room
  }
  const heading = grain === 'week' ? 'Week of ' : hasMeans ? '7 days to ' : ''
  const when = shortDay(x[Math.max(...labels.map(({ index }) => index))]!)
  const texts = labels.map(({ name, colour, value, at }) => {
    const y = percentOf(at / 100)
    return html`<g class="c${colour}" data-series="${colour}"><circle cx="14" cy="${y}" r="3"/><text x="22" y="${y}" dy="0.32em">${short(name)}<tspan class="value"> ${measured(value, kind.unit)}</tspan></text></g>`
  })
  return [html`<text class="when" x="11" y="0" dy="-0.8em">${heading}${when}</text>`, ...texts]
}

function short(name: string): string {
  const letters = [...name]
  return letters.length <= LABEL_LENGTH ? name : `${letters.slice(0, LABEL_LENGTH - 1).join('')}…`
}

function dayLabels(x: readonly Day[], { across }: Frame): Html[] {
  const last = x.length - 1
  const spansYears = x[0]!.slice(0, 4) !== x[last]!.slice(0, 4)
  const middle = across.findIndex((share) => share >= 0.5)
  const hasMiddle = last > 0 && across[middle]! > 0.35 && across[middle]! < 0.65
  const label = (index: number, anchor: string, name = 'day') =>
    html`<text class="${name}" x="${percentOf(across[index]!)}" y="1em" text-anchor="${anchor}">${shortDay(x[index]!, spansYears)}</text>`
  if (last === 0) return [label(0, 'middle')]
  return [label(0, 'start'), ...(hasMiddle ? [label(middle, 'middle', 'day between')] : []), label(last, 'end')]
}

function describe(data: ChartData): string {
  const { kind, grain, x } = data
  const ends = endsOf(data).map(({ name, value }) => `${clip(name, 60)} ${measured(value, kind.unit)}`)
  return `${kind.title} by ${grain}, ${x[0]} to ${x.at(-1)}. Last complete ${grain}: ${ends.join(', ')}. The numbers are in the table below.`
}

/** The texts of the tooltips. The script shows them. */
function numbersOf({ kind, x, isComplete, isProvisional, hasMeans, series }: ChartData, { across, down }: Frame) {
  const details = ({ points, line }: Series) =>
    points.map((point, index) => {
      if (point === undefined) return ''
      const mean = hasMeans && line[index] !== null ? `mean of 7 days ${measured(line[index]!, kind.unit)}` : ''
      const sample = `${whole(point.sample)} ${kind.sampleName}`
      return [interval(point.low, point.high, kind.unit), sample, mean].filter(Boolean).join(', ')
    })
  return {
    x: x.map((day) => shortDay(day, true)),
    across: across.map((share) => Number(share.toFixed(4))),
    notes: x.map((_, index) => (!isComplete[index] ? 'incomplete' : isProvisional[index] ? 'may still change' : '')),
    series: series.map((one) => ({
      name: one.name,
      colour: one.colour,
      own: one.isFocus,
      down: one.points.map((point) => (point?.value == null ? null : Number(down(point.value).toFixed(4)))),
      texts: one.points.map((point) => (point === undefined ? '' : measured(point.value, kind.unit))),
      ...(one.isFocus && { details: details(one) }),
    })),
  }
}

const SPARK_ROOM = 0.08

/** The own brand's line alone, small, without an axis, as far as it is complete; the last value has a point. */
export function sparkline(data: ChartData): Html | '' {
  const points = data.series.find(({ isFocus }) => isFocus)?.points ?? []
  const values = points.map((point, index) => (data.isComplete[index] ? (point?.value ?? null) : null))
  const known = values.filter((value) => value !== null)
  if (known.length < 2) return ''
  const [lowest, highest] = [Math.min(...known), Math.max(...known)]
  const down = (value: number) => {
    const share = highest === lowest ? 0.5 : (value - lowest) / (highest - lowest)
    return (data.kind.unit === 'position' ? share : 1 - share) * (1 - 2 * SPARK_ROOM) + SPARK_ROOM
  }
  const last = values.findLastIndex((value) => value !== null)
  const ends = acrossOf(
    data.x.slice(
      values.findIndex((value) => value !== null),
      last + 1,
    ),
  )
  const across = [...data.x.slice(0, last + 1 - ends.length).map(() => 0), ...ends]
  const path = pathsOf(data, values, { across, down }).whole
  return html`<svg class="spark c0" aria-hidden="true">${stretched(html`<path d="${path}"/>`)}<circle cx="100%" cy="${percentOf(down(values[last]!))}" r="3"/></svg>`
}

const STEPS = [1, 2, 2.5, 5, 10]
const TICKS = 4

/** Shares begin at zero, positions at 1, which is on top; a score has a scale of its own. */
function axisOf(values: readonly number[], unit: Unit) {
  const [lowest, highest] = [Math.min(...values), Math.max(...values)]
  const room = Math.max((highest - lowest) * 0.15, Math.abs(highest) * 0.02, 0.01)
  const [min, max] = {
    share: [0, Math.min(1, Math.max(highest, 0.02))] as const,
    position: [1, Math.max(highest, 2)] as const,
    score: [lowest - room, highest + room] as const,
  }[unit]
  const rough = (max - min) / TICKS
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = power * STEPS.find((one) => one * power >= rough * 0.999)!
  const from = unit === 'position' ? 1 : Math.floor(min / step + 1e-9) * step
  const end = from + Math.ceil((max - from) / step - 1e-9) * step
  const to = unit === 'share' ? Math.min(1, end) : end
  const count = Math.floor((to - from) / step + 1e-9)
  const ticks = Array.from({ length: count + 1 }, (_, index) => Number((from + index * step).toPrecision(12)))
  const share = (value: number) => (value - from) / (to - from)
  return { ticks, down: (value: number) => (unit === 'position' ? share(value) : 1 - share(value)) }
}
