import type { Day, Range } from '../../core/day.ts'
import { KeyError, RefusedError, UsageError } from '../../core/errors.ts'
import { type Dimension, type Filter, streamKey } from '../../core/vocabulary.ts'
import { forgetNotAdditive, listNotAdditive, type Measure, saveNotAdditive } from '../../ledger/control-totals.ts'
import { hasReconciledDay } from '../../ledger/coverage.ts'
import type { ControlTotals } from '../../rows/day-totals.ts'
import { sift } from '../../rows/sift.ts'
import type { CallContext } from '../../source/client.ts'
import { type DayStream, isControl, keyOf, keyPositions, type Row, RowList } from '../../streams/stream.ts'
import { tableName } from '../../warehouse/connect.ts'
import { withRetries } from '../../warehouse/retry.ts'
import { hasNoRowAfter, readPage } from '../read/read-pages.ts'
import { readWindow, UNKNOWN_WINDOW } from '../read/read-window.ts'
import type { Run, SyncedProject } from '../run/run.ts'
import { compareDays, type Difference } from './compare-window.ts'
import { readControl } from './read-control.ts'

const DAYS_OF_EVIDENCE = 3
/** Dimensions that an answer may lack. Only groups without such a value can be left out of a report. */
const NULLABLE: readonly string[] = ['topic_id', 'country_code', 'model_channel_id']

interface Suspect {
  project: SyncedProject
  stream: DayStream
  differences: readonly Difference[]
}

/**
 * Some reports do not add up to the totals, because the service leaves groups out. Truncated answers do not add up either, so
 * the evidence must exclude them. On three final days, each day is read alone: it fills less than half a page, has no row
 * after its last, and consists of the same rows when it is read in two parts. All three days must be too low: groups that are
 * left out lower the sums, and if they are too high, the totals are wrong. They also lower the sums of several brands, and do not
 * remove single ones. What is left out must be groups without a value of a dimension: the project may have such groups, and the
 * answers have none. A stream of which any day ever added up is never accepted as not additive. If only the number of answers of a
 * report is too low, all rows that are left out are without mentions, as no truncation would have it: then one such day is
 * enough, if the brands in question have no row without mentions, neither in the answer nor in the table.
 */
export async function proveNotAdditive(
  run: Run,
  { project, stream, differences }: Suspect,
  context: CallContext,
): Promise<Measure | undefined> {
  const projectStream = { projectId: project.id, stream: stream.name }
  const final = differences.filter(({ day }) => day < run.provisionalFrom).slice(-DAYS_OF_EVIDENCE)
  if (isControl(stream) || final.length === 0) return undefined
  const [{ measure }] = final as [Difference]
  if (measure === 'counts' || stream.control === 'answers') {
    if (final.length < DAYS_OF_EVIDENCE) return undefined
    if (await withRetries(run.warehouse, run.signal, () => hasReconciledDay(run.warehouse, projectStream)))
      return undefined
  } else if (await hasStoredRowsWithoutMentions(run, { project, stream, differences: final })) return undefined
  const key = streamKey(project.id, stream.name)
  if (run.unproven.has(key)) return undefined
  const evidence = await evidenceOf(run, { project, stream, differences: final }, context)
  if (evidence === undefined) {
    run.unproven.add(key)
    return undefined
  }
  const texts = evidence.map(({ day, text }) => `${day}: ${text}`)
  await withRetries(run.warehouse, run.signal, () =>
    saveNotAdditive(run.warehouse, { ...projectStream, measure, evidence: texts }),
  )
  run.log.warn({ ...projectStream, evidence: texts }, 'stream does not add up to the control totals')
  return measure
}

/** Days that were read whole and differ alike; undefined if one of them is not, or does not. */
async function evidenceOf(run: Run, { project, stream, differences }: Suspect, context: CallContext) {
  const [{ measure }] = differences as [Difference]
  const range = { from: differences[0]!.day, to: differences.at(-1)!.day }
  const { totals } = await readControl(run, { project, filters: stream.filters ?? [], range }, context)
  const lacking = measure === 'counts' ? await lackedDimensions(run, project.id, stream) : []
  const evidence: Difference[] = []
  for (const { day } of differences) {
    const found = await differenceOfWholeDay(run, { project, stream, day, totals }, context).catch(ignoreRefusal)
    if (found?.difference.measure !== measure || found.difference.direction !== -1) return undefined
    const { difference, rows } = found
    const leavesGroupsOut = () =>
      lacking.some((dimension) => rows.every((row) => stream.dimensionOf(row, dimension) !== null))
    if (measure === 'counts' ? difference.lacksBrands || !leavesGroupsOut() : listsAbsence(stream, rows, difference))
      return undefined
    evidence.push(difference)
  }
  return evidence
}

/** Dimensions that rows of a project may lack, as far as its prompts show. */
async function lackedDimensions(
  { warehouse, signal }: Run,
  projectId: string,
  { dimensions = [] }: DayStream,
): Promise<Dimension[]> {
  const nullable = dimensions.filter((name) => NULLABLE.includes(name))
  const query = `select bool_or(topic_id is null) as topic_id, bool_or(country_code is null) as country_code
    from ${tableName(warehouse, 'prompts')} where project_id = $1`
  const { rows } = await withRetries(warehouse, signal, () =>
    warehouse.pool.query<Record<string, boolean | null>>(query, [projectId]),
  )
  // Without prompts nothing is known.
  return nullable.filter((name) => rows[0]![name] !== false)
}

