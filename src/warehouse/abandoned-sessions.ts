import type { ClientBase } from 'pg'
import { sleep } from '../core/waiting.ts'

export interface AbandonedOptions {
  /** How long a statement has been running. A living process waits no longer for most of them. */
  olderThanMs?: number
  /** How long to wait before looking again: rows that move are somebody's. */
  lookAgainMs?: number
  signal?: AbortSignal | undefined
}

interface Session {
  pid: number
  progress: string
}

/**
 * Ends sessions of ours whose process is gone while something between keeps their connection open. In the middle of a
 * statement such a session waits for its client for ever, with all its locks, and no time limit of the server ends it.
 * One that receives rows is seen to move, down to 256 kB in 15 seconds. One that sends rows is not, so it has to be older
 * than any living process would wait.
 */
export async function endAbandonedSessions(
  client: ClientBase,
  { olderThanMs = 30_000, lookAgainMs = 15_000, signal }: AbandonedOptions = {},
): Promise<number> {
  const find = async () => (await client.query<Session>(WAITING_FOR_CLIENT, [olderThanMs])).rows
  const before = await find()
  if (before.length === 0) return 0
  await sleep(lookAgainMs, signal)
  const after = await find()
  const stuck = after.filter(({ pid, progress }) =>
    before.some((known) => known.pid === pid && known.progress === progress),
  )
  await client.query('select pg_terminate_backend(pid) from unnest($1::int[]) pid', [stuck.map(({ pid }) => pid)])
  return stuck.length
}

// A pooler passes the name of the application on.
const WAITING_FOR_CLIENT = `
  select a.pid, concat_ws(' ', a.query_start, a.wait_event, p.bytes_processed) as progress
  from pg_stat_activity a left join pg_stat_progress_copy p on p.pid = a.pid
  where a.datname = current_database() and a.usename = current_user and a.application_name like 'visibility-sync%'
    and a.state = 'active' and a.pid <> pg_backend_pid() and a.query_start < now() - $1 * interval '1 millisecond'
    and (a.wait_event = 'ClientRead' or a.wait_event = 'ClientWrite' and a.query_start < now() - interval '2 minutes')`
