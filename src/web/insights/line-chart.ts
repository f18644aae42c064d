import { type Day, dayNumber } from '../../core/day.ts'
import { clip } from '../../core/text.ts'
import { type Html, html, jsonFor } from '../html.ts'
import { shortDay } from '../pages/layout.ts'
import { measured, type Unit, whole } from './format.ts'
import { adjoin, type ChartData, lineValue, type Point, type Series } from './series.ts'

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

type Coordinates = [x: number, y: number]

export function lineChart(data: ChartData, print = false): Html {
  const { kind, series, x } = data
  const axis = axisOf(valuesOf(data), kind.unit)
  const across = acrossOf(data)
  const quietFirst = [...series].reverse()
  return html`<div class="chart-box"><div class="plot" role="img" aria-label="${describe(data)}">
<svg class="y-axis" aria-hidden="true">${axis.ticks.map((tick) => html`<text x="100%" y="${percentOf(axis.down(tick))}" dy="0.32em" text-anchor="end">${measured(tick, kind.unit)}</text>`)}</svg>
<div class="area"><svg aria-hidden="true">
${axis.ticks.map((tick) => html`<line class="grid" x1="0" x2="100%" y1="${percentOf(axis.down(tick))}" y2="${percentOf(axis.down(tick))}"/>`)}
<svg class="lines" viewBox="0 0 ${SIZE} ${SIZE}" preserveAspectRatio="none" width="100%" height="100%">
${provisional(data, across)}
${quietFirst.map((one) => lines(data, one, axis, across))}
</svg>
${quietFirst.map((one) => dots(data, one, axis, across))}
${beginning(data, across)}
</svg></div>
<svg class="ends" aria-hidden="true">${endLabels(data, axis, print ? LABEL_ROOM_IN_PRINT : LABEL_ROOM)}</svg>
<svg class="x-axis" aria-hidden="true">${dayLabels(x, across)}</svg>
</div>${series.length < 2 || print ? '' : legend(series)}<script type="application/json">${jsonFor(numbersOf(data, axis, across))}</script></div>`
}

/** A script makes each name a button that brings its line out. */
function legend(series: readonly Series[]): Html {
  return html`<ul class="legend" aria-label="Brands">${series.map((one) => html`<li class="c${one.colour}" data-series="${one.colour}"><span class="name">${one.name}</span></li>`)}</ul>`
}

/** What the axis must hold. A day that has just begun may be anywhere, and must not squeeze all others together. */
function valuesOf({ series, isComplete }: ChartData): number[] {
  const isByMean = series[0]?.means !== undefined
  const within = (wanted: (index: number) => boolean) =>
    series.flatMap(({ points, isFocus }) =>
      points.flatMap((point, index) =>
        point === undefined || !wanted(index)
          ? []
          : [point.value, ...(isFocus && !isByMean ? [point.low, point.high] : [])].filter((value) => value !== null),
      ),
    )
  const complete = within((index) => isComplete[index]!)
  return complete.length > 0 ? complete : within(() => true)
}

const percentOf = (share: number) => `${Number((share * 100).toFixed(1))}%`

/** How far to the right each x lies, 0 to 1. */
function acrossOf({ x }: ChartData): number[] {
  const [first, last] = [dayNumber(x[0]!), dayNumber(x.at(-1)!)]
  return x.map((day) => (last === first ? 0.5 : (dayNumber(day) - first) / (last - first)))
}

function coordinatesOf(values: readonly (number | null)[], axis: Axis, across: readonly number[]) {
  return values.map((value, index) => (value === null ? undefined : coordinates(across[index]!, axis.down(value))))
}

const lineOf = (series: Series) => series.points.map((_, index) => lineValue(series, index))

/** What lies beyond the axis is drawn at its edge. */
const coordinates = (across: number, down: number): Coordinates => [
  Math.round(across * SIZE),
  Math.round(Math.max(0, Math.min(1, down)) * SIZE),
]

