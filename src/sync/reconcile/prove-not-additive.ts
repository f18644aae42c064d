import { addDays, type Day } from '../../core/day.ts'
import { KeyError, RefusedError, UsageError } from '../../core/errors.ts'
import { type Dimension, type Filter, streamKey } from '../../core/vocabulary.ts'
import { forgetNotAdditive, listNotAdditive, type Measure, saveNotAdditive } from '../../ledger/control-totals.ts'
import { hasReconciledDay } from '../../ledger/coverage.ts'
import { sift } from '../../rows/sift.ts'
import type { CallContext } from '../../source/client.ts'
import { type DayStream, isControl, keyOf, keyPositions, type Row, RowList } from '../../streams/stream.ts'
import { tableName } from '../../warehouse/connect.ts'
import { hasNoRowAfter, readPage } from '../read/read-pages.ts'
import { readWindow, UNKNOWN_WINDOW } from '../read/read-window.ts'
import type { Run, SyncedProject } from '../run/run.ts'
import { compareDays, type Difference } from './compare-window.ts'
import { readControl } from './read-control.ts'

const DAYS_OF_EVIDENCE = 3
/** So many days show whether the table has rows without mentions. */
const DAYS_BEFORE = 60
/** Dimensions that an answer may lack. Only groups without such a value can be left out of a report. */
export const NULLABLE: readonly string[] = ['topic_id', 'country_code', 'model_channel_id']

interface Suspect {
  project: SyncedProject
  stream: DayStream
  differences: readonly Difference[]
}

/** Rows that a service may leave out. */
interface Omissions {
  /** Dimensions of which it may leave out the groups without a value. */
  nullable: readonly Dimension[]
  /** True if it may leave out rows without mentions. */
  rowsWithoutMentions: boolean
}

/**
 * Some streams do not add up to the totals, because the service leaves rows out. Truncated answers do not add up either, so
 * the evidence must exclude them. Each day of it is final and is read alone: it fills less than half a page, has no row after
 * its last, and consists of the same rows when it is read in two parts. All days must be too low. Groups that are left out lower the
 * sums; if they are too high, the totals are wrong.
 *
 * Three such days are needed, and a stream of which a day ever added up is not accepted. There is one exception: if only the
 * number of answers of a report is too low, the rows that are left out are without mentions, as no truncation would have it.
 * Then one day is enough, unless the table has such rows: a service that has sent them must first leave them out on three days.
 */
export async function proveNotAdditive(
  run: Run,
  { project, stream, differences, rows }: Suspect & { rows: () => Iterable<Row> },
  context: CallContext,
): Promise<Measure | undefined> {
  const { warehouse } = run
  const projectStream = { projectId: project.id, stream: stream.name }
  const key = streamKey(project.id, stream.name)
  const final = differences.filter(({ day }) => day < run.provisionalFrom)
  const counts = final.filter(({ measure }) => measure === 'counts')
  const alike = counts.length < DAYS_OF_EVIDENCE ? final.filter(({ measure }) => measure === 'answers') : counts
  const addsUp = !isControl(stream) && stream.control !== 'brand limits'
  if (!addsUp || alike.length === 0 || run.unproven.has(key)) return undefined
  const [{ measure }] = alike as [Difference]
  const hasAddedUp = await run.retry(() => hasReconciledDay(warehouse, projectStream))
  const isOfAnswers = measure === 'answers' && stream.control === 'brand totals'
  const rowsWithoutMentions = isOfAnswers && !hasRowsWithoutMentions(stream, rows(), brandsOf(alike))
  if (hasAddedUp && !rowsWithoutMentions) return undefined
  const usable = hasAddedUp ? await daysWithoutAbsence(run, { project, stream, differences: alike }) : alike
  const suspect = { project, stream, differences: usable.slice(-DAYS_OF_EVIDENCE) }
  const hasThreeDays = suspect.differences.length === DAYS_OF_EVIDENCE
  if (usable.length === 0 || (!hasThreeDays && !rowsWithoutMentions)) return undefined
  const nullable = hasThreeDays && !hasAddedUp ? await nullableDimensions(run, suspect) : []
  const omissions = { nullable, rowsWithoutMentions }
  const evidence = await evidenceOf(run, suspect, omissions, context)
  if (evidence === undefined) {
    run.unproven.add(key)
    return undefined
  }
  await run.retry(() => saveNotAdditive(warehouse, { ...projectStream, measure, evidence }))
  run.log.warn({ ...projectStream, evidence }, 'stream does not add up to the control totals')
  return measure
}

