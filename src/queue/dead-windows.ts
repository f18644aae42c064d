import { sql } from 'kysely'
import type { Day, Range } from '../core/day.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { hasQueue } from './boss.ts'
import { liveWorkers } from './workers.ts'

/* The state of the queue, and windows that its runs gave up, for people to see until the days are read. */

export interface DeadWindow {
  id: number
  project: string
  stream: string
  range: Range | undefined
  reason: string
  since: Date
}

export type NewDeadWindow = Omit<DeadWindow, 'id' | 'since'> & { runId: number }

export async function saveDeadWindows({ db, redactor }: Warehouse, windows: readonly NewDeadWindow[]): Promise<void> {
  if (windows.length === 0) return
  const rows = windows.map(({ runId, project, stream, range, reason }) => {
    const of = { run_id: runId, project_id: project, stream, from_date: range?.from, to_date: range?.to }
    return { ...of, reason: redactor.text(reason) }
  })
  const columns = sql`run_id, project_id, stream, from_date, to_date, reason`
  await sql`
    insert into ops.dead_windows (${columns})
    select ${columns} from json_populate_recordset(null::ops.dead_windows, ${JSON.stringify(rows)})`.execute(db)
}

/** A dead window `d` of which a day, or the list, was not read since. Any run may have read it, also one without a queue. */
const isUnread = sql`exists (
  select from generate_series(coalesce(d.from_date, current_date), coalesce(d.to_date, current_date), interval '1 day') day
  where not exists (
    select from ops.coverage c
    where c.project_id = d.project_id and c.stream = d.stream and c.read_at > d.failed_at
      and (d.from_date is null or c.date = day::date)))`

export async function pruneDeadWindows({ db }: Warehouse): Promise<void> {
  await sql`delete from ops.dead_windows d where not ${isUnread}`.execute(db)
}

/** The latest word on each window that is still to be read. */
async function readDeadWindows(warehouse: Warehouse): Promise<DeadWindow[]> {
  const { rows } = await sql<Omit<DeadWindow, 'range'> & { from: Day | null; to: Day }>`
    select distinct on (project_id, stream, from_date, to_date) dead_id as id, project_id as project, stream,
      from_date as from, to_date as to, reason, failed_at as since
    from ops.dead_windows d where ${isUnread}
    order by project_id, stream, from_date, to_date, dead_id desc`.execute(warehouse.db)
  return rows.map(({ from, to, ...window }) => ({ ...window, range: from === null ? undefined : { from, to } }))
}

export type QueueStatus = NonNullable<Awaited<ReturnType<typeof readQueueStatus>>>

/** Undefined if this warehouse never had a queue. */
export async function readQueueStatus(warehouse: Warehouse, queue: string) {
  if (!(await hasQueue(warehouse))) return undefined
  const [workers, counts, dead] = await Promise.all([
    liveWorkers(warehouse),
    // `oldest`: when the window that waits longest was put in.
    sql<{ waiting: number; active: number; oldest: Date | null }>`
      select count(*) filter (where state = 'queued') as waiting, count(*) filter (where state = 'taken') as active,
        min(queued_at) filter (where state = 'queued') as oldest
      from ops.run_windows`.execute(warehouse.db),
    readDeadWindows(warehouse),
  ])
  // Workers of another configuration do nothing for the runs of this one.
  const known = workers.map((worker) => ({ ...worker, is_current: worker.queue === queue }))
  return { queue, workers: known, ...counts.rows[0]!, dead }
}
