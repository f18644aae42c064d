import { countDays, type Day, type Range, showRange } from '../../core/day.ts'
import { codeOf, messageOf, TransientError } from '../../core/errors.ts'
import type { ProjectStream } from '../../core/stream-key.ts'
import { inSpan } from '../../core/trace.ts'
import { controlEntry, controlOf, notAdditive } from '../../ledger/control-totals.ts'
import {
  adjustRows,
  type BegunRead,
  beginRead,
  coverageEntry,
  coverageUnlessSuperseded,
  lockOfLoads,
  markOthersStale,
  type PriorCoverage,
} from '../../ledger/coverage.ts'
import { saveDrift } from '../../ledger/drift.ts'
import { forgetNotOffered } from '../../ledger/not-offered.ts'
import { type IdentifiedRejects, identifyRejects, resolveWindowRejects, saveRejects } from '../../ledger/quarantine.ts'
import { saveRestatements } from '../../ledger/restatements.ts'
import type { DriftNote } from '../../rows/drift-notes.ts'
import { PackedRows } from '../../rows/packed-rows.ts'
import { type FoundDays, refuseBadPage, type Sifted } from '../../rows/sift.ts'
import type { CallContext } from '../../source/client.ts'
import { type DayStream, isControl } from '../../streams/stream.ts'
import { type EntityMemory, rememberEntities, saveEntities } from '../../warehouse/load/entities.ts'
import { replaceWindow, type WindowSnapshot, windowSnapshot } from '../../warehouse/load/replace-window.ts'
import { type Effect, effectOf } from '../../warehouse/load/window-effect.ts'
import { withRetries } from '../../warehouse/retry.ts'
import { ensureMonths, forgetLayouts } from '../../warehouse/schema/partitions.ts'
import { runBatch, type Statements } from '../../warehouse/statement.ts'
import { inTransaction, inTransactionWith, type Transaction } from '../../warehouse/transaction.ts'
import { readWindow } from '../read/read-window.ts'
import { type Control, compareWindow, needsProof, type WindowComparison } from '../reconcile/compare-window.ts'
import { refuseIgnoredDimensions } from '../reconcile/ignored-dimensions.ts'
import { proveNotAdditive } from '../reconcile/prove-not-additive.ts'
import { readControl, rowDigests } from '../reconcile/read-control.ts'
import { knownWindow } from './known-window.ts'
import type { ItemResult, Loaded, Run, SyncedProject } from './run-types.ts'

const NO_PARTITION = '23514'
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
      return { kind: 'shorten' }
    case 'split':
      await saveNotes(run, projectStream, answer.notes)
      return { kind: 'split', pageLimit: run.limit.current }
    case 'disagreed':
      return answer
  }
  const load = { projectStream, stream, range, read, ...answer }
  const loaded = await withRetries(run.warehouse, run.signal, async () => {
    if (stream.key.includes('date')) await ensureMonths(run.warehouse, stream.table, answer.sifted.rowsByDay.keys())
    return inSpan('load', { 'visibility_sync.rows': answer.sifted.rows.length }, () => loadWindow(run, load)).catch(
      (error: unknown) => {
        if (codeOf(error) !== NO_PARTITION) throw error
        // The table was moved into months since it was last looked at.
        forgetLayouts(run.warehouse)
        throw new TransientError(messageOf(error), { cause: error })
      },
    )
  })
  answer.sifted.rows.release()
  return { ...loaded, changedControl }
}

/** A window whose read has begun. */
interface BegunWindow extends Window {
  read: BegunRead
  control: Control
}

/** Takes the fencing token before the request is sent: the later request wins, because its number is higher. */
async function beginWindow(
  { warehouse, runId, signal }: Run,
  { project, stream, range }: Window,
): Promise<{ read: BegunRead; control: Control }> {
  const projectStream = { projectId: project.id, stream: stream.name }
  const [read, totals, ignored] = await withRetries(warehouse, signal, () =>
    runBatch(
      warehouse.pool,
      beginRead(warehouse, projectStream, range),
      controlOf(warehouse, { projectId: project.id, filters: stream.filters ?? [] }, range, runId),
      notAdditive(warehouse, projectStream),
    ),
  )
  return { read, control: { totals, ignored } }
}

