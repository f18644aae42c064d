import { type Day, daysIn, type Range } from '../../core/day.ts'
import { quote } from '../../core/identifier.ts'
import { count } from '../../core/text.ts'
import { type Measure, notAdditive } from '../../ledger/control-totals.ts'
import type { DayComparison } from '../../ledger/coverage.ts'
import {
  answersOf,
  type ControlTotals,
  type DayTotals,
  digestOf,
  TOTALLED,
  type TotalsByDay,
} from '../../rows/day-totals.ts'
import type { FoundDays } from '../../rows/sift.ts'
import { type DayStream, isCompared, isControl } from '../../streams/stream.ts'
import { slowQuery, tableName, type Warehouse } from '../../warehouse/connect.ts'
import { runBatch } from '../../warehouse/transaction.ts'

/** A day that does not add up to the control totals. */
export interface Difference {
  day: Day
  measure: Measure
  /** -1 if everything that differs is too low, 1 if it is too high, 0 if some is too low and some too high. */
  direction: -1 | 0 | 1
  /** True if everything that differs are brands without a row. No group that is left out does that. */
  lacksBrands: boolean
  /** The brands that differ. */
  brands: ReadonlySet<string>
  /** What rejected rows must explain, of all measures; undefined if something is too high. Of chats, no brand is known. */
  missing: { brands: ReadonlySet<string>; rows: number } | undefined
  /** How it differs, for people. */
  text: string
}

type Found = Pick<FoundDays, 'rowsByDay' | 'totals'>

/** The days that differ from the control totals, as far as these are known. Measures that do not add up are left out. */
export function compareDays(
  stream: Pick<DayStream, 'control'>,
  days: readonly Day[],
  { found, control, ignored }: { found: Found; control: ControlTotals; ignored: ReadonlySet<Measure> },
): Difference[] {
  if (ignored.has('counts')) return []
  return days.flatMap((day) => {
    const expected = control.get(day)
    if (expected === undefined) return []
    const { brands, isWhole } = expected
    if (stream.control === 'answers') {
      const isUnknown = ignored.has('answers') || (!isWhole && brands.size === 0)
      return isUnknown ? [] : compareRows(day, found.rowsByDay.get(day) ?? 0, answersOf(brands))
    }
    const totals = found.totals?.get(day) ?? NO_TOTALS
    // The totals of a rejected row are not known; those of other brands are.
    const known = isWhole ? totals : new Map([...totals].filter(([brand]) => brands.has(brand)))
    if (stream.control === 'brand limits') return compareTotals(day, known, raised(brands, known), ignored)
    return compareTotals(day, known, brands, ignored)
  })
}

const NO_TOTALS: DayTotals = new Map()

/** Expected values of a report that may be below the totals: the found values, but no more than the totals. */
function raised(totals: DayTotals, found: DayTotals): DayTotals {
  // A service may leave out brands without mentions, and so all of them.
  const answers = totals.size === 0 ? Number.POSITIVE_INFINITY : answersOf(totals)
  return new Map(
    [...found].map(([brand, [mentions, visible, of]]) => {
      const most = totals.get(brand) ?? [0, 0, answers]
      return [brand, [Math.min(mentions, most[0]), Math.min(visible, most[1]), Math.min(of, most[2])]]
    }),
  )
}

function compareRows(day: Day, rows: number, answers: number): Difference[] {
  if (isClose(rows, answers)) return []
  const text = `${count(rows, 'row')}, but the service counts ${count(answers, 'answer')}`
  const direction = rows < answers ? -1 : 1
  const brands = new Set<string>()
  const missing = rows < answers ? { brands, rows: answers - rows } : undefined
  return [{ day, measure: 'answers', direction, lacksBrands: false, brands, missing, text }]
}

/** The positions in `TOTALLED` that a measure compares. */
const POSITIONS: Record<Measure, readonly (0 | 1 | 2)[]> = { counts: [0, 1], answers: [2] }

