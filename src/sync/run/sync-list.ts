import { dayOf } from '../../core/day.ts'
import { streamKey } from '../../core/vocabulary.ts'
import {
  beginRead,
  clearListStates,
  coverageEntry,
  coverageUnlessSuperseded,
  markStale,
  type PriorCoverage,
  type PriorList,
  priorList,
} from '../../ledger/coverage.ts'
import { type IdentifiedRejects, saveRejects } from '../../ledger/quarantine.ts'
import { PackedRows } from '../../rows/packed-rows.ts'
import { refuseBadPage } from '../../rows/sift.ts'
import type { CallContext } from '../../source/client.ts'
import type { DayStream, ListStream } from '../../streams/stream.ts'
import { projectName } from '../../warehouse/load/entities.ts'
import { type ListEffect, listSnapshots, replaceList } from '../../warehouse/load/replace-list.ts'
import type { Snapshot } from '../../warehouse/load/row-digest.ts'
import { runBatch, type Statements, type Transaction } from '../../warehouse/transaction.ts'
import { readList } from '../read/read-pages.ts'
import { type LoadableAnswer, loadAnswer } from './load-answer.ts'
import type { Loaded, Run, SyncedProject } from './run.ts'

/** One list: read whole, sifted, and loaded with its ledger entry, its quarantine and its drift in one transaction. */
export async function syncList(
  run: Run,
  project: SyncedProject,
  stream: ListStream,
  context: CallContext,
): Promise<Loaded> {
  const { warehouse, config } = run
  const projectStream = { projectId: project.id, stream: stream.name }
  const [read] = await run.retry(() => runBatch(warehouse.pool, beginRead(warehouse, projectStream)))
  const pack = () => new PackedRows(stream.columns, project.id)
  const sifted = await readList(
    run,
    {
      caller: project.caller,
      stream,
      rowsBefore: read.rowsBeforeByDay.size === 0 ? undefined : read.rowsBefore,
      acceptDeletes: run.acceptDeletes,
    },
    context,
    pack,
  )
  refuseBadPage(stream.name, sifted, config.max_bad_share)
  const list = { projectStream, stream, range: undefined, sifted, read, changedControl: [] }
  const questions: Statements<[PriorCoverage, PriorList, Snapshot[]]> = [
    // Nothing of the coverage is needed: a list that was superseded fails here.
    coverageUnlessSuperseded(
      warehouse,
      projectStream,
      { from: dayOf(read.readAt), to: '9999-12-31' },
      read.fencingToken,
    ),
    priorList(warehouse, projectStream),
    listSnapshots(warehouse, project.id, stream),
  ]
  return run.retry(() =>
    loadAnswer(run, list, questions, async (tx, [, prior, before], identified) => {
      const load = {
        projectId: project.id,
        stream,
        rows: sifted.rows,
        children: sifted.children,
        mayDelete: identified.undismissed === 0,
        acceptDeletes: run.acceptDeletes,
      }
      const effect = await replaceList(tx, load, config.disabled.includes('window-digest') ? [] : before)
      if (stream.name === 'project_profile') tx.atCommit.push(projectName(warehouse, project.id))
      await saveListLedger(run, tx, list, { effect, identified, prior })
      const regrouped = groupedBy(run, effect.regrouped)
      await markStale(tx, project.id, { streams: regrouped })
      for (const name of regrouped) run.regrouped.add(streamKey(project.id, name))
      return { effect, isStored: effect.held === undefined }
    }),
  )
}

/** Reports whose groups depend on these dimensions. The service counts the past of a prompt in its present groups. */
function groupedBy({ streams }: Run, dimensions: readonly string[]): string[] {
  const names = ({ dimensions: own = [], filters = [] }: DayStream) => [...own, ...filters.map(({ field }) => field)]
  return streams.byDay
    .filter((stream) => names(stream).some((name) => dimensions.includes(name)))
    .map(({ name }) => name)
}

/** Stores a list in the ledger: its rejects, and the day on which it was read. */
async function saveListLedger(
  { warehouse, runId }: Run,
  tx: Transaction,
  { projectStream, sifted, read }: LoadableAnswer<ListStream>,
  { effect, identified, prior }: { effect: ListEffect; identified: IdentifiedRejects; prior: PriorList },
): Promise<void> {
  const isHeld = effect.held !== undefined
  if (prior.isUnsettled || sifted.rejects.length > 0)
    await saveRejects(tx, projectStream, identified, { runId, isHeld })
  const state = isHeld ? 'held' : identified.undismissed > 0 ? 'quarantined' : 'read'
  const today = dayOf(read.readAt)
  if (prior.isUnsettled) await clearListStates(tx, projectStream, today)
  const range = { from: today, to: today }
  const rowsByDay = new Map([[today, effect.rows]])
  const entry = { projectStream, range, rowsByDay, stateOf: () => state, runId, ...read, heldSince: prior.heldSince }
  tx.atCommit.push(coverageEntry(warehouse, entry))
}
