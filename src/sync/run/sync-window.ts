import { countDays, type Day, type Range, showRange } from '../../core/day.ts'
import { BadPageError, codeOf, messageOf, TransientError } from '../../core/errors.ts'
import { type Dimension, type ProjectStream, streamKey } from '../../core/vocabulary.ts'
import { controlEntry, controlOf, notAdditive } from '../../ledger/control-totals.ts'
import {
  adjustRows,
  type BegunRead,
  beginRead,
  coverageEntry,
  coverageUnlessSuperseded,
  markStale,
  type PriorCoverage,
} from '../../ledger/coverage.ts'
import { type IdentifiedRejects, resolveWindowRejects, saveRejects } from '../../ledger/quarantine.ts'
import { markDiffering } from '../../ledger/reconciled-days.ts'
import { saveRestatements } from '../../ledger/restatement-report.ts'
import { saveDrift } from '../../ledger/service-notes.ts'
import type { DriftNote } from '../../rows/drift-notes.ts'
import { PackedRows } from '../../rows/packed-rows.ts'
import { type FoundDays, refuseBadPage, type Sifted } from '../../rows/sift.ts'
import type { CallContext } from '../../source/client.ts'
import { type DayStream, isControl, type Row } from '../../streams/stream.ts'
import { tableName } from '../../warehouse/connect.ts'
import { replaceWindow, type WindowSnapshot, windowSnapshot } from '../../warehouse/load/replace-window.ts'
import { type Effect, effectOf } from '../../warehouse/load/window-effect.ts'
import { ensureMonths, forgetLayouts } from '../../warehouse/schema/partitions.ts'
import { noteChangedDays } from '../../warehouse/schema/summaries.ts'
import { inTransaction, runBatch, type Statements, type Transaction } from '../../warehouse/transaction.ts'
import { readWindow } from '../read/read-window.ts'
import { type Control, compareWindow, needsProof, type WindowComparison } from '../reconcile/compare-window.ts'
import { proveNotAdditive } from '../reconcile/prove-not-additive.ts'
import { controlDays, readControl } from '../reconcile/read-control.ts'
import { type LoadableAnswer, loadAnswer } from './load-answer.ts'
import type { ItemResult, Loaded, Run, SyncedProject } from './run.ts'

// A day that does not add up is read again so often, each time after its control total. The service may write it just then.
const ROUNDS = 3

/** A window to be read: of which project and stream, and which days. */
export interface Window {
  project: SyncedProject
  stream: DayStream
  range: Range
}

/**
 * One window: read, sift, compare with the control totals, and load with its ledger entry, its quarantine and its drift in
 * one transaction. A window with days that do not add up is not loaded: these days are read alone.
 */
export async function syncWindow(run: Run, window: Window, context: CallContext): Promise<ItemResult> {
  const { project, stream, range } = window
  const projectStream = { projectId: project.id, stream: stream.name }
  const { read, control } = await beginWindow(run, window)
  const first = await readAndCompare(run, { ...window, read, control }, context)
  const { answer, changedControl } = await settle(run, { ...window, read, control }, first, context)
  switch (answer.kind) {
    case 'too-long':
    case 'split':
      await saveNotes(run, projectStream, answer.notes)
      return answer.kind === 'split' ? { kind: 'split', pageLimit: run.limit.current } : { kind: 'shorten' }
    case 'disagreed':
      return answer
  }
  const loaded = await loadWindow(run, { projectStream, stream, range, read, ...answer })
  return { ...loaded, changedControl }
}

/** A window whose read has begun. */
interface BegunWindow extends Window {
  read: BegunRead
  control: Control
}

/** Takes the fencing token before the request is sent: the later request wins, because its number is higher. */
async function beginWindow(
  { warehouse, runId, retry }: Run,
  { project, stream, range }: Window,
): Promise<{ read: BegunRead; control: Control }> {
  const projectStream = { projectId: project.id, stream: stream.name }
  const [read, stored, ignored] = await retry(() =>
    runBatch(
      warehouse.pool,
      beginRead(warehouse, projectStream, range),
      controlOf(warehouse, { projectId: project.id, filters: stream.filters ?? [] }, range, runId),
      notAdditive(warehouse, projectStream),
    ),
  )
  return { read, control: { ...stored, ignored } }
}

type Answer =
  | { kind: 'rows'; sifted: Sifted<PackedRows>; comparison: WindowComparison }
  | { kind: 'split' | 'too-long'; notes: DriftNote[] }