function compareTotals(day: Day, found: DayTotals, expected: DayTotals, ignored: ReadonlySet<Measure>): Difference[] {
  const all = new Set([...found.keys(), ...expected.keys()])
  const differences = (['counts', 'answers'] as const).flatMap((measure) => {
    if (ignored.has(measure)) return []
    const texts: string[] = []
    const directions = new Set<-1 | 1>()
    const brands = new Set<string>()
    for (const brand of all) {
      for (const at of POSITIONS[measure]) {
        const sum = found.get(brand)?.[at] ?? 0
        const total = expected.get(brand)?.[at] ?? 0
        if (isClose(sum, total)) continue
        directions.add(sum < total ? -1 : 1)
        brands.add(brand)
        texts.push(`the ${TOTALLED[at]} of ${brand} adds up to ${sum}, but the service's total is ${total}`)
      }
    }
    if (texts.length === 0) return []
    const more = texts.length === 1 ? '' : ` (and ${count(texts.length - 1, 'other difference')})`
    const [first] = directions
    const direction: Difference['direction'] = directions.size === 1 ? first! : 0
    const lacksBrands = [...brands].every((brand) => !found.has(brand))
    return [{ day, measure, direction, lacksBrands, brands, text: `${texts[0]}${more}` }]
  })
  const brands = new Set(differences.flatMap((one) => [...one.brands]))
  const isTooLow = differences.every(({ direction }) => direction === -1)
  const missing = isTooLow ? { brands, rows: brands.size } : undefined
  // A wrong count is reported. The numbers of answers then differ, too.
  return differences.slice(0, 1).map((one) => ({ ...one, missing }))
}

/** Sums of fractions depend on their order in the last digits. */
function isClose(a: number, b: number): boolean {
  return Math.abs(a - b) < 1e-6 + 1e-9 * Math.max(Math.abs(a), Math.abs(b))
}

/** The values that the days of a window are compared with. */
export interface Control {
  totals: ControlTotals
  /** Measures that were shown not to add up. */
  ignored: ReadonlySet<Measure>
}

/** How a window compares with the control totals. */
export interface WindowComparison {
  differences: Difference[]
  /** Days whose control totals this run has not read. */
  uncompared: Day[]
  /** Days whose control totals are not all known, because a row of them was rejected. */
  unknown: Day[]
  /** False if a measure is known not to add up, and is not compared. */
  comparesAll: boolean
  /** The comparison of a day, as the ledger stores it. */
  of(day: Day): DayComparison
}

/** Compares a window before it is loaded. Differences that come from rejected rows are left out. */
export function compareWindow(
  stream: DayStream,
  range: Range,
  found: Omit<FoundDays, 'absent'>,
  { totals: control, ignored }: Control,
): WindowComparison {
  const days = daysIn(range)
  const isKnown = (day: Day) => control.get(day)?.isWhole === true
  const adds = isAdditive(stream, ignored)
  // The control report itself must repeat the totals that other streams of this run were compared with.
  const all = adds || isControl(stream) ? compareDays(stream, days, { found, control, ignored }) : []
  const differing = new Set(all.map(({ day }) => day))
  const differences = withoutRejected(all, found.rejects)
  const digest = (day: Day) => {
    if (isControl(stream)) return digestOf(found.totals!.get(day) ?? new Map())
    const known = adds && isKnown(day) ? control.get(day)! : undefined
    return known && (known.digest ?? digestOf(known.brands))
  }
  return {
    differences,
    uncompared: adds ? days.filter((day) => !control.has(day)) : [],
    unknown: adds ? days.filter((day) => control.get(day)?.isWhole === false) : [],
    comparesAll: adds && ignored.size === 0,
    of: (day) => {
      const difference = differences.find((one) => one.day === day)?.text
      return {
        isReconciled: adds ? isKnown(day) && !differing.has(day) : difference === undefined,
        digest: digest(day),
        difference,
      }
    },
  }
}