/** True if an answer has rows without mentions of brands that seem to lack such rows. */
function listsAbsence({ columns }: DayStream, rows: readonly Row[], { brands }: Difference): boolean {
  const at = (column: string) => columns.findIndex(({ name }) => name === column)
  const [brandAt, countAt] = [at('brand_id'), at('visibility_count')]
  return rows.some((row) => row[countAt] === 0 && brands.has(row[brandAt] as string))
}

/** True if rows without mentions would be deleted: a service that has sent them does not leave them out. */
async function hasStoredRowsWithoutMentions(
  { warehouse, signal }: Run,
  { project, stream, differences }: Suspect,
): Promise<boolean> {
  const query = `select exists (select from ${tableName(warehouse, stream.table)}
    where project_id = $1 and date = any($2::date[]) and brand_id = any($3) and visibility_count = 0) as found`
  const brands = [...new Set(differences.flatMap((difference) => [...difference.brands]))]
  const values = [project.id, differences.map(({ day }) => day), brands]
  const { rows } = await withRetries(warehouse, signal, () => warehouse.pool.query<{ found: boolean }>(query, values))
  return rows[0]!.found
}

/** Reads a day again that showed that a stream does not add up. If it does now, so may all other days: they are read again. */
export async function recheckNotAdditive(run: Run, project: SyncedProject, context: CallContext): Promise<void> {
  const { warehouse, signal, streams } = run
  const known = await withRetries(warehouse, signal, () => listNotAdditive(warehouse))
  for (const { projectId, stream: name, evidence } of known) {
    const stream = streams.byDay.find((one) => one.name === name)
    const day = evidence.at(-1)?.slice(0, 'YYYY-MM-DD'.length)
    if (projectId !== project.id || stream === undefined || day === undefined) continue
    const range = { from: day, to: day }
    const { totals } = await readControl(run, { project, filters: stream.filters ?? [], range }, context)
    const request = { caller: project.caller, stream, range, known: UNKNOWN_WINDOW }
    // The service may no longer have days as old.
    const answer = await readWindow(run, request, context, () => new RowList()).catch(ignoreRefusal)
    if (answer?.kind !== 'rows' || answer.sifted.rejects.length > 0 || answer.sifted.rows.length === 0) continue
    const compared = { found: answer.sifted, control: totals, ignored: new Set<Measure>() }
    if (compareDays(stream, [day], compared).length > 0) continue
    await withRetries(warehouse, signal, () => forgetNotAdditive(warehouse, { projectId, stream: name }))
    run.log.warn({ projectId, stream: name, day }, 'stream adds up to the control totals again, and is read again')
  }
}

/** A service that refuses a filter offers no proof. */
function ignoreRefusal(error: unknown): undefined {
  const isRefusal = error instanceof UsageError || (error instanceof RefusedError && !(error instanceof KeyError))
  if (!isRefusal) throw error
}

/** How a day differs though it was read whole; undefined if it does not differ, or cannot be shown to be whole. */
async function differenceOfWholeDay(
  run: Run,
  { project, stream, day, totals }: { project: SyncedProject; stream: DayStream; day: Day; totals: ControlTotals },
  context: CallContext,
): Promise<{ difference: Difference; rows: readonly Row[] } | undefined> {
  const range = { from: day, to: day }
  const request = { caller: project.caller, stream, range, known: UNKNOWN_WINDOW }
  const answer = await readWindow(run, request, context, () => new RowList())
  if (answer.kind !== 'rows' || answer.sifted.rejects.length > 0) return undefined
  if (answer.pageRows === undefined || answer.pageRows * 2 >= run.limit.current) return undefined
  const { rowsByDay, rows, totals: found } = answer.sifted
  if (!(await hasSameRowsInParts(run, { project, stream, range, rows: rows.values }, context))) return undefined
  const [difference] = compareDays(stream, [day], {
    found: { rowsByDay, totals: found },
    control: totals,
    ignored: new Set(),
  })
  return difference && { difference, rows: rows.values }
}

/** True if the parts of a day by its first dimension have the rows of the whole: a truncated answer would have others. */
async function hasSameRowsInParts(
  run: Run,
  { project, stream, range, rows }: { project: SyncedProject; stream: DayStream; range: Range; rows: readonly Row[] },
  context: CallContext,
): Promise<boolean> {
  const [dimension] = stream.splitDimensions
  if (dimension === undefined) return false
  const values = [...new Set(rows.map((row) => stream.dimensionOf(row, dimension)))].filter((value) => value !== null)
  const half = values.slice(0, Math.ceil(values.length / 2))
  const filters: Filter[] =
    stream.filterTakes === 'lists'
      ? [
          { field: dimension, operator: 'in', values: half },
          { field: dimension, operator: 'not_in', values: half },
        ]
      : values.map((value) => ({ field: dimension, operator: 'in', values: [value] }))
  const positions = keyPositions(stream)
  const keys = new Set(rows.map((row) => keyOf(row, positions)))
  let inParts = 0
  for (const filter of filters) {
    const ask = (page: { limit: number; offset: number }) =>
      stream.read(run.client, project.caller, { range, page, filters: [filter] }, context)
    const page = await readPage(ask, run.limit)
    if (!(await hasNoRowAfter(ask, page.count))) return false
    const part = sift(stream, page.items, { range, needsTextCheck: true }, new RowList())
    if (part.rejects.length > 0 || part.rows.values.some((row) => !keys.has(keyOf(row, positions)))) return false
    inParts += part.rows.length
  }
  return inParts === keys.size
}
