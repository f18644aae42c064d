import { type Expression, sql } from 'kysely'
import { DatabaseError, type Pool, type PoolClient } from 'pg'
import { messageOf, TransientError } from '../core/errors.ts'
import { clip } from '../core/text.ts'
import { ownSignal } from '../core/waiting.ts'
import { closeAtOnce, limitQueries, SLOW_MS, type Warehouse } from './connect.ts'
import { batch, Db, oneConnection, type Queries, type RowsOfAll } from './database.ts'
import { awayError, isAway, isContention, isStatementPooling } from './retry.ts'

/** One transaction: the warehouse, all of whose queries go over one connection. */
export interface Transaction extends Warehouse {
  client: PoolClient
  /** Statements that are sent with the commit, in one message. */
  atCommit: Expression<unknown>[]
}

// A lock of another process is not waited for without end. A load holds its locks for a second or two.
const LOCK_TIMEOUT_MS = 25_000
// The server ends a statement by itself; the limit of the client is for a server that does not answer at all.
const ANSWER_MS = 1000
// Inside the transaction, because behind a pooler a setting of the session would stay for other clients. The server
// notices within 25 seconds when we are gone, so that our own locks do not stay.
// Compiling a statement takes longer than any of ours runs: 230 ms were measured for one of 0.4 ms.
// The role may have other values of the first two, which would change what is stored.
const SETTINGS = Object.entries({
  array_nulls: 'on',
  extra_float_digits: 1,
  client_min_messages: 'warning',
  jit: 'off',
  idle_in_transaction_session_timeout: 25_000,
  client_connection_check_interval: 2000,
  tcp_keepalives_idle: 10,
  tcp_keepalives_interval: 5,
  tcp_keepalives_count: 3,
  tcp_user_timeout: 25_000,
}).map(setting)

function setting([name, value]: [string, string | number]): string {
  return `set_config('${name}', '${value}', true)`
}

interface TransactionOptions {
  /** As `begin` takes it: the isolation level, or that nothing is written. */
  mode?: string
  limitMs?: number
  lockTimeoutMs?: number
}

/** For migrations and other work on whole tables. */
export const LONG_WORK: TransactionOptions = { limitMs: 4 * 3_600_000, lockTimeoutMs: 60_000 }

export function inTransaction<T>(
  warehouse: Warehouse,
  work: (transaction: Transaction) => Promise<T>,
  signal?: AbortSignal,
  options?: TransactionOptions,
): Promise<T> {
  return inTransactionWith<T, []>(warehouse, [], work, { signal, ...options })
}

/** Runs work in one transaction with the rows of queries that are sent in the message that begins the transaction. */
export async function inTransactionWith<T, Rows extends unknown[]>(
  warehouse: Warehouse,
  queries: Queries<Rows>,
  work: (transaction: Transaction, rows: RowsOfAll<Rows>) => Promise<T>,
  options: TransactionOptions & { signal?: AbortSignal | undefined } = {},
): Promise<T> {
  const { mode = '', limitMs, lockTimeoutMs = LOCK_TIMEOUT_MS } = options
  const signal = ownSignal(options.signal)
  const client = await warehouse.pool.connect().catch((cause: unknown) => {
    // A wrong password or a database that does not exist does not pass by itself.
    const isRefusal = cause instanceof DatabaseError && !isAway(cause)
    throw isRefusal ? cause : awayError('the database cannot be reached', cause)
  })
  let broken: Error | undefined
  const onError = (error: Error) => {
    broken = error
  }
  client.on('error', onError)
  // On a stop the connection is closed, which rolls back, so that nobody waits for a lock of another transaction.
  const onAbort = () => closeAtOnce(client)
  signal?.addEventListener('abort', onAbort)
  try {
    const limits = Object.entries({ lock_timeout: lockTimeoutMs, statement_timeout: limitMs ?? SLOW_MS }).map(setting)
    const connect = oneConnection(client)
    const db = new Db(warehouse, connect)
    const pool = (await connect()) as unknown as Pool
    const begun = [sql.raw(`begin ${mode}`), sql.raw(`select ${[...SETTINGS, ...limits].join()}`)]
    const rows: unknown[] = await batch<unknown[]>(db, ...begun, ...queries)
    if (limitMs !== undefined) limitQueries(client, limitMs + ANSWER_MS)
    const atCommit: Expression<unknown>[] = []
    const result = await work(
      { ...warehouse, pool, db, slowDb: db, client, atCommit },
      rows.slice(begun.length) as RowsOfAll<Rows>,
    )
    await batch<unknown[]>(db, ...atCommit, sql.raw('commit'))
    return result
  } catch (error) {
    // Closing a connection rolls back, too. One without an answer would not do so.
    if (isAway(error)) broken ??= error as Error
    else
      await client.query('rollback').catch((failure: Error) => {
        broken ??= failure
      })
    if (isContention(error))
      throw new TransientError(`another transaction was in the way: ${clip(messageOf(error), 200)}`, { cause: error })
    // A pooler in statement mode closes the connection, too, and would do so again.
    const isLost = (isAway(error) || broken !== undefined) && !isStatementPooling(error)
    throw isLost ? awayError('the database connection was lost', error) : error
  } finally {
    signal?.removeEventListener('abort', onAbort)
    client.off('error', onError)
    client.release(broken)
  }
}