type Answer =
  | { kind: 'rows'; sifted: Sifted<PackedRows>; comparison: WindowComparison }
  | { kind: 'split'; notes: DriftNote[] }
  | { kind: 'too-long' }

async function readAndCompare(run: Run, window: BegunWindow, context: CallContext): Promise<Answer> {
  const { project, stream, range, read, control } = window
  const projectStream = { projectId: project.id, stream: stream.name }
  const compare = (found: FoundDays) => compareWindow(stream, range, found, control)
  const known = {
    ...knownWindow(run, projectStream, { stream, range, before: read }),
    needsProof: (found: FoundDays) =>
      needsProof(compare(found), { stream, range, rowsBefore: read.rowsBeforeByDay }, found, control.ignored),
  }
  const pack = () => new PackedRows(stream.columns, project.id)
  const answer = await readWindow(run, { caller: project.caller, stream, range, known }, context, pack)
  if (answer.kind !== 'rows') return answer
  const { sifted } = answer
  const about = `${stream.name} ${showRange(range)}`
  refuseBadPage(about, sifted, run.config.max_bad_share)
  await refuseIgnoredDimensions(run, { projectId: project.id, about, dimensions: sifted.absent })
  return { kind: 'rows', sifted, comparison: compare(sifted) }
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
    const { differences } = (answer as Extract<Answer, { kind: 'rows' }>).comparison
    const measure = await proveNotAdditive(run, { project, stream, differences }, context)
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
    answer = await readAndCompare(run, { ...window, control: { ...control, totals: again.totals } }, context)
  }
  return { answer, changedControl: [...new Set(changedControl)] }
}

async function saveNotes(run: Run, projectStream: ProjectStream, notes: DriftNote[]): Promise<void> {
  if (notes.length === 0) return
  const save = () => inTransaction(run.warehouse, (tx) => saveDrift(tx, projectStream, notes, run.runId))
  await withRetries(run.warehouse, run.signal, save)
}

/** A window that was read, ready to be loaded. */
interface LoadableWindow {
  projectStream: ProjectStream
  stream: DayStream
  range: Range
  sifted: Sifted<PackedRows>
  comparison: WindowComparison
  read: BegunRead
}

async function loadWindow(run: Run, load: LoadableWindow): Promise<Loaded> {
  const { rows } = load.sifted
  // An empty window gets its rows in the order of the index, which is better found before other loads wait for this one.
  if (load.read.rowsBefore === 0) rows.reorder()
  const { warehouse, config, signal } = run
  const { projectStream, stream, range, read } = load
  // The setting `disabled` switches ways to save work off, to find out whether one of them is at fault.
  const withDigest = !config.disabled.includes('window-digest')
  // In one message, because other loads of the stream wait for this one.
  const questions: Statements<[undefined, PriorCoverage, WindowSnapshot]> = [
    lockOfLoads(warehouse, projectStream),
    coverageUnlessSuperseded(warehouse, projectStream, range, read.fencingToken),
    windowSnapshot(warehouse, { projectId: projectStream.projectId, stream, range }, withDigest),
  ]
  const { loaded, fresh } = await inTransactionWith(
    warehouse,
    questions,
    (tx, [, prior, snapshot]) => loadInTransaction(run, tx, load, { prior, snapshot }),
    signal,
  )
  rememberEntities(run.entities, fresh)
  return loaded
}

