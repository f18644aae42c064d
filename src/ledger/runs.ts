import { hostname } from 'node:os'
import { type Selectable, sql } from 'kysely'
import type { Warehouse } from '../warehouse/connect.ts'
import type { OpsTables, RunOutcome } from '../warehouse/database.ts'

export interface RunStart {
  command: string
  version: string
  /** Where the rows come from: an address, or the reference service. */
  source: string
}

export async function openRun(
  { db }: Pick<Warehouse, 'db'>,
  start: RunStart & { process: string; lock_token: string },
  leaseSeconds: number,
): Promise<number> {
  const lease_expires_at = sql<Date>`clock_timestamp() + make_interval(secs => ${leaseSeconds})`
  const open = { ended_at: null, outcome: null, summary: null, error: null }
  const { run_id } = await db
    .insertInto('ops.runs')
    .values({ ...start, ...open, host: hostname(), pid: process.pid, lease_expires_at })
    .returning('run_id')
    .executeTakeFirstOrThrow()
  return run_id
}

export async function closeRun(
  { db, redactor }: Warehouse,
  runId: number,
  end: { outcome: RunOutcome; summary: unknown; error: string | null },
): Promise<void> {
  const summary = redactor.json(JSON.stringify(end.summary))
  const error = end.error === null ? null : redactor.text(end.error)
  const update = db.updateTable('ops.runs').set({ outcome: end.outcome, summary, error, ended_at: sql`now()` })
  await update.where('run_id', '=', runId).execute()
}

export type RunDetail = Omit<Selectable<OpsTables['runs']>, 'lease_expires_at' | 'process' | 'lock_token'>
export type RunRow = Omit<RunDetail, 'version' | 'source'>

const HEAD = ['run_id', 'command', 'started_at', 'ended_at', 'outcome', 'host', 'pid', 'error'] as const

export function lastRuns({ db }: Warehouse, limit: number): Promise<RunRow[]> {
  const runs = db.selectFrom('ops.runs').select([...HEAD, 'summary'])
  return runs.orderBy('run_id', 'desc').limit(limit).execute()
}

/**
 * The last runs that read, without their summaries, which of many projects are megabytes. A program may create prompts one by
 * one, which would leave nothing else in the list.
 */
export function lastRunHeads({ db }: Warehouse, limit: number): Promise<Omit<RunRow, 'summary'>[]> {
  const runs = db.selectFrom('ops.runs').select(HEAD).where('command', 'not like', 'create %')
  return runs.orderBy('run_id', 'desc').limit(limit).execute()
}

export async function summaryOf({ db }: Warehouse, runId: number): Promise<unknown> {
  const row = await db.selectFrom('ops.runs').select('summary').where('run_id', '=', runId).executeTakeFirst()
  return row?.summary ?? null
}

export function findRun({ db }: Warehouse, runId: number): Promise<RunDetail | undefined> {
  const runs = db.selectFrom('ops.runs').select([...HEAD, 'summary', 'version', 'source'])
  return runs.where('run_id', '=', runId).executeTakeFirst()
}

/** The runs before and after a run. Their numbers need not follow each other: old runs are pruned. */
export async function neighboursOf({ db }: Warehouse, runId: number) {
  return db
    .selectFrom('ops.runs')
    .select((eb) => [
      eb.fn.max('run_id').filterWhere('run_id', '<', runId).as('previous'),
      eb.fn.min('run_id').filterWhere('run_id', '>', runId).as('next'),
    ])
    .executeTakeFirstOrThrow()
}

export interface LastEnd {
  command: string
  ended_at: Date
  outcome: RunOutcome
  completed_at: Date | null
}

export async function readLastEnds({ db }: Warehouse, commands: readonly string[]): Promise<LastEnd[]> {
  const { rows } = await sql<LastEnd>`
    select command, max(ended_at) as ended_at, max(ended_at) filter (where outcome = 'complete') as completed_at,
      (array_agg(outcome order by run_id desc))[1] as outcome
    from ops.runs where command = any(${commands}) and ended_at is not null group by command`.execute(db)
  return rows
}
