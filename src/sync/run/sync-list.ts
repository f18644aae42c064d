import { type Day, dayOf } from '../../core/day.ts'
import { inSpan } from '../../core/trace.ts'
import {
  beginRead,
  clearListStates,
  heldSince,
  lockOfLoads,
  priorCoverage,
  saveCoverage,
} from '../../ledger/coverage.ts'
import { saveDrift } from '../../ledger/drift.ts'
import { forgetNotOffered } from '../../ledger/not-offered.ts'
import { identifyRejects, saveRejects } from '../../ledger/quarantine.ts'
import { PackedRows } from '../../rows/packed-rows.ts'
import { refuseBadPage } from '../../rows/sift.ts'
import type { CallContext } from '../../source/client.ts'
import type { ListStream } from '../../streams/stream.ts'
import { rememberMentions, saveMentions } from '../../warehouse/load/mentions.ts'
import { nameProject } from '../../warehouse/load/projects.ts'
import { replaceList } from '../../warehouse/load/replace-list.ts'
import { withRetries } from '../../warehouse/retry.ts'
import { runBatch } from '../../warehouse/statement.ts'
import { inTransaction } from '../../warehouse/transaction.ts'
import { readList } from '../read/read-list.ts'
import type { Loaded, Run, SyncedProject } from './context.ts'

/** One list: read whole, sifted, and loaded with its ledger entry, its quarantine and its drift in one transaction. */
export async function syncList(
  run: Run,
  project: SyncedProject,
  stream: ListStream,
  context: CallContext,
): Promise<Loaded> {
  const { warehouse, runId } = run
  const projectStream = { projectId: project.id, stream: stream.name }
  const read = await withRetries(run.warehouse, run.signal, () => beginRead(warehouse, projectStream))
  const pack = () => new PackedRows(stream.columns, project.id)
  const sifted = await readList(run, { caller: project.caller, stream }, context, pack)
  const { rows, children, rejects, mentions, drift } = sifted
  refuseBadPage(stream.name, sifted, run.config.max_bad_share)
  const today: Day = dayOf(read.readAt)
  const load = () =>
    inTransaction(
      warehouse,
      async (tx) => {
        const sinceToday = { from: today, to: '9999-12-31' }
        const before = priorCoverage(warehouse, projectStream, sinceToday, read.fencingToken)
        await runBatch(tx.client, lockOfLoads(warehouse, projectStream), before)
        const acceptDeletes = run.acceptDeletes
        const identified = await identifyRejects(tx, projectStream, rejects)
        const load = {
          projectId: project.id,
          stream,
          rows,
          children,
          mayDelete: identified.undismissed === 0,
          acceptDeletes,
        }
        const effect = await replaceList(tx, warehouse, load)
        const save = {
          projectId: project.id,
          mentions,
          labels: run.config.labels,
          memory: run.mentions,
          mayRename: false,
        }
        const fresh = await saveMentions(tx, save)
        if (stream.name === 'project_profile') await nameProject(tx, warehouse, project.id)
        await saveRejects(tx, projectStream, identified, { runId, isHeld: effect.held !== undefined })
        await saveDrift(tx, projectStream, drift, runId)
        if (stream.isExtra) await forgetNotOffered(tx, projectStream)
        const state = effect.held !== undefined ? 'held' : identified.undismissed > 0 ? 'quarantined' : 'read'
        const since = state === 'held' ? await heldSince(tx, projectStream) : undefined
        await clearListStates(tx, projectStream, today)
        const range = { from: today, to: today }
        await saveCoverage(tx, {
          projectStream,
          range,
          rowsByDay: new Map([[today, effect.rows]]),
          stateOf: () => state,
          runId,
          ...read,
          heldSince: since,
        })
        const outcome = {
          range: undefined,
          rowsRead: rows.length + rejects.length,
          rejects: identified.undismissed,
          effect,
        }
        const facts = { rowsByDay: new Map(), pageRows: undefined, pageLimit: run.limit.current }
        const loaded: Loaded = { kind: 'loaded', outcome, ...facts }
        await run.beforeCommit?.(tx, loaded)
        run.signal.throwIfAborted()
        return { loaded, fresh }
      },
      run.signal,
    )
  const done = await withRetries(run.warehouse, run.signal, () =>
    inSpan('load', { 'visibility_sync.rows': rows.length }, load),
  )
  rememberMentions(run.mentions, done.fresh)
  return done.loaded
}