async function loadInTransaction(
  run: Run,
  tx: Transaction,
  load: LoadableWindow,
  { prior, snapshot }: { prior: PriorCoverage; snapshot: WindowSnapshot },
): Promise<{ loaded: Loaded; fresh: EntityMemory }> {
  const { warehouse, config, runId } = run
  const { projectStream, stream, range, sifted, read, comparison } = load
  const { rows, rowsByDay, rejects, entities } = sifted
  const identified = await identifyRejects(tx, projectStream, rejects)
  const difference = unreconciled(run, load)
  const agrees = comparison.differences.length + comparison.uncompared.length === 0
  const windowLoad = {
    projectId: projectStream.projectId,
    stream,
    range,
    rows,
    rowsByDay,
    mayDelete: identified.undismissed === 0 && agrees,
    acceptDeletes: run.acceptDeletes,
    heldBefore: new Set([...prior.states].flatMap(([day, state]) => (state === 'held' ? [day] : []))),
    fencingToken: read.fencingToken,
  }
  // Rows that are there stay as they are. On a first load the new rows are stored with their state.
  const effect =
    difference !== undefined && snapshot.count > 0
      ? keptRows(windowLoad, snapshot)
      : await replaceWindow(tx, warehouse, snapshot, windowLoad)
  const mayRename = range.to >= run.recentFrom
  const save = { projectId: projectStream.projectId, entities, labels: config.labels, memory: run.entities, mayRename }
  const fresh = await saveEntities(tx, save)
  await saveDrift(tx, projectStream, sifted.drift, runId)
  if (stream.isExtra) await forgetNotOffered(tx, projectStream)
  await saveWindowLedger(run, tx, load, { prior, effect, identified })
  const rowsRead = rows.length + rejects.length
  const summary = { range, rowsRead, rejects: identified.undismissed, effect, difference }
  const pageLimit = run.limit.current
  const loaded: Loaded = { kind: 'loaded', rowsByDay, pageLimit, summary, changedControl: [] }
  await run.beforeCommit?.(tx, loaded)
  // Asked to stop while loading: roll back rather than commit after the run is closed.
  run.signal.throwIfAborted()
  return { loaded, fresh }
}

/** How the day of a window differs from the control totals, unless it may still be written. */
function unreconciled({ provisionalFrom }: Run, { comparison: { differences } }: LoadableWindow): string | undefined {
  return differences.find(({ day }) => day < provisionalFrom)?.text
}

/** The effect of an answer of which nothing was stored. */
function keptRows(load: Parameters<typeof effectOf>[0], { count }: WindowSnapshot): Effect {
  return { ...effectOf(load, new Map()), unchanged: 0, rowsByDay: new Map([[load.range.from, count]]) }
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
  const isUnreconciled = unreconciled(run, load) !== undefined
  const stateOf = (day: Day) => {
    if (heldDays?.has(day)) return 'held'
    if (isUnreconciled) return 'unreconciled'
    return identified.undismissed > 0 ? 'quarantined' : 'read'
  }
  // Only what was stored as it was read can be reconciled.
  const comparisonOf = (day: Day) => ({
    ...comparison.of(day),
    ...(stateOf(day) !== 'read' && { isReconciled: false }),
  })
  const entry = { projectStream, range, rowsByDay: effect.rowsByDay, stateOf, comparisonOf, runId, ...read }
  const coverage = coverageEntry(warehouse, entry)
  if (isControl(stream) && sifted.rejects.length === 0) {
    const rows = Array.from({ length: sifted.rows.length }, (_, at) => sifted.rows.get(at))
    const days = { range, totals: sifted.totals!, rowDigests: rowDigests(stream, rows) }
    const key = { projectId: projectStream.projectId, filters: stream.filters ?? [] }
    tx.atCommit.push(controlEntry(warehouse, key, days, runId))
  }
  // A row whose key has no date may have moved here from another day.
  const leftOthers = [...effect.movedFrom].map(([day, count]) => [day, -count] as [Day, number])
  await adjustRows(tx, projectStream, leftOthers)
  if (!prior.hasRejects && sifted.rejects.length === 0) tx.atCommit.push(coverage)
  else {
    // Which rejects are resolved depends on it.
    await runBatch(tx.client, coverage)
    await saveRejects(tx, projectStream, identified, { range, runId, heldDays })
    await resolveWindowRejects(tx, projectStream, range)
  }
  const restated = await saveRestatements(tx, projectStream, prior.states, effect.byDay, runId)
  const others = run.dayStreams.filter((name) => name !== projectStream.stream)
  // Days within the lookback are read again by every run anyway.
  const older = restated.filter((day) => day < run.lookbackFrom)
  await markOthersStale(tx, projectStream, others, older, runId)
}