async function readAndCompare(run: Run, window: BegunWindow, context: CallContext): Promise<Answer> {
  const { project, stream, range, read, control } = window
  const about = `${stream.name} ${showRange(range)}`
  const compare = (found: Omit<FoundDays, 'absent'>) => compareWindow(stream, range, found, control)
  const known = {
    rowsByDay: read.rowsBeforeByDay,
    provisionalFrom: run.provisionalFrom,
    valuesOf: (dimension: Dimension) => knownValues(run, project.id, dimension),
    validate: ({ absent }: FoundDays) =>
      refuseIgnoredDimensions(run, { projectId: project.id, range, about, dimensions: absent }),
    needsProof: (found: FoundDays) => {
      const isFirst = read.rowsBeforeByDay.size === 0 && found.rejects.length === 0
      if (isFirst && run.comparesControl && isControl(stream) && !stream.filters?.length) return false
      return needsProof(compare(found), { stream, range, rowsBefore: read.rowsBeforeByDay }, found, control.ignored)
    },
  }
  const pack = () => new PackedRows(stream.columns, project.id, run.templates.segments)
  const answer = await readWindow(run, { caller: project.caller, stream, range, known }, context, pack)
  if (answer.kind !== 'rows') return answer
  const { sifted } = answer
  refuseBadPage(about, sifted, run.config.max_bad_share)
  return { kind: 'rows', sifted, comparison: compare(sifted) }
}

const TABLE_OF: Partial<Record<Dimension, string>> = { prompt_id: 'prompts', model_id: 'models' }

/** The prompts or models of a project, for services whose filters have no "all but these". */
async function knownValues({ warehouse, retry }: Run, projectId: string, dimension: Dimension): Promise<string[]> {
  const table = TABLE_OF[dimension]
  if (table === undefined) return []
  const query = `select ${dimension} as value from ${tableName(warehouse, table)} where project_id = $1`
  const { rows } = await retry(() => warehouse.pool.query<{ value: string }>(query, [projectId]))
  return rows.map(({ value }) => value)
}

interface Settled {
  answer: Answer | { kind: 'disagreed'; days: Day[] }
  changedControl: Day[]
}

/** Decides what becomes of an answer with days that do not add up. */
async function settle(run: Run, window: BegunWindow, first: Answer, context: CallContext): Promise<Settled> {
  const { project, stream, range, control } = window
  let answer = first
  const disagrees = () => answer.kind === 'rows' && answer.comparison.differences.length > 0
  if (!disagrees()) return { answer, changedControl: [] }
  if (countDays(range) > 1) {
    const { comparison, sifted } = answer as Extract<Answer, { kind: 'rows' }>
    const { differences } = comparison
    const rows = () => rowsOf(sifted.rows)
    const measure = await proveNotAdditive(run, { project, stream, differences, rows }, context)
    if (measure === undefined)
      return { answer: { kind: 'disagreed', days: differences.map(({ day }) => day) }, changedControl: [] }
    const ignored = new Set([...control.ignored, measure])
    answer = await readAndCompare(run, { ...window, control: { ...control, ignored } }, context)
    return settle(run, { ...window, control: { ...control, ignored } }, answer, context)
  }
  const changedControl: Day[] = []
  for (let round = 0; round < ROUNDS && disagrees(); round++) {
    const again = await readControl(run, { project, filters: stream.filters ?? [], range }, context)
    changedControl.push(...again.changed)
    answer = await readAndCompare(
      run,
      { ...window, control: { totals: again.totals, ignored: control.ignored } },
      context,
    )
  }
  return { answer, changedControl: [...new Set(changedControl)] }
}

async function saveNotes(run: Run, projectStream: ProjectStream, notes: DriftNote[]): Promise<void> {
  if (notes.length === 0) return
  const save = () => inTransaction(run.warehouse, (tx) => saveDrift(tx, projectStream, notes, run.runId))
  await run.retry(save)
}

function rowsOf(rows: PackedRows): Row[] {
  return Array.from({ length: rows.length }, (_, at) => rows.get(at))
}

const NO_PARTITION = '23514'

interface LoadableWindow extends LoadableAnswer<DayStream> {
  range: Range
  comparison: WindowComparison
}

