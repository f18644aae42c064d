import { type Generated, Kysely, PostgresDialect } from 'kysely'
import type { Pool, PoolClient } from 'pg'

/* The ops schema as Kysely sees it. */

export type RunOutcome = 'complete' | 'partial' | 'failed' | 'interrupted'
export type CoverageState = 'read' | 'quarantined' | 'held' | 'stale' | 'unreconciled'

/** The ops schema: the ledger and the queue's own tables. */
export interface OpsTables {
  runs: {
    run_id: Generated<number>
    command: string
    started_at: Generated<Date>
    ended_at: Date | null
    outcome: RunOutcome | null
    host: string
    pid: number
    version: string
    source: string
    summary: unknown
    error: string | null
    lease_expires_at: Date | null
    process: Generated<string>
    lock_token: string | null
  }
  run_leases: { project_id: string; stream: string; run_id: number; is_shared: boolean }
  source: { only_row: Generated<boolean>; address: string; recorded_at: Generated<Date>; moved_from: string | null }
  coverage: {
    project_id: string
    stream: string
    date: string
    rows: number
    read_at: Date
    run_id: number
    state: CoverageState
    read_order: number
    held_since: Date | null
    reconciled_at: Date | null
    /** How it differs from the totals of the service, if it does. */
    difference: string | null
  }
  quarantine: {
    quarantine_id: Generated<number>
    project_id: string
    stream: string
    reason: string
    raw: unknown
    fingerprint: string
    from_date: string | null
    to_date: string | null
    run_id: number
    first_seen_at: Generated<Date>
    last_seen_at: Generated<Date>
    times_seen: Generated<number>
    occurrences: Generated<number>
    resolved_at: Date | null
    resolution: string | null
    dismissed_at: Date | null
    dismissed_because: string | null
  }
  drift: {
    project_id: string
    stream: string
    kind: string
    name: string
    example: string
    first_seen_at: Generated<Date>
    run_id: number
  }
  restatements: {
    project_id: string
    stream: string
    date: string
    rows_inserted: number
    rows_updated: number
    rows_deleted: number
    seen_at: Generated<Date>
    run_id: number
    cause: string | null
  }
  creations: {
    creation_id: Generated<number>
    project_id: string
    kind: 'prompt' | 'topic' | 'domain-classification' | 'url-classification'
    identity: string
    request: unknown
    state: 'sent' | 'created' | 'existing' | 'failed'
    id: string | null
    warning: string | null
    error: string | null
    attempts: Generated<number>
    sent_at: Generated<Date>
    settled_at: Date | null
  }
  workers: {
    worker_id: string
    host: string
    pid: number
    version: string
    concurrency: number
    started_at: Generated<Date>
    seen_at: Generated<Date>
    busy: Generated<number>
    done: Generated<number>
    source: string
    queue: string
    process: string
    state: Generated<'working' | 'backing off'>
    reason: string | null
  }
  run_windows: {
    window_id: string
    run_id: number
    queue: string
    project_id: string
    stream: string
    from_date: string | null
    to_date: string | null
    priority: number
    request: unknown
    state: Generated<'queued' | 'taken' | 'done'>
    worker_id: string | null
    failures: Generated<number>
    losses: Generated<number>
    queued_at: Generated<Date>
    taken_at: Date | null
    progress_at: Date | null
    stalls_at: Date | null
    result: unknown
  }
  request_budgets: { project_id: string; state: unknown; version: number; per_minute: number }
  alerts: {
    condition: string
    text: string
    /** The streams of projects that it concerns, if it can spread. */
    members: Generated<string[]>
    raised_at: Generated<Date>
    /** When the last message of this condition was sent. */
    told_at: Date | null
    /** False if some of it waits for the end of the quiet period. */
    is_told: Generated<boolean>
    cleared_at: Date | null
  }
  views: { name: string; fingerprint: string; made_at: Generated<Date> }
  reports: {
    name: string
    dimensions: string[]
    filters: unknown
    created_at: Generated<Date>
    of: Generated<string>
    having: unknown
  }
  not_offered: { project_id: string; stream: string; status: number; asked_at: Generated<Date> }
  unread_chats: { project_id: string; chat_id: string; status: number; asked_at: Generated<Date> }
  daily_requests: { project_id: string; stream: string; day: string; requests: number }
  custom_streams: { name: string; definition: unknown; created_at: Generated<Date> }
}

export type Ops = Kysely<OpsTables>

/** Typed queries of the ops schema. */
export function bindOps(opsSchema: string, pool: Pool): Ops {
  const dialect = new PostgresDialect({ pool: { connect: () => connect(pool), end: async () => {} } })
  return new Kysely<OpsTables>({ dialect }).withSchema(opsSchema)
}

/** Kysely releases a connection without its error. But one whose query got no answer must not be used again. */
async function connect(pool: Pool): Promise<PoolClient> {
  const client = await pool.connect()
  let failure: Error | undefined
  const query = (...args: Parameters<PoolClient['query']>) =>
    (client.query(...args) as unknown as Promise<unknown>).catch((error: Error) => {
      failure = error
      throw error
    })
  return { query, release: () => client.release(failure) } as unknown as PoolClient
}

/** A pool of one connection that is released elsewhere. Statements that are asked for at once are sent one after the other. */
export function poolOf(client: PoolClient): Pool {
  let last: Promise<unknown> = Promise.resolve()
  const query = (...args: Parameters<PoolClient['query']>) => {
    const next = last.then(() => client.query(...args))
    last = Promise.resolve(next).catch(() => {})
    return next
  }
  return { query, connect: async () => ({ query, release: () => {} }), end: async () => {} } as unknown as Pool
}