/** The line of a brand, dashed where an end of it is incomplete, and the band of the own brand's interval. */
function lines(data: ChartData, series: Series, axis: Axis, across: readonly number[]): Html {
  const drawn = coordinatesOf(lineOf(series), axis, across)
  const paths = { whole: '', open: '' }
  let last: { path: keyof typeof paths; index: number } | undefined
  for (let index = 1; index < drawn.length; index++) {
    const [a, b] = [drawn[index - 1], drawn[index]]
    if (a === undefined || b === undefined || !adjoin(data, index)) continue
    const path = data.isComplete[index - 1]! && data.isComplete[index]! ? 'whole' : 'open'
    if (last?.path !== path || last.index !== index - 1) paths[path] += `M${a[0]} ${a[1]}`
    paths[path] += `L${b[0]} ${b[1]}`
    last = { path, index }
  }
  const hasBand = series.isFocus && series.means === undefined
  return html`<g class="c${series.colour}" data-series="${series.colour}">${hasBand ? band(data, series, axis, across) : ''}${paths.whole === '' ? '' : html`<path d="${paths.whole}"/>`}${paths.open === '' ? '' : html`<path class="open" d="${paths.open}"/>`}</g>`
}

function band(data: ChartData, { points }: Series, axis: Axis, across: readonly number[]): Html[] {
  const bands: Html[] = []
  let run: number[] = []
  const end = () => {
    if (run.length > 1) {
      const edge = (side: (point: Point) => number) => (index: number) =>
        coordinates(across[index]!, axis.down(side(points[index]!))).join(' ')
      const upper = run.map(edge((point) => point.high!))
      const lower = [...run].reverse().map(edge((point) => point.low!))
      bands.push(html`<path class="band" d="M${[...upper, ...lower].join('L')}Z"/>`)
    }
    run = []
  }
  for (const [index, point] of points.entries()) {
    const there = point !== undefined && point.low !== null && point.high !== null
    if (!there || (run.length > 0 && !adjoin(data, index))) end()
    if (there) run.push(index)
  }
  end()
  return bands
}

/** A ground behind what may still change. */
function provisional({ isProvisional, x }: ChartData, across: readonly number[]): Html[] {
  if (x.length < 2) return []
  const half = (across[1]! - across[0]!) / 2
  return isProvisional.flatMap((is, index) => {
    if (!is || isProvisional[index - 1] === true) return []
    let last = index
    while (isProvisional[last + 1] === true) last++
    const [from, to] = [Math.max(0, across[index]! - half), Math.min(1, across[last]! + half)]
    return [
      html`<rect class="provisional" x="${Math.round(from * SIZE)}" y="0" width="${Math.round((to - from) * SIZE)}" height="${SIZE}"/>`,
    ]
  })
}

/** A line between the period before and the range. */
function beginning({ start, x }: ChartData, across: readonly number[]): Html | '' {
  if (start === 0 || start >= x.length) return ''
  const share = (across[start - 1]! + across[start]!) / 2
  const at = percentOf(share)
  const label = html`<text class="before" x="${at}" y="0" dx="-6" dy="0.9em" text-anchor="end">period before</text>`
  return html`<line class="start" x1="${at}" x2="${at}" y1="0" y2="100%"/>${share < LEAST_LABELLED ? '' : label}`
}

/** Points of the own brand, and those of any brand that no line reaches. Hollow where days are missing. */
function dots(data: ChartData, series: Series, axis: Axis, across: readonly number[]): Html {
  const { x, isComplete } = data
  const values = series.isFocus ? series.points.map((point) => point?.value ?? null) : lineOf(series)
  const drawn = coordinatesOf(values, axis, across)
  const radius = series.means !== undefined ? 2 : series.isFocus ? 3.5 : 2.5
  const isOnLine = (index: number) =>
    adjoin(data, index) && drawn[index - 1] !== undefined && drawn[index] !== undefined
  const circles = drawn.flatMap((at, index) => {
    if (at === undefined) return []
    const isReached = isOnLine(index) || (index + 1 < x.length && isOnLine(index + 1))
    const isWanted =
      series.isFocus &&
      (series.means !== undefined || x.length <= MOST_POINTS || !isComplete[index] || index === x.length - 1)
    if (!isWanted && isReached) return []
    const open = isComplete[index] ? '' : html` class="open"`
    return [html`<circle${open} cx="${percentOf(at[0] / SIZE)}" cy="${percentOf(at[1] / SIZE)}" r="${radius}"/>`]
  })
  return html`<g class="c${series.colour}${series.means === undefined ? '' : ' days'}" data-series="${series.colour}">${circles}</g>`
}