/** Replaces a window, with its coverage, its rejects and its restatements. */
async function loadWindow(run: Run, load: LoadableWindow): Promise<Loaded> {
  const { warehouse, config } = run
  const { projectStream, stream, range, sifted, read } = load
  // An empty window gets its rows in the order of the index, which is better found before other loads wait for this one.
  if (read.rowsBefore === 0) sifted.rows.reorder()
  // The setting `disabled` switches ways to save work off, to find out whether one of them is at fault.
  const withDigest = !config.disabled.includes('window-digest')
  const questions: Statements<[PriorCoverage, WindowSnapshot]> = [
    coverageUnlessSuperseded(warehouse, projectStream, range, read.fencingToken),
    windowSnapshot(warehouse, { projectId: projectStream.projectId, stream, range }, withDigest),
  ]
  const loaded = await run.retry(async () => {
    if (stream.key.includes('date')) await ensureMonths(warehouse, stream.table, sifted.rowsByDay.keys())
    return loadAnswer(run, load, questions, async (tx, [prior, snapshot], identified) => {
      const difference = finalDifference(run, load)
      const effect = await replaceRows(run, tx, load, { prior, snapshot, identified, difference })
      const days = [...effect.byDay.keys(), ...effect.movedFrom.keys()]
      const changed = { projectId: projectStream.projectId, table: stream.table, days }
      tx.atCommit.push(...noteChangedDays(warehouse, config, changed))
      await saveWindowLedger(run, tx, load, { prior, effect, identified })
      const isHeld = (day: Day) => effect.held?.days.has(day) ?? false
      const isKept = difference !== undefined && !mayStore(load, snapshot)
      const isStored =
        !isKept && (sifted.rowsByDay.size === 0 || [...sifted.rowsByDay.keys()].some((day) => !isHeld(day)))
      return { effect, difference, isStored, movedFrom: [...effect.movedFrom.keys()] }
    }).catch((error: unknown) => {
      if (codeOf(error) !== NO_PARTITION) throw error
      // The table was moved into months since it was last looked at.
      forgetLayouts(warehouse)
      throw new TransientError(messageOf(error), { cause: error })
    })
  })
  sifted.rows.release()
  return loaded
}

interface Before {
  prior: PriorCoverage
  snapshot: WindowSnapshot
  identified: IdentifiedRejects
  difference: string | undefined
}

async function replaceRows(
  run: Run,
  tx: Transaction,
  load: LoadableWindow,
  { prior, snapshot, identified, difference }: Before,
): Promise<Effect> {
  const { projectStream, stream, range, sifted, read, comparison } = load
  const isWhole = comparison.differences.length + comparison.uncompared.length === 0
  const window = {
    ...{ projectId: projectStream.projectId, stream, range, rows: sifted.rows, rowsByDay: sifted.rowsByDay },
    // Days that were not compared may lack rows.
    mayDelete: identified.undismissed === 0 && (run.acceptDeletes || isWhole),
    acceptDeletes: run.acceptDeletes,
    heldBefore: new Set([...prior.states].flatMap(([day, state]) => (state === 'held' ? [day] : []))),
    proven: provenDays(run, load, prior),
    fencingToken: read.fencingToken,
  }
  if (difference === undefined || mayStore(load, snapshot)) return replaceWindow(tx, snapshot, window)
  return { ...effectOf(window, new Map()), unchanged: 0, rowsByDay: new Map([[range.from, snapshot.count]]) }
}

/**
 * Rows of a day that does not add up stay as they are. On a first load, the new rows are stored, unless they exceed the totals:
 * right rows that come later would not prove that these were wrong.
 */
function mayStore({ stream }: LoadableWindow, { count }: WindowSnapshot): boolean {
  return count === 0 && stream.control !== 'brand limits'
}

/** A prompt can move to another topic or country. An answer stays with its prompt and channel. */
const MOVABLE: readonly string[] = ['topic_id', 'country_code']
const FIXED: readonly string[] = ['prompt_id', 'chat_id', 'model_channel_id']

/**
 * Days whose new rows add up to the totals that the service had before. They lose nothing: either the stored rows did not add up,
 * or prompts moved to other groups. Without the list of prompts, a report whose groups are ignored would look the same.
 */
function provenDays(run: Run, { stream, comparison }: LoadableWindow, { compared }: PriorCoverage): Set<Day> {
  const { dimensions = [], control } = stream
  if (control === 'brand limits') return new Set()
  const isMovable =
    dimensions.some((name) => MOVABLE.includes(name)) && !dimensions.some((name) => FIXED.includes(name))
  const mayMove = isMovable && comparison.comparesAll && run.streams.get('prompts') !== undefined
  const isProven = (day: Day) => {
    const { isReconciled, digest } = comparison.of(day)
    const before = compared.get(day)!
    const isSame = digest?.counts === before.counts && digest.answers === before.answers
    return isReconciled && isSame && (before.differs || mayMove)
  }
  return new Set([...compared.keys()].filter(isProven))
}

/** How a day differs from the control totals, unless the service may still write it. Such a window has one day. */
function finalDifference({ provisionalFrom }: Run, { comparison }: LoadableWindow): string | undefined {
  return comparison.differences.find(({ day }) => day < provisionalFrom)?.text
}

