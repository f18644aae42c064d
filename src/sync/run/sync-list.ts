import { dayOf } from '../../core/day.ts'
import {
  beginRead,
  begunRead,
  type DayState,
  markChanged,
  type PriorList,
  priorList,
  putDays,
  settleEarlierDays,
  superseded,
} from '../../ledger/days.ts'
import { type IdentifiedRejects, saveRejects } from '../../ledger/quarantine.ts'
import { PackedRows } from '../../rows/packed-rows.ts'
import type { CallContext } from '../../source/client.ts'
import type { DayStream, ListStream } from '../../streams/stream.ts'
import { together } from '../../warehouse/database.ts'
import { nameProject } from '../../warehouse/load/entities.ts'
import { type ListEffect, listSnapshots, replaceList } from '../../warehouse/load/replace-list.ts'
import { readSnapshot, type SnapshotRow } from '../../warehouse/load/row-digest.ts'
import type { Transaction } from '../../warehouse/transaction.ts'
import { readList } from '../read/read-pages.ts'
import { type LoadableAnswer, loadAnswer, refuseBadAnswer } from './load-answer.ts'
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
  const begun = await run.retry(() => beginRead(warehouse, projectStream).execute(warehouse.db))
  const read = begunRead(begun.rows[0]!)
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
  await refuseBadAnswer(run, stream.name, projectStream, sifted)
  const list = { projectStream, stream, range: undefined, sifted, read }
  const queries = together<[PriorList, SnapshotRow]>(priorList(projectStream), listSnapshots(project.id, stream))
  return run.retry(() =>
    loadAnswer(run, list, queries, async (tx, [[prior], snapshots], identified) => {
      if (Number(prior!.newestToken) > read.fencingToken) throw superseded(stream.name)
      const before = config.disabled.includes('window-digest') ? [] : snapshots.map(readSnapshot)
      const load = {
        projectId: project.id,
        stream,
        rows: sifted.rows,
        children: sifted.children,
        mayDelete: identified.undismissed === 0,
        acceptDeletes: run.acceptDeletes,
      }
      const effect = await replaceList(tx, load, before)
      if (stream.name === 'project_profile') tx.atCommit.push(nameProject(project.id))
      await saveListLedger(run, tx, list, { effect, identified, prior: prior! })
      if (effect.regrouped.length > 0)
        await markChanged(tx, project.id, {
          streams: groupedBy(run, effect.regrouped),
          besides: run.streams.byDay.map(({ name }) => name),
        })
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

async function saveListLedger(
  { runId }: Run,
  tx: Transaction,
  { projectStream, sifted, read }: LoadableAnswer<ListStream>,
  { effect, identified, prior }: { effect: ListEffect; identified: IdentifiedRejects; prior: PriorList },
): Promise<void> {
  const isHeld = effect.held !== undefined
  if (prior.isUnsettled || sifted.rejects.length > 0)
    await saveRejects(tx, projectStream, identified, { runId, isHeld })
  const state: DayState = isHeld ? 'vanishing' : identified.undismissed > 0 ? 'rejects' : 'settled'
  const today = dayOf(read.readAt)
  if (prior.isUnsettled) await settleEarlierDays(tx, projectStream, today)
  const day = { range: { from: today, to: today }, dayOf: () => ({ rows: effect.rows, state }) }
  tx.atCommit.push(putDays({ projectStream, ...day, runId, ...read, reviewedSince: prior.reviewedSince }))
}