/** The index of the last x that is complete and has a value, or of the last that has one; -1 if none has. */
function lastOf({ isComplete }: ChartData, values: readonly (number | null)[]): number {
  const complete = values.findLastIndex((value, index) => value !== null && isComplete[index] === true)
  return complete >= 0 ? complete : values.findLastIndex((value) => value !== null)
}

/** The name and the last value of each brand beside the end of its line, moved apart if they would touch. */
function endLabels(data: ChartData, axis: Axis, room: number): Html[] {
  const { kind, series, x, grain } = data
  let when: Day | undefined
  const labels = series
    .flatMap((one) => {
      const values = lineOf(one)
      const index = lastOf(data, values)
      if (index < 0) return []
      if (when === undefined || x[index]! > when) when = x[index]!
      return [{ name: one.name, colour: one.colour, value: values[index]!, at: axis.down(values[index]!) * 100 }]
    })
    .sort((a, b) => a.at - b.at)
  for (let index = 1; index < labels.length; index++)
    labels[index]!.at = Math.max(labels[index]!.at, labels[index - 1]!.at + room)
  let bottom = 100
  for (const label of labels.reverse()) {
    label.at = Math.min(label.at, bottom)
    bottom = label.at - room
  }
  const heading = grain === 'week' ? 'Week of ' : series[0]?.means === undefined ? '' : '7 days to '
  const ends = labels.map(({ name, colour, value, at }) => {
    const y = percentOf(at / 100)
    return html`<g class="c${colour}" data-series="${colour}"><circle cx="14" cy="${y}" r="3"/><text x="22" y="${y}" dy="0.32em">${short(name)}<tspan class="value"> ${measured(value, kind.unit)}</tspan></text></g>`
  })
  return when === undefined
    ? []
    : [html`<text class="when" x="11" y="0" dy="-0.8em">${heading}${shortDay(when)}</text>`, ...ends]
}

function short(name: string): string {
  const letters = [...name]
  return letters.length <= LABEL_LENGTH ? name : `${letters.slice(0, LABEL_LENGTH - 1).join('')}…`
}

/** The first and the last day, and what lies between if there is room. */
function dayLabels(x: readonly Day[], across: readonly number[]): Html[] {
  const last = x.length - 1
  const spansYears = x[0]!.slice(0, 4) !== x[last]!.slice(0, 4)
  const middle = across.findIndex((share) => share >= 0.5)
  const wanted = [0, ...(across[middle]! > 0.35 && across[middle]! < 0.65 ? [middle] : []), last]
  return [...new Set(wanted)].map((index) => {
    const anchor = last === 0 ? 'middle' : index === 0 ? 'start' : index === last ? 'end' : 'middle'
    const name = index === 0 || index === last ? 'day' : 'day between'
    return html`<text class="${name}" x="${percentOf(across[index]!)}" y="1em" text-anchor="${anchor}">${shortDay(x[index]!, spansYears)}</text>`
  })
}

function describe(data: ChartData): string {
  const { kind, grain, x, series } = data
  const ends = series.flatMap((one) => {
    const values = lineOf(one)
    const last = lastOf(data, values)
    return last < 0 ? [] : [`${clip(one.name, 60)} ${measured(values[last]!, kind.unit)}`]
  })
  return `${kind.title} by ${grain}, ${x[0]} to ${x.at(-1)}. Last complete ${grain}: ${ends.join(', ')}. The numbers are in the table below.`
}

