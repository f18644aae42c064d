import { sql } from 'kysely'
import type { Range } from '../core/day.ts'
import { quote } from '../core/identifier.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { hasQueue } from './boss.ts'
import { liveWorkers, type WorkerState } from './workers.ts'

/* The state of the queue, and windows that its runs gave up, for people to see until the days are read. */

interface DeadWindow {
  id: number
  project: string
  stream: string
  range: Range | undefined
  reason: string
  since: Date
}

export interface NewDeadWindow {
  runId: number
  project: string
  stream: string
  range: Range | undefined
  reason: string
}

export async function saveDeadWindows({ ops, redactor }: Warehouse, windows: readonly NewDeadWindow[]): Promise<void> {
  if (windows.length === 0) return
  const runs = windows.map(({ runId }) => runId)
  const projects = windows.map(({ project }) => project)
  const streams = windows.map(({ stream }) => stream)
  const from = windows.map(({ range }) => range?.from ?? null)
  const to = windows.map(({ range }) => range?.to ?? null)
  const reasons = windows.map(({ reason }) => redactor.text(reason))
  await ops
    .insertInto('dead_windows')
    .columns(['run_id', 'project_id', 'stream', 'from_date', 'to_date', 'reason'])
    .expression(
      sql`select * from unnest(${runs}::bigint[], ${projects}::text[], ${streams}::text[], ${from}::date[], ${to}::date[],
            ${reasons}::text[])` as never,
    )
    .execute()
}

/** True for a dead window of which a day, or the list, was not read since. Any run may have read it, also one without a queue. */
function isUnread(opsSchema: string) {
  return sql<boolean>`exists (
    select from generate_series(coalesce(d.from_date, current_date), coalesce(d.to_date, current_date), interval '1 day') day
    where not exists (
      select from ${sql.id(opsSchema, 'coverage')} c
      where c.project_id = d.project_id and c.stream = d.stream and c.read_at > d.failed_at
        and (d.from_date is null or c.date = day::date)))`
}

export async function pruneDeadWindows({ ops, opsSchema }: Warehouse): Promise<void> {
  await ops
    .deleteFrom('dead_windows as d')
    .where((eb) => eb.not(isUnread(opsSchema)))
    .execute()
}

/** The latest word on each window that is still to be read. */
async function readDeadWindows({ ops, opsSchema }: Warehouse): Promise<DeadWindow[]> {
  const rows = await ops
    .selectFrom('dead_windows as d')
    .distinctOn(['project_id', 'stream', 'from_date', 'to_date'])
    .selectAll()
    .where(isUnread(opsSchema))
    .orderBy('project_id')
    .orderBy('stream')
    .orderBy('from_date')
    .orderBy('to_date')
    .orderBy('dead_id', 'desc')
    .execute()
  return rows.map(({ dead_id, project_id, stream, from_date, to_date, reason, failed_at }) => ({
    id: dead_id,
    project: project_id,
    stream,
    range: from_date === null ? undefined : { from: from_date, to: to_date! },
    reason,
    since: failed_at,
  }))
}

/** The shared queue at a glance. */
export interface QueueStatus {
  /** The queue of the present configuration. */
  queue: string
  /** `is_current` is false for workers of another configuration: they do nothing for the runs of this one. */
  workers: (WorkerState & { is_current: boolean })[]
  /** Windows that nobody has begun, and those being worked at. */
  waiting: number
  active: number
  /** When the oldest window that waits was put in. */
  oldest: Date | null
  /** Windows that were given up after several attempts. */
  dead: DeadWindow[]
}

/** Undefined if this warehouse never had a queue. */
export async function readQueueStatus(warehouse: Warehouse, queue: string): Promise<QueueStatus | undefined> {
  if (!(await hasQueue(warehouse))) return undefined
  const [workers, counts, dead] = await Promise.all([
    liveWorkers(warehouse),
    warehouse.pool.query<{ waiting: number; active: number; oldest: Date | null }>(
      `select count(*) filter (where state = 'queued') as waiting, count(*) filter (where state = 'taken') as active,
         min(queued_at) filter (where state = 'queued') as oldest
       from ${quote(warehouse.opsSchema, 'run_windows')}`,
    ),
    readDeadWindows(warehouse),
  ])
  const known = workers.map((worker) => ({ ...worker, is_current: worker.queue === queue }))
  return { queue, workers: known, ...counts.rows[0]!, dead }
}
