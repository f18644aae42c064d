import { type Day, type Range, showRange } from '../../core/day.ts'
import { codeOf, messageOf, TransientError } from '../../core/errors.ts'
import type { ProjectStream } from '../../core/stream-key.ts'
import { inSpan } from '../../core/trace.ts'
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
import { PackedRows } from '../../rows/packed-rows.ts'
import { refuseBadPage, type Sifted } from '../../rows/sift.ts'
import type { CallContext } from '../../source/client.ts'
import type { DayStream } from '../../streams/stream.ts'
import { type EntityMemory, rememberEntities, saveEntities } from '../../warehouse/load/entities.ts'
import { replaceWindow, type WindowSnapshot, windowSnapshot } from '../../warehouse/load/replace-window.ts'
import type { Effect } from '../../warehouse/load/window-effect.ts'
import { withRetries } from '../../warehouse/retry.ts'
import { ensureMonths, forgetLayouts } from '../../warehouse/schema/partitions.ts'
import { noteChangedDays } from '../../warehouse/schema/summaries.ts'
import { runBatch, type Statements } from '../../warehouse/statement.ts'
import { inTransaction, inTransactionWith, type Transaction } from '../../warehouse/transaction.ts'
import { readWindow } from '../read/read-window.ts'
import { knownWindow } from './known-window.ts'
import type { ItemResult, Loaded, Run, SyncedProject } from './run-types.ts'

const NO_PARTITION = '23514'

/** One window: read, sift, and load with its ledger entry, its quarantine and its drift in one transaction. */
export async function syncWindow(
  run: Run,
  project: SyncedProject,
  stream: DayStream,
  range: Range,
  context: CallContext,
): Promise<Loaded | Extract<ItemResult, { kind: 'split' }>> {
  const projectStream = { projectId: project.id, stream: stream.name }
  // Taken before the request is sent: the later request wins, because its number is higher.
  const read = await withRetries(run.warehouse, run.signal, () => beginRead(run.warehouse, projectStream, range))
  const known = knownWindow(run, projectStream, { stream, range, before: read })
  const pack = () => new PackedRows(stream.columns, project.id)
  const answer = await readWindow(run, { caller: project.caller, stream, range, known }, context, pack)
  if (answer.kind === 'split') {
    const { notes } = answer
    if (notes.length > 0) {
      const save = () => inTransaction(run.warehouse, (tx) => saveDrift(tx, projectStream, notes, run.runId))
      await withRetries(run.warehouse, run.signal, save)
    }
    return { kind: 'split', cappedAt: answer.cappedAt, pageLimit: run.limit.current }
  }
  const { sifted } = answer
  refuseBadPage(`${stream.name} ${showRange(range)}`, sifted, run.config.max_bad_share)
  const page = { pageRows: answer.pageRows, cappedAt: answer.cappedAt, pageLimit: run.limit.current }
  const load = { projectStream, stream, range, sifted, read, page }
  const loaded = await withRetries(run.warehouse, run.signal, async () => {
    if (stream.key.includes('date')) await ensureMonths(run.warehouse, stream.table, sifted.rowsByDay.keys())
    return inSpan('load', { 'visibility_sync.rows': sifted.rows.length }, () => loadWindow(run, load)).catch(
      (error: unknown) => {
        if (codeOf(error) !== NO_PARTITION) throw error
        // The table was moved into months since it was last looked at.
        forgetLayouts(run.warehouse)
        throw new TransientError(messageOf(error), { cause: error })
      },
    )
  })
  sifted.rows.release()
  return loaded
}

/** A window that was read, ready to be loaded. */
interface LoadableWindow {
  projectStream: ProjectStream
  stream: DayStream
  range: Range
  sifted: Sifted<PackedRows>
  read: BegunRead
  page: Pick<Loaded, 'pageRows' | 'cappedAt' | 'pageLimit'>
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
  const { projectStream, stream, range, sifted, read } = load
  const { rows, rowsByDay, rejects, entities } = sifted
  const identified = await identifyRejects(tx, projectStream, rejects)
  const effect = await replaceWindow(tx, warehouse, snapshot, {
    projectId: projectStream.projectId,
    stream,
    range,
    rows,
    rowsByDay,
    mayDelete: identified.undismissed === 0,
    acceptDeletes: run.acceptDeletes,
    heldBefore: new Set([...prior.states].flatMap(([day, state]) => (state === 'held' ? [day] : []))),
    fencingToken: read.fencingToken,
  })
  const days = [...effect.byDay.keys(), ...effect.movedFrom.keys()]
  const changed = { projectId: projectStream.projectId, table: stream.table, days }
  tx.atCommit.push(...noteChangedDays(warehouse, config, changed))
  const mayRename = range.to >= run.recentFrom
  const save = { projectId: projectStream.projectId, entities, labels: config.labels, memory: run.entities, mayRename }
  const fresh = await saveEntities(tx, save)
  await saveDrift(tx, projectStream, sifted.drift, runId)
  if (stream.isExtra) await forgetNotOffered(tx, projectStream)
  await saveWindowLedger(run, tx, load, { prior, effect, identified })
  const rowsRead = rows.length + rejects.length
  const summary = { range, rowsRead, rejects: identified.undismissed, effect }
  const loaded: Loaded = { kind: 'loaded', rowsByDay, ...load.page, summary }
  await run.beforeCommit?.(tx, loaded)
  // Asked to stop while loading: roll back rather than commit after the run is closed.
  run.signal.throwIfAborted()
  return { loaded, fresh }
}

/** What the ledger remembers of a window: coverage, rejects, restatements, and days of other streams to read again. */
async function saveWindowLedger(
  run: Run,
  tx: Transaction,
  { projectStream, range, sifted, read }: LoadableWindow,
  { prior, effect, identified }: { prior: PriorCoverage; effect: Effect; identified: IdentifiedRejects },
): Promise<void> {
  const { warehouse, runId } = run
  const heldDays = effect.held?.days
  const stateOf = (day: Day) => (heldDays?.has(day) ? 'held' : identified.undismissed > 0 ? 'quarantined' : 'read')
  const entry = { projectStream, range, rowsByDay: effect.rowsByDay, stateOf, runId, ...read }
  const coverage = coverageEntry(warehouse, entry)
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