/** What the script shows where somebody points: texts, so that they are written once only. */
function numbersOf({ kind, x, isComplete, isProvisional, series }: ChartData, axis: Axis, across: readonly number[]) {
  return {
    x: x.map((day) => shortDay(day, true)),
    across: across.map((share) => Number(share.toFixed(4))),
    notes: x.map((_, index) => (!isComplete[index] ? 'incomplete' : isProvisional[index] ? 'may still change' : '')),
    series: series.map(({ name, isFocus, colour, points, means }) => ({
      name,
      colour,
      own: isFocus,
      down: points.map((point) =>
        point === undefined || point.value === null ? null : Number(axis.down(point.value).toFixed(4)),
      ),
      texts: points.map((point) => (point === undefined ? '' : measured(point.value, kind.unit))),
      ...(isFocus
        ? {
            details: points.map((point, index) =>
              point === undefined
                ? ''
                : [
                    point.low === null ? '' : `${measured(point.low, kind.unit)} to ${measured(point.high, kind.unit)}`,
                    `${whole(point.sample)} ${kind.sample.name}`,
                    means?.[index] == null ? '' : `mean of 7 days ${measured(means[index]!, kind.unit)}`,
                  ]
                    .filter((part) => part !== '')
                    .join(', '),
            ),
          }
        : {}),
    })),
  }
}

const SPARK_ROOM = 8

/** The own brand's line alone, small, without an axis, as far as it is complete; the last value has a point. */
export function sparkline(data: ChartData): Html | '' {
  const own = data.series.find(({ isFocus }) => isFocus)
  const values = (own?.points ?? []).map((point, index) => (data.isComplete[index] ? (point?.value ?? null) : null))
  const known = values.filter((value) => value !== null)
  if (known.length < 2) return ''
  const [lowest, highest] = [Math.min(...known), Math.max(...known)]
  const days = data.x.map((day) => dayNumber(day))
  const [first, last] = [values.findIndex((value) => value !== null), values.findLastIndex((value) => value !== null)]
  const across = (index: number) => (days[index]! - days[first]!) / (days[last]! - days[first]!)
  const down = (value: number) => {
    const share = highest === lowest ? 0.5 : (value - lowest) / (highest - lowest)
    return (data.kind.unit === 'position' ? share : 1 - share) * (1 - (2 * SPARK_ROOM) / 100) + SPARK_ROOM / 100
  }
  let path = ''
  for (const [index, value] of values.entries()) {
    if (value === null) continue
    const joined = values[index - 1] != null && adjoin(data, index)
    path += `${joined ? 'L' : 'M'}${coordinates(across(index), down(value)).join(' ')}`
  }
  return html`<svg class="spark c0" aria-hidden="true"><svg class="lines" viewBox="0 0 ${SIZE} ${SIZE}" preserveAspectRatio="none" width="100%" height="100%"><path d="${path}"/></svg><circle cx="${percentOf(across(last))}" cy="${percentOf(down(values[last]!))}" r="3"/></svg>`
}

interface Axis {
  ticks: number[]
  /** How far down a value lies, 0 to 1. */
  down(value: number): number
}

const STEPS = [1, 2, 2.5, 5, 10]
const TICKS = 4

/** Shares begin at zero, positions at 1, which is on top; a score has a scale of its own. */
function axisOf(values: readonly number[], unit: Unit): Axis {
  const [lowest, highest] = [Math.min(...values), Math.max(...values)]
  if (unit === 'share') return between(0, Math.min(1, Math.max(highest, 0.02)), 1)
  if (unit === 'position') {
    const axis = between(1, Math.max(highest, 2), Infinity)
    return { ...axis, down: (value) => 1 - axis.down(value) }
  }
  const room = Math.max((highest - lowest) * 0.15, Math.abs(highest) * 0.02, 0.01)
  return between(lowest - room, highest + room, Infinity)
}

function between(min: number, max: number, most: number): Axis {
  const step = niceStep((max - min) / TICKS)
  const first = Math.floor(min / step + 1e-9) * step
  // Positions begin at 1, whatever the step.
  const from = min === 1 ? 1 : first
  const to = Math.min(most, from + Math.ceil((max - from) / step - 1e-9) * step)
  const count = Math.floor((to - from) / step + 1e-9)
  const ticks = Array.from({ length: count + 1 }, (_, index) => rounded(from + index * step))
  return { ticks, down: (value) => 1 - (value - from) / (to - from) }
}

function niceStep(rough: number): number {
  const power = 10 ** Math.floor(Math.log10(rough))
  return power * STEPS.find((step) => step * power >= rough * 0.999)!
}

const rounded = (value: number) => Number(value.toPrecision(12))