/** What the ledger remembers of a window: coverage, rejects, restatements, and days of other streams to read again. */
async function saveWindowLedger(
  run: Run,
  tx: Transaction,
  load: LoadableWindow,
  { prior, effect, identified }: { prior: PriorCoverage; effect: Effect; identified: IdentifiedRejects },
): Promise<void> {
  const { warehouse, runId } = run
  const { projectStream, stream, range, sifted, read, comparison } = load
  const heldDays = effect.held?.days
  const isUnreconciled = finalDifference(run, load) !== undefined
  const stateOf = (day: Day) => {
    if (heldDays?.has(day)) return 'held'
    if (isUnreconciled) return 'unreconciled'
    return identified.undismissed > 0 ? 'quarantined' : 'read'
  }
  // Only what was stored as it was read can be reconciled.
  const isStored = (day: Day) =>
    stateOf(day) === 'read' && (effect.rowsByDay.get(day) ?? 0) === (sifted.rowsByDay.get(day) ?? 0)
  const comparisonOf = (day: Day) => ({ ...comparison.of(day), ...(!isStored(day) && { isReconciled: false }) })
  const entry = { projectStream, range, rowsByDay: effect.rowsByDay, stateOf, comparisonOf, runId, ...read }
  const coverage = coverageEntry(warehouse, entry)
  if (isControl(stream)) {
    const rows = rowsOf(sifted.rows)
    const key = { projectId: projectStream.projectId, filters: stream.filters ?? [] }
    const control = controlDays(stream, range, { ...sifted, rows })
    const [days] = await runBatch(tx.client, controlEntry(warehouse, key, control, runId))
    await markDiffering(tx, { projectId: projectStream.projectId, streams: run.streams.byDay, days })
  }
  // A row whose key has no date may have moved here from another day.
  const lost = [...effect.movedFrom].map(([day, rows]): [Day, number] => [day, -rows])
  await adjustRows(tx, projectStream, lost, true)
  if (!prior.hasRejects && sifted.rejects.length === 0) tx.atCommit.push(coverage)
  else {
    // Which rejects are resolved depends on it.
    await runBatch(tx.client, coverage)
    await saveRejects(tx, projectStream, identified, { range, runId, heldDays })
    await resolveWindowRejects(tx, projectStream, range)
  }
  const restated = await saveRestatements(tx, projectStream, effect.byDay, { readBefore: prior.states, runId })
  const isRegrouped = run.regrouped.has(streamKey(projectStream.projectId, stream.name))
  const others = isRegrouped ? [] : run.dayStreams.filter((name) => name !== projectStream.stream)
  // Days within the lookback are read again by every run anyway.
  const older = restated.filter((day) => day < run.lookbackFrom)
  await markStale(tx, projectStream.projectId, { streams: others, days: older, runId })
}

/** Every answer belongs to a prompt and a model, so every row of a report by them has one. */
const ALWAYS_SET = new Set(['prompt_id', 'model_id', 'chat_id'])

/** Where the warehouse shows that a project has values of a dimension that not every row needs to have. */
const SHOWN_BY: Record<string, { table: string; condition: string }> = {
  topic_id: { table: 'prompts', condition: 'topic_id is not null and removed_at is null' },
  tag_id: { table: 'prompt_tags', condition: 'true' },
  country_code: { table: 'prompts', condition: 'country_code is not null and removed_at is null' },
  model_channel_id: { table: 'chats', condition: 'model_channel_id is not null' },
}

interface Answered {
  projectId: string
  range: Range
  about: string
  /** Dimensions that were asked for and that no row has. */
  dimensions: readonly string[]
}

/**
 * Refuses an answer of which no row has a dimension that was asked for, although the project has values for it. If the chats of these
 * days are known, only prompts that they belong to count.
 */
async function refuseIgnoredDimensions(
  { warehouse, retry }: Run,
  { projectId, range, about, dimensions }: Answered,
): Promise<void> {
  const chats = `select from ${tableName(warehouse, 'chats')} c where c.project_id = $1 and c.date between $2 and $3`
  for (const dimension of dimensions) {
    const shown = SHOWN_BY[dimension]
    const hasValues = async () => {
      const { rows } = await warehouse.pool.query<{ found: boolean }>(
        `select exists (select from ${tableName(warehouse, shown!.table)} v where project_id = $1 and ${shown!.condition}
           and (exists (${chats} and c.prompt_id = v.prompt_id) or not exists (${chats}))) as found`,
        [projectId, range.from, range.to],
      )
      return rows[0]!.found
    }
    const isIgnored = ALWAYS_SET.has(dimension) || (shown !== undefined && (await retry(hasValues)))
    if (isIgnored) throw new BadPageError(`${about}: the service ignored the dimension ${dimension}`)
  }
}