/** Says how days differ that were read whole and differ alike; undefined if one of them is not, or does not. */
async function evidenceOf(
  run: Run,
  { project, stream, differences }: Suspect,
  omissions: Omissions,
  context: CallContext,
): Promise<string[] | undefined> {
  const [{ measure }] = differences as [Difference]
  const range = { from: differences[0]!.day, to: differences.at(-1)!.day }
  const { totals } = await readControl(run, { project, filters: stream.filters ?? [], range }, context)
  const evidence: string[] = []
  for (const { day } of differences) {
    const of = { project, stream, day }
    const answer = await readDay(run, of, context)
    if (answer?.pageRows === undefined || answer.pageRows * 2 >= run.limit.current) return undefined
    const rows = answer.sifted.rows.values
    if (!(await hasSameRowsInParts(run, { ...of, rows }, context).catch(ignoreRefusal))) return undefined
    const compared = { found: answer.sifted, control: totals, ignored: new Set<Measure>() }
    const [difference] = compareDays(stream, [day], compared)
    if (difference?.measure !== measure || difference.direction !== -1) return undefined
    if (stream.control === 'brand totals' && !isExplained(stream, difference, rows, omissions)) return undefined
    if (stream.control === 'answers' && !(await isOfKnownPrompts(run, project.id, stream, rows))) return undefined
    evidence.push(`${day}: ${difference.text}`)
  }
  return evidence
}

interface ProjectDay {
  project: SyncedProject
  stream: DayStream
  day: Day
}

/** Reads a day alone; undefined if it has rejects, or the service refuses it. */
async function readDay(run: Run, { project, stream, day }: ProjectDay, context: CallContext) {
  const request = { caller: project.caller, stream, range: { from: day, to: day }, known: UNKNOWN_WINDOW }
  const answer = await readWindow(run, request, context, () => new RowList()).catch(ignoreRefusal)
  return answer?.kind === 'rows' && answer.sifted.rejects.length === 0 ? answer : undefined
}

/** True if a difference can come from what the service leaves out: groups without a value, or rows without mentions. */
function isExplained(
  stream: DayStream,
  { lacksBrands, brands }: Difference,
  rows: readonly Row[],
  { nullable, rowsWithoutMentions }: Omissions,
): boolean {
  const hasNoNullGroup = (dimension: Dimension) => rows.every((row) => stream.dimensionOf(row, dimension) !== null)
  // Groups that are left out lower the sums of several brands, and do not remove single ones.
  if (!lacksBrands && nullable.some(hasNoNullGroup)) return true
  return rowsWithoutMentions && !hasRowsWithoutMentions(stream, rows, brands)
}

/** True if most chats belong to prompts that the project has or had. Those of another project would not. */
async function isOfKnownPrompts(
  { warehouse, retry }: Run,
  projectId: string,
  stream: DayStream,
  rows: readonly Row[],
): Promise<boolean> {
  const query = `select prompt_id from ${tableName(warehouse, 'prompts')} where project_id = $1`
  const found = await retry(() => warehouse.pool.query<{ prompt_id: string | null }>(query, [projectId]))
  const known = new Set(found.rows.map(({ prompt_id }) => prompt_id))
  const ofKnown = rows.filter((row) => known.has(stream.dimensionOf(row, 'prompt_id')))
  return known.size === 0 || ofKnown.length * 2 > rows.length
}

function hasRowsWithoutMentions({ columns }: DayStream, rows: Iterable<Row>, brands: ReadonlySet<string>): boolean {
  const at = (column: string) => columns.findIndex(({ name }) => name === column)
  const [brandAt, countAt] = [at('brand_id'), at('visibility_count')]
  for (const row of rows) if (row[countAt] === 0 && brands.has(row[brandAt] as string)) return true
  return false
}

const brandsOf = (differences: readonly Difference[]) => new Set(differences.flatMap(({ brands }) => [...brands]))

/**
 * Dimensions of a report of which the project may have groups without a value: a prompt with chats on these days has or had
 * none, such chats belong to unknown prompts, or some of them have a channel and others do not.
 */
