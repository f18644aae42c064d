import { addDays, type Range } from '../../core/day.ts'
import { inSpan } from '../../core/logger.ts'
import type { ProjectStream } from '../../core/vocabulary.ts'
import { type BegunRead, lockOfLoads } from '../../ledger/days.ts'
import { type IdentifiedRejects, identifyRejects } from '../../ledger/quarantine.ts'
import { forgetNotOffered, saveDrift } from '../../ledger/service-notes.ts'
import type { PackedRows } from '../../rows/packed-rows.ts'
import { type Reject, refuseBadPage, type Sifted } from '../../rows/sift.ts'
import { noEntities, type Stream } from '../../streams/stream.ts'
import type { RowsOfAll, together } from '../../warehouse/database.ts'
import { rememberEntities, saveEntities } from '../../warehouse/load/entities.ts'
import { inTransactionWith, type Transaction } from '../../warehouse/transaction.ts'
import type { Loaded, LoadSummary, Run } from './run.ts'

/** An answer that was read, ready to be loaded. Without a range it is a list. */
export interface LoadableAnswer<S extends Stream> {
  projectStream: ProjectStream
  stream: S
  range: Range | undefined
  sifted: Sifted<PackedRows>
  read: BegunRead
}

/** Throws if too many rows of an answer are bad and not dismissed. Gives those that are dismissed. */
export async function refuseBadAnswer(
  { warehouse, config, retry }: Run,
  about: string,
  projectStream: ProjectStream,
  { rows, rejects }: Sifted<PackedRows>,
): Promise<ReadonlySet<Reject>> {
  const { dismissed } = await retry(() => identifyRejects(warehouse, projectStream, rejects))
  const undismissed = rejects.filter((reject) => !dismissed.has(reject))
  refuseBadPage(about, { rows, rejects: undismissed }, config.max_bad_share)
  return dismissed
}

/** Writes rows, coverage and rejects, with the rows of a statement that was sent when the transaction began. */
type Write<Rows extends unknown[]> = (
  tx: Transaction,
  found: RowsOfAll<Rows>,
  identified: IdentifiedRejects,
) => Promise<Pick<LoadSummary, 'effect' | 'difference'> & { isStored: boolean }>

/**
 * Loads a window or a list in one transaction, under a lock of its project and stream: rows, entities, drift and ledger commit
 * together. The message that begins it also reads what was there before, because other loads of the stream wait for this one.
 */
export async function loadAnswer<S extends Stream, Rows extends unknown[]>(
  run: Run,
  { projectStream, range, sifted, read }: LoadableAnswer<S>,
  prior: ReturnType<typeof together<Rows>>,
  write: Write<Rows>,
): Promise<Loaded> {
  const { warehouse, config, runId, signal } = run
  const { rows, rowsByDay, rejects, entities } = sifted
  const load = async (tx: Transaction, found: RowsOfAll<Rows>) => {
    const identified = await identifyRejects(tx, projectStream, rejects)
    const { isStored, ...written } = await write(tx, found, identified)
    // Brands that appear only in an answer that was not stored may not exist.
    const fresh = await saveEntities(tx, {
      projectId: projectStream.projectId,
      entities: isStored ? entities : noEntities(),
      labels: config.labels,
      memory: run.entities,
      // Rows of older days have older names. Without a lookback, the day before today counts as well.
      mayRename: range !== undefined && range.to >= addDays(run.lookbackFrom, run.config.lookback_days === 0 ? -2 : -1),
    })
    await saveDrift(tx, projectStream, sifted.drift, runId)
    if (read.isNotOffered) await forgetNotOffered(tx, projectStream)
    const counts = { rowsRead: rows.length + rejects.length, rejects: identified.undismissed }
    const learned = { rowsByDay: [...rowsByDay], pageLimit: run.limit.current }
    const loaded: Loaded = { kind: 'loaded', summary: { range, ...counts, ...written }, ...learned }
    await run.beforeCommit?.(tx, loaded)
    // Asked to stop while loading: roll back rather than commit after the run is closed.
    signal.throwIfAborted()
    return { loaded, fresh }
  }
  const { loaded, fresh } = await inSpan('load', { 'visibility_sync.rows': rows.length }, () =>
    inTransactionWith(
      warehouse,
      [lockOfLoads(warehouse, projectStream), prior],
      (tx, [, [found]]) => load(tx, found!.rows),
      { signal },
    ),
  )
  rememberEntities(run.entities, fresh)
  return loaded
}
