import type { Day, Range } from '../../core/day.ts'
import { codeOf, messageOf, TransientError } from '../../core/errors.ts'
import { controlEntry } from '../../ledger/control-totals.ts'
import {
  adjustRows,
  coverageEntry,
  coverageUnlessSuperseded,
  markOthersStale,
  type PriorCoverage,
} from '../../ledger/coverage.ts'
import { type IdentifiedRejects, resolveWindowRejects, saveRejects } from '../../ledger/quarantine.ts'
import { saveRestatements } from '../../ledger/restatement-report.ts'
import { type DayStream, isControl } from '../../streams/stream.ts'
import { replaceWindow, type WindowSnapshot, windowSnapshot } from '../../warehouse/load/replace-window.ts'
import { type Effect, effectOf } from '../../warehouse/load/window-effect.ts'
import { withRetries } from '../../warehouse/retry.ts'
import { ensureMonths, forgetLayouts } from '../../warehouse/schema/partitions.ts'
import { noteChangedDays } from '../../warehouse/schema/summaries.ts'
import { runBatch, type Statements, type Transaction } from '../../warehouse/transaction.ts'
import type { WindowComparison } from '../reconcile/compare-window.ts'
import { controlDays } from '../reconcile/read-control.ts'
import { type LoadableAnswer, loadAnswer } from './load-answer.ts'
import type { Loaded, Run } from './run.ts'

const NO_PARTITION = '23514'

interface LoadableWindow extends LoadableAnswer<DayStream> {
  range: Range
  comparison: WindowComparison
}

/** Replaces a window, with its coverage, its rejects and its restatements. */
export async function loadWindow(run: Run, load: LoadableWindow): Promise<Loaded> {
  const { warehouse, config, signal } = run
  const { projectStream, stream, range, sifted, read } = load
  // An empty window gets its rows in the order of the index, which is better found before other loads wait for this one.
  if (read.rowsBefore === 0) sifted.rows.reorder()
  // The setting `disabled` switches ways to save work off, to find out whether one of them is at fault.
  const withDigest = !config.disabled.includes('window-digest')
  const questions: Statements<[PriorCoverage, WindowSnapshot]> = [
    coverageUnlessSuperseded(warehouse, projectStream, range, read.fencingToken),
    windowSnapshot(warehouse, { projectId: projectStream.projectId, stream, range }, withDigest),
  ]
  const loaded = await withRetries(warehouse, signal, async () => {
    if (stream.key.includes('date')) await ensureMonths(warehouse, stream.table, sifted.rowsByDay.keys())
    return loadAnswer(run, load, questions, async (tx, [prior, snapshot], identified) => {
      const difference = finalDifference(run, load)
      const effect = await replaceRows(run, tx, load, { prior, snapshot, identified, difference })
      const days = [...effect.byDay.keys(), ...effect.movedFrom.keys()]
      const changed = { projectId: projectStream.projectId, table: stream.table, days }
      tx.atCommit.push(...noteChangedDays(warehouse, config, changed))
      await saveWindowLedger(run, tx, load, { prior, effect, identified })
      return { effect, difference }
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
  { projectStream, stream, range, sifted, read, comparison }: LoadableWindow,
  { prior, snapshot, identified, difference }: Before,
): Promise<Effect> {
  const window = {
    ...{ projectId: projectStream.projectId, stream, range, rows: sifted.rows, rowsByDay: sifted.rowsByDay },
    // Days that were not compared may lack rows.
    mayDelete: identified.undismissed === 0 && comparison.differences.length + comparison.uncompared.length === 0,
    acceptDeletes: run.acceptDeletes,
    heldBefore: new Set([...prior.states].flatMap(([day, state]) => (state === 'held' ? [day] : []))),
    fencingToken: read.fencingToken,
  }
  // Rows of a day that does not add up stay as they are. On a first load, the new rows are stored.
  if (difference === undefined || snapshot.count === 0) return replaceWindow(tx, run.warehouse, snapshot, window)
  return { ...effectOf(window, new Map()), unchanged: 0, rowsByDay: new Map([[range.from, snapshot.count]]) }
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
    const rows = Array.from({ length: sifted.rows.length }, (_, at) => sifted.rows.get(at))
    const key = { projectId: projectStream.projectId, filters: stream.filters ?? [] }
    tx.atCommit.push(controlEntry(warehouse, key, controlDays(stream, range, { ...sifted, rows }), runId))
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
