import { type ClientBase, escapeLiteral, type Pool, type PoolClient, type QueryResult } from 'pg'
import { messageOf, TransientError } from '../core/errors.ts'
import { clip } from '../core/text.ts'
import { ownSignal, sleep } from '../core/waiting.ts'
import type { Warehouse } from './connect.ts'
import { bindOps, poolOf } from './database.ts'
import { type DeadlineClient, QUERY_DEADLINE_MS } from './deadline-client.ts'
import { awayError, isAway, isContention, isLockTimeout, isStatementPooling } from './retry.ts'

/** A statement with its values written into it, and how its rows are read. */
export interface Statement<Answer> {
  sql: string
  // A method, so that each statement may name the type of its rows.
  read(rows: object[]): Answer
}

/** A statement for each of the answers. */
export type Statements<Answers extends unknown[]> = { [Index in keyof Answers]: Statement<Answers[Index]> }

/**
 * Runs several statements in one message. Each is still a statement of its own, which sees what was committed before it
 * began: what follows a lock sees what its last holder wrote.
 */
export async function runBatch<Answers extends unknown[]>(
  client: PoolClient | Pool,
  ...statements: Statements<Answers>
): Promise<Answers> {
  const answer = (await (client as PoolClient).query(statements.map(({ sql }) => sql).join(';\n'))) as
    | QueryResult
    | QueryResult[]
  // A single statement has a single result.
  const results = [answer].flat()
  return statements.map(({ read }, index) => read(results[index]!.rows)) as Answers
}

/** A text or number as it is written in a statement. */
export function literal(value: string | number): string {
  return typeof value === 'number' ? String(value) : escapeLiteral(value)
}

/** One transaction: the warehouse, all of whose queries go over one connection. */
export interface Transaction extends Warehouse {
  client: PoolClient
  /** Statements that are sent with the commit, in one message. */
  atCommit: Statement<unknown>[]
}

// A lock of another process is not waited for without end. A load holds its locks for a second or two.
const LOCK_TIMEOUT_MS = 25_000
// Longer than any wait for a lock, so that the server says which it was.
const STATEMENT_DEADLINE_MS = 30_000
// Inside the transaction, because behind a pooler a setting of the session would stay for other clients. The server
// notices soon when we are gone, so that our own locks do not stay.
// Compiling a statement takes longer than any of ours runs: 230 ms were measured for one of 0.4 ms.
// The role may have other values of the first two, which would change what is stored.
const BEGIN = [
  'begin',
  'set local array_nulls = on',
  'set local extra_float_digits = 1',
  'set local client_min_messages = warning',
  'set local jit = off',
  'set local idle_in_transaction_session_timeout = 25000',
  'set local client_connection_check_interval = 2000',
  'set local tcp_keepalives_idle = 10',
  'set local tcp_keepalives_interval = 5',
  'set local tcp_keepalives_count = 3',
]

interface TransactionOptions {
  /** How long a statement may take; `none` for work that moves or builds whole tables. */
  deadlineMs?: number | 'none'
  lockTimeoutMs?: number
  /** Whose locks are broken if they are in the way. */
  abandoned?: AbandonedOptions
}

/** For migrations and other work on whole tables, which takes as long as it takes. */
export const LONG_WORK: TransactionOptions = { deadlineMs: 'none', lockTimeoutMs: 60_000 }

/** Runs work in one transaction; any error rolls all of it back. */
export function inTransaction<T>(
  warehouse: Warehouse,
  work: (transaction: Transaction) => Promise<T>,
  signal?: AbortSignal,
  options?: TransactionOptions,
): Promise<T> {
  return inTransactionWith<T, []>(warehouse, [], work, { signal, ...options })
}

/** Runs work in one transaction with the answers to questions. They are asked in the message that begins the transaction. */
export async function inTransactionWith<T, Answers extends unknown[]>(
  warehouse: Warehouse,
  questions: Statements<Answers>,
  work: (transaction: Transaction, answers: Answers) => Promise<T>,
  options: TransactionOptions & { signal?: AbortSignal | undefined } = {},
): Promise<T> {
  const { deadlineMs = STATEMENT_DEADLINE_MS, lockTimeoutMs = LOCK_TIMEOUT_MS, abandoned } = options
  const signal = ownSignal(options.signal)
  const client = await warehouse.pool.connect().catch((cause: unknown) => {
    throw awayError('the database cannot be reached', cause)
  })
  let broken: Error | undefined
  const onError = (error: Error) => {
    broken = error
  }
  client.on('error', onError)
  // On a stop the connection is closed, which rolls back, so that nobody waits for a lock of another transaction.
  const connection = client as unknown as DeadlineClient
  const onAbort = () => connection.destroySocket()
  signal?.addEventListener('abort', onAbort)
  try {
    const begin = [...BEGIN, `set local lock_timeout = ${lockTimeoutMs}`].map((sql) => ({ sql, read: () => {} }))
    const workMs = deadlineMs === 'none' ? undefined : deadlineMs
    // Behind a pooler, the message that begins may first wait for a connection of the server.
    const beginMs = warehouse.isPooled ? QUERY_DEADLINE_MS : 0
    if (questions.length > 0) connection.deadlineMs = workMs === undefined ? undefined : beginMs + workMs
    const answers = await runBatch<unknown[]>(client, ...begin, ...questions)
    connection.deadlineMs = workMs
    const pool = poolOf(client)
    const atCommit: Statement<unknown>[] = []
    const transaction = { ...warehouse, pool, ops: bindOps(warehouse.opsSchema, pool), client, atCommit }
    const result = await work(transaction, answers.slice(begin.length) as Answers)
    await runBatch<unknown[]>(client, ...atCommit, { sql: 'commit', read: () => {} })
    return result
  } catch (error) {
    connection.deadlineMs = QUERY_DEADLINE_MS
    await client.query('rollback').catch((failure: Error) => {
      broken ??= failure
    })
    if (isLockTimeout(error) && broken === undefined)
      await endAbandonedSessions(client, { signal, ...abandoned }).catch(() => {})
    if (isContention(error))
      throw new TransientError(`another transaction was in the way: ${clip(messageOf(error), 200)}`, { cause: error })
    // A pooler in statement mode closes the connection, too, and would do so again.
    const isLost = (isAway(error) || broken !== undefined) && !isStatementPooling(error)
    throw isLost ? awayError('the database connection was lost', error) : error
  } finally {
    signal?.removeEventListener('abort', onAbort)
    client.off('error', onError)
    connection.deadlineMs = QUERY_DEADLINE_MS
    client.release(broken)
  }
}

interface AbandonedOptions {
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
 * Ends sessions of ours whose process is gone while a proxy keeps their connection open. In the middle of a
 * statement such a session waits for its client for ever, with all its locks, and no time limit of the server ends it.
 * One that receives rows is seen to move, down to 256 kB in 15 seconds. One that sends rows is not, so it has to be older
 * than any living process would wait.
 */
async function endAbandonedSessions(
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