async function nullableDimensions(
  { warehouse, retry }: Run,
  { project, stream, differences }: Suspect,
): Promise<Dimension[]> {
  const nullable = (stream.dimensions ?? []).filter((name) => NULLABLE.includes(name))
  const chats = `from ${tableName(warehouse, 'chats')} c where c.project_id = $1 and c.date = any($2::date[])`
  const query = `select bool_or(topic_id is null) as topic_id, bool_or(country_code is null) as country_code,
      (select bool_or(model_channel_id is null) and bool_or(model_channel_id is not null) ${chats}) as model_channel_id,
      exists (select ${chats} and not exists (select from ${tableName(warehouse, 'prompts')} p
        where p.project_id = $1 and p.prompt_id = c.prompt_id)) as is_unknown
    from ${tableName(warehouse, 'prompt_history')} h where h.project_id = $1
      and (exists (select ${chats} and c.prompt_id = h.prompt_id) or not exists (select ${chats}))`
  const values = [project.id, differences.map(({ day }) => day)]
  const { rows } = await retry(() => warehouse.pool.query<Record<string, boolean | null>>(query, values))
  const { is_unknown, model_channel_id, ...shown } = rows[0]!
  // Without prompts nothing is known of them.
  return nullable.filter((name) =>
    name === 'model_channel_id' ? model_channel_id : shown[name] !== false || is_unknown,
  )
}

/**
 * The days that may show that the service leaves out rows without mentions: all, if the table has no such rows of the brands that
 * differ. Otherwise the service has begun with it, so three days must have been stored without such rows.
 */
async function daysWithoutAbsence(
  { warehouse, retry }: Run,
  { project, stream, differences }: Suspect,
): Promise<readonly Difference[]> {
  const query = `select date, bool_or(visibility_count = 0 and brand_id = any($4)) as absent
    from ${tableName(warehouse, stream.table)} where project_id = $1 and date between $2 and $3 group by date`
  const values = [
    project.id,
    addDays(differences[0]!.day, -DAYS_BEFORE),
    differences.at(-1)!.day,
    [...brandsOf(differences)],
  ]
  const { rows } = await retry(() => warehouse.pool.query<{ date: Day; absent: boolean }>(query, values))
  const stored = new Map(rows.map(({ date, absent }) => [date, absent]))
  if (![...stored.values()].includes(true)) return differences
  const last = differences.filter(({ day }) => stored.has(day)).slice(-DAYS_OF_EVIDENCE)
  return last.length < DAYS_OF_EVIDENCE || last.some(({ day }) => stored.get(day)) ? [] : last
}

/** Reads a day of the evidence again. If it adds up now, all days of the stream are read again. */
export async function recheckNotAdditive(run: Run, project: SyncedProject, context: CallContext): Promise<void> {
  const { warehouse, streams } = run
  const known = await run.retry(() => listNotAdditive(warehouse))
  for (const { projectId, stream: name, evidence } of known) {
    const stream = streams.byDay.find((one) => one.name === name)
    const day = evidence.at(-1)?.slice(0, 'YYYY-MM-DD'.length)
    if (projectId !== project.id || stream === undefined || day === undefined) continue
    const range = { from: day, to: day }
    const { totals } = await readControl(run, { project, filters: stream.filters ?? [], range }, context)
    // The service may no longer have days as old.
    const answer = await readDay(run, { project, stream, day }, context)
    if (answer === undefined || answer.sifted.rows.length === 0) continue
    const compared = { found: answer.sifted, control: totals, ignored: new Set<Measure>() }
    if (compareDays(stream, [day], compared).length > 0) continue
    await run.retry(() => forgetNotAdditive(warehouse, { projectId, stream: name }))
    run.log.warn({ projectId, stream: name, day }, 'stream adds up to the control totals again, and is read again')
  }
}

/** A service that refuses a filter offers no proof. */
function ignoreRefusal(error: unknown): undefined {
  const isRefusal = error instanceof UsageError || (error instanceof RefusedError && !(error instanceof KeyError))
  if (!isRefusal) throw error
}

/** True if the parts of a day by its first dimension have the rows of the whole: a truncated answer would have others. */
async function hasSameRowsInParts(
  run: Run,
  { project, stream, day, rows }: ProjectDay & { rows: readonly Row[] },
  context: CallContext,
): Promise<boolean> {
  const range = { from: day, to: day }
  const [dimension] = stream.splitDimensions
  if (dimension === undefined) return false
  const values = [...new Set(rows.map((row) => stream.dimensionOf(row, dimension)))].filter((value) => value !== null)
  const half = values.slice(0, Math.ceil(values.length / 2))
  const filters: Filter[] =
    stream.filterTakes === 'lists'
      ? (['in', 'not_in'] as const).map((operator) => ({ field: dimension, operator, values: half }))
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
