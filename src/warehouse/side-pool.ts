import { Pool, type PoolClient, type PoolConfig } from 'pg'
import { codeOf, messageOf, OverloadedError, TimeLimitError } from '../core/errors.ts'
import type { Warehouse } from './connect.ts'
import { bindOps, poolOf } from './database.ts'
import type { DeadlineClient } from './deadline-client.ts'
import { awayError, isTransient } from './retry.ts'

export interface SidePoolOptions {
  /** As the server lists its connections. */
  name: string
  connections: number
  /** How many callers may wait for a connection, and for how long, a new one included. Others get an OverloadedError. */
  waiting: number
  patienceMs: number
  /** The most that one use may take. */
  limitMs: number
}

/**
 * A small connection pool for readers, separate from the pool of runs. Each use is one transaction with a time limit of its own, so
 * nobody waits for a slow statement or a lost network without end, and a run never waits for a reader.
 */
export interface SidePool {
  /** One look: everything in it sees the same state. */
  read<T>(work: (warehouse: Warehouse) => Promise<T>, limitMs?: number): Promise<T>
  write<T>(work: (warehouse: Warehouse) => Promise<T>): Promise<T>
  /** At once, whatever is being read. */
  close(): void
}

// The server ends a statement by itself; ours is the limit if it does not answer at all.
const ANSWER_MS = 1000
const CANCELED = '57014'
const LOCKED = '55P03'
const LOCK_MS = 2000
// pg's message if no connection became free in time. A failed connection has another message.
const WAITED_TOO_LONG = 'timeout exceeded when trying to connect'

export function createSidePool(warehouse: Warehouse, options: SidePoolOptions): SidePool {
  const pool = new Pool({
    ...(warehouse.pool.options as PoolConfig),
    max: options.connections,
    application_name: options.name,
    connectionTimeoutMillis: options.patienceMs,
    // Nothing is set for a session: behind a pooler in transaction mode, the next transaction may have another one.
    onConnect: undefined,
  } as PoolConfig)
  pool.on('error', () => {})
  pool.on('connect', (client) => client.on('error', () => {}))
  const inUse = new Set<DeadlineClient>()
  let closed = false

  /** The others wait in line, but neither too many nor for too long. */
  async function connect(): Promise<PoolClient> {
    if (pool.waitingCount - pool.idleCount >= options.waiting) throw new OverloadedError('too many readers at once')
    return pool.connect().catch((error: unknown) => {
      if (messageOf(error) === WAITED_TOO_LONG) throw new OverloadedError('too many readers at once')
      throw isTransient(error) ? awayError('the database cannot be reached', error) : error
    })
  }

  async function use<T>(mode: string, limitMs: number, work: (bound: Warehouse) => Promise<T>): Promise<T> {
    const client = await connect()
    const connection = client as unknown as DeadlineClient
    let late = false
    let failed: Error | undefined
    const timer = setTimeout(() => {
      late = true
      connection.destroySocket()
    }, limitMs + ANSWER_MS)
    // The limit is for all statements together.
    connection.deadlineMs = undefined
    inUse.add(connection)
    try {
      if (closed) connection.destroySocket()
      await client.query(beginning(mode, limitMs))
      const only = poolOf(client)
      const result = await work({ ...warehouse, pool: only, ops: bindOps(warehouse.opsSchema, only) })
      await client.query('commit')
      return result
    } catch (error) {
      failed = error as Error
      if (late || codeOf(error) === CANCELED)
        throw new TimeLimitError(`it took longer than ${limitMs / 1000} s`, { cause: error })
      if (codeOf(error) === LOCKED) throw new TimeLimitError('a table is locked by someone else', { cause: error })
      throw isTransient(error) ? awayError('the database cannot be reached', error) : error
    } finally {
      clearTimeout(timer)
      inUse.delete(connection)
      // A transaction that failed ends with its connection.
      client.release(failed)
    }
  }

  return {
    read: (work, limitMs = options.limitMs) => use('isolation level repeatable read read only', limitMs, work),
    write: (work) => use('', options.limitMs, work),
    close() {
      closed = true
      for (const connection of inUse) connection.destroySocket()
      void pool.end().catch(() => {})
    },
  }
}

/** The session settings of runs, for one transaction. */
function beginning(mode: string, limitMs: number): string {
  const settings = [
    `statement_timeout = ${limitMs}`,
    `lock_timeout = ${LOCK_MS}`,
    // Ends transactions of dead processes. A slow process is limited by its own timer.
    'idle_in_transaction_session_timeout = 60000',
    'client_connection_check_interval = 2000',
    'client_min_messages = warning',
    'timezone = UTC',
    'datestyle = ISO',
    'array_nulls = on',
    'extra_float_digits = 1',
    'jit = off',
  ]
  return [`begin ${mode}`, ...settings.map((setting) => `set local ${setting}`)].join('; ')
}
