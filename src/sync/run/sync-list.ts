import { type Day, dayOf } from '../../core/day.ts'
import type { ProjectStream } from '../../core/stream-key.ts'
import { inSpan } from '../../core/trace.ts'
import {
  type BegunRead,
  beginRead,
  clearListStates,
  coverageEntry,
  coverageUnlessSuperseded,
  heldSince,
  isListUnsettled,
  lockOfLoads,
  type PriorCoverage,
} from '../../ledger/coverage.ts'
import { saveDrift } from '../../ledger/drift.ts'
import { forgetNotOffered } from '../../ledger/not-offered.ts'
import { type IdentifiedRejects, identifyRejects, saveRejects } from '../../ledger/quarantine.ts'
import { PackedRows } from '../../rows/packed-rows.ts'
import { refuseBadPage, type Sifted } from '../../rows/sift.ts'
import type { CallContext } from '../../source/client.ts'
import type { ListStream } from '../../streams/stream.ts'
import { type EntityMemory, rememberEntities, saveEntities } from '../../warehouse/load/entities.ts'
import { type ListSnapshot, listSnapshot } from '../../warehouse/load/list-snapshot.ts'
import { projectName } from '../../warehouse/load/projects.ts'
import { type ListEffect, replaceList } from '../../warehouse/load/replace-list.ts'
import { withRetries } from '../../warehouse/retry.ts'
import { runBatch, type Statements } from '../../warehouse/statement.ts'
import { inTransactionWith, type Transaction } from '../../warehouse/transaction.ts'
import { readList } from '../read/read-list.ts'
import type { Loaded, Run, SyncedProject } from './run-types.ts'

interface LoadableList {
  projectStream: ProjectStream
  stream: ListStream
  sifted: Sifted<PackedRows>
  read: BegunRead
}

/** One list: read whole, sifted, and loaded with its ledger entry, its quarantine and its drift in one transaction. */
export async function syncList(
  run: Run,
  project: SyncedProject,
  stream: ListStream,
  context: CallContext,
): Promise<Loaded> {
  const { warehouse, signal } = run
  const projectStream = { projectId: project.id, stream: stream.name }
  const [read] = await withRetries(warehouse, signal, () =>
    runBatch(warehouse.pool, beginRead(warehouse, projectStream)),
  )
  const pack = () => new PackedRows(stream.columns, project.id)
  const sifted = await readList(run, { caller: project.caller, stream, rowsBefore: read.rowsBefore }, context, pack)
  refuseBadPage(stream.name, sifted, run.config.max_bad_share)
  const list = { projectStream, stream, sifted, read }
  const sinceToday = { from: dayOf(read.readAt), to: '9999-12-31' }
  const withDigest = !run.config.disabled.includes('window-digest')
  const questions: Statements<[undefined, PriorCoverage, boolean, ListSnapshot]> = [
    lockOfLoads(warehouse, projectStream),
    // Nothing of the coverage is needed: this is where a list that was superseded fails.
    coverageUnlessSuperseded(warehouse, projectStream, sinceToday, read.fencingToken),
    isListUnsettled(warehouse, projectStream),
    listSnapshot(warehouse, { projectId: project.id, stream }, withDigest),
  ]
  const load = () =>
    inTransactionWith(
      warehouse,
      questions,
      (tx, [, , isUnsettled, snapshot]) => loadInTransaction(run, tx, list, { isUnsettled, snapshot }),
      signal,
    )
  const { loaded, fresh } = await withRetries(warehouse, signal, () =>
    inSpan('load', { 'visibility_sync.rows': sifted.rows.length }, load),
  )
  rememberEntities(run.entities, fresh)
  return loaded
}

async function loadInTransaction(
  run: Run,
  tx: Transaction,
  { projectStream, stream, sifted, read }: LoadableList,
  { isUnsettled, snapshot }: { isUnsettled: boolean; snapshot: ListSnapshot },
): Promise<{ loaded: Loaded; fresh: EntityMemory }> {
  const { warehouse, acceptDeletes, config } = run
  const { projectId } = projectStream
  const { rows, children, rejects, entities } = sifted
  const identified = await identifyRejects(tx, projectStream, rejects)
  const mayDelete = identified.undismissed === 0
  const effect = await replaceList(tx, warehouse, snapshot, {
    projectId,
    stream,
    rows,
    children,
    mayDelete,
    acceptDeletes,
  })
  const save = { projectId, entities, labels: config.labels, memory: run.entities, mayRename: false }
  const fresh = await saveEntities(tx, save)
  if (stream.name === 'project_profile') tx.atCommit.push(projectName(warehouse, projectId))
  if (stream.isExtra) await forgetNotOffered(tx, projectStream)
  await saveListLedger(run, tx, { projectStream, sifted, read }, { effect, identified, isUnsettled })
  const loaded: Loaded = {
    kind: 'loaded',
    summary: { range: undefined, rowsRead: rows.length + rejects.length, rejects: identified.undismissed, effect },
    rowsByDay: new Map(),
    pageLimit: run.limit.current,
    changedControl: [],
  }
  await run.beforeCommit?.(tx, loaded)
  // Asked to stop while loading: roll back rather than commit after the run is closed.
  run.signal.throwIfAborted()
  return { loaded, fresh }
}

/** What the ledger remembers of a list: rejects, drift, and the day on which it was read. */
async function saveListLedger(
  { warehouse, runId }: Run,
  tx: Transaction,
  { projectStream, sifted, read }: Omit<LoadableList, 'stream'>,
  { effect, identified, isUnsettled }: { effect: ListEffect; identified: IdentifiedRejects; isUnsettled: boolean },
): Promise<void> {
  const isHeld = effect.held !== undefined
  if (isUnsettled || sifted.rejects.length > 0) await saveRejects(tx, projectStream, identified, { runId, isHeld })
  await saveDrift(tx, projectStream, sifted.drift, runId)
  const state = isHeld ? 'held' : identified.undismissed > 0 ? 'quarantined' : 'read'
  const since = isHeld ? await heldSince(tx, projectStream) : undefined
  const today: Day = dayOf(read.readAt)
  if (isUnsettled) await clearListStates(tx, projectStream, today)
  const range = { from: today, to: today }
  const rowsByDay = new Map([[today, effect.rows]])
  const entry = { projectStream, range, rowsByDay, stateOf: () => state, runId, ...read, heldSince: since }
  tx.atCommit.push(coverageEntry(warehouse, entry))
}