/** A rejected row is missing from the sums of its brand on its day. If its brand or day cannot be read, it may be any. */
function withoutRejected(differences: readonly Difference[], rejects: FoundDays['rejects']): Difference[] {
  let undated = rejects.filter(({ date }) => date === undefined)
  return differences.filter(({ day, missing }) => {
    const left = [...rejects.filter(({ date }) => date === day), ...undated]
    if (missing === undefined || missing.rows > left.length) return true
    const isExplained = (brand: string | undefined) => {
      const exact = left.findIndex((reject) => reject.brand === brand)
      const at = exact >= 0 ? exact : left.findIndex((reject) => reject.brand === undefined)
      if (at >= 0) left.splice(at, 1)
      return at >= 0
    }
    const { brands, rows } = missing
    const isDifferent = ![...brands, ...new Array<undefined>(Math.ceil(rows) - brands.size)].every(isExplained)
    if (!isDifferent) undated = undated.filter((reject) => left.includes(reject))
    return isDifferent
  })
}

/** True if the stream is known to add up, or nothing is known against it. */
function isAdditive(stream: DayStream, ignored: ReadonlySet<Measure>): boolean {
  if (!isCompared(stream) || ignored.has('counts')) return false
  return stream.control !== 'answers' || !ignored.has('answers')
}

/**
 * True if the answer must be proven by asking for one row after its last: it does not add up, it cannot be compared, or it has
 * rejects. An answer that cannot be compared and has as many rows on each day as before needs no new proof.
 */
export function needsProof(
  comparison: WindowComparison,
  { stream, range, rowsBefore }: { stream: DayStream; range: Range; rowsBefore: ReadonlyMap<Day, number> },
  { rowsByDay, rejects }: FoundDays,
  ignored: ReadonlySet<Measure>,
): boolean {
  const { differences, uncompared, unknown } = comparison
  if (rejects.length + differences.length + uncompared.length + unknown.length > 0) return true
  if (isAdditive(stream, ignored) && stream.control !== 'brand limits') return false
  return daysIn(range).some((day) => (rowsByDay.get(day) ?? 0) !== rowsBefore.get(day))
}

interface Compared {
  projectId: string
  stream: DayStream
  days: readonly Day[]
}

/** Compares what the table of a stream has on some days with control totals. */
export async function compareTable(
  warehouse: Warehouse,
  { projectId, stream, days }: Compared,
  control: ControlTotals,
): Promise<Difference[]> {
  if (days.length === 0) return []
  const sorted = [...days].sort()
  const range = { from: sorted[0]!, to: sorted.at(-1)! }
  const [ignored] = await runBatch(warehouse.pool, notAdditive(warehouse, { projectId, stream: stream.name }))
  return compareDays(stream, sorted, { found: await tableDays(warehouse, projectId, stream, range), control, ignored })
}

async function tableDays(warehouse: Warehouse, projectId: string, stream: DayStream, range: Range) {
  const found = { rowsByDay: new Map<Day, number>(), totals: new Map() as TotalsByDay }
  const of = `from ${tableName(warehouse, stream.table)} where project_id = $1 and date between $2 and $3`
  const values = [projectId, range.from, range.to]
  if (stream.control === 'answers') {
    const query = slowQuery(`select date, count(*)::int as rows ${of} group by date`, values)
    const { rows } = await warehouse.pool.query<{ date: Day; rows: number }>(query)
    for (const { date, rows: count } of rows) found.rowsByDay.set(date, count)
    return found
  }
  const sum = stream.control === 'brand limits' ? 'max' : 'sum'
  const sums = TOTALLED.map((name) => `${sum}(${quote(name)})`).join(', ')
  const query = slowQuery(
    `select date, brand_id, array[${sums}]::double precision[] as totals ${of} group by date, brand_id`,
    values,
  )
  const { rows } = await warehouse.pool.query<{ date: Day; brand_id: string; totals: [number, number, number] }>(query)
  for (const { date, brand_id, totals } of rows) {
    const day = found.totals.get(date) ?? new Map()
    found.totals.set(date, day.set(brand_id, totals))
  }
  return found
}
