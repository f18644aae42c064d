import { Pool, type PoolClient, type PoolConfig } from 'pg'
import { codeOf, OverloadedError, TimeLimitError } from '../core/errors.ts'
import type { Warehouse } from './connect.ts'
import { bindOps, poolOf } from './database.ts'
import type { DeadlineClient } from './deadline-client.ts'
import { awayError, isTransient } from './retry.ts'

export interface SidePoolOptions {
  /** As the server lists its connections. */
  name: string
  connections: number
  /** How many callers may wait for a connection, and for how long. Further callers get an OverloadedError. */
  waiting: number
  patienceMs: number
  /** The most that one use may take. */
  limitMs: number
}

/**
 * Few connections beside those of runs, for those who look. Each use is one transaction with a time limit of its own, so
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

export function createSidePool(warehouse: Warehouse, options: SidePoolOptions): SidePool {
  const pool = new Pool({
    ...(warehouse.pool.options as PoolConfig),
    max: options.connections,
    application_name: options.name,
    connectionTimeoutMillis: options.limitMs,
    // Nothing is set for a session: behind a pooler in transaction mode, the next transaction may have another one.
    onConnect: undefined,
  } as PoolConfig)
  pool.on('error', () => {})
  pool.on('connect', (client) => client.on('error', () => {}))
  const turns = new ConnectionQueue(options)
  const inUse = new Set<DeadlineClient>()
  let closed = false

  async function use<T>(mode: string, limitMs: number, work: (bound: Warehouse) => Promise<T>): Promise<T> {
    await turns.wait()
    let client: PoolClient | undefined
    let connection: DeadlineClient | undefined
    let late = false
    let failed: Error | undefined
    const timer = setTimeout(() => {
      late = true
      connection?.destroySocket()
    }, limitMs + ANSWER_MS)
    try {
      client = await pool.connect()
      connection = client as unknown as DeadlineClient
      // The limit is for all statements together.
      connection.deadlineMs = undefined
      inUse.add(connection)
      if (closed || late) connection.destroySocket()
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
      if (connection !== undefined) inUse.delete(connection)
      // A transaction that failed ends with its connection.
      client?.release(failed)
      turns.giveBack()
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

/** What connections of runs set for their session, for one transaction. */
function beginning(mode: string, limitMs: number): string {
  const settings = [
    `statement_timeout = ${limitMs}`,
    `lock_timeout = ${LOCK_MS}`,
    // For processes that are gone: one that is only starved of its processor keeps its own limit.
    'idle_in_transaction_session_timeout = 60000',
    'client_connection_check_interval = 2000',
    'client_min_messages = warning',
    'timezone = UTC',
    'datestyle = ISO',
    'jit = off',
  ]
  return [`begin ${mode}`, ...settings.map((setting) => `set local ${setting}`)].join('; ')
}

/** Lets so many in at once; the others wait in line, but neither too many nor for too long. */
class ConnectionQueue {
  private free: number
  private readonly line: (() => void)[] = []

  constructor(private readonly options: SidePoolOptions) {
    this.free = options.connections
  }

  async wait(): Promise<void> {
    if (this.free > 0) {
      this.free--
      return
    }
    const { waiting, patienceMs } = this.options
    if (this.line.length >= waiting) throw new OverloadedError('too many readers at once')
    await new Promise<void>((done, fail) => {
      const timer = setTimeout(() => {
        this.line.splice(this.line.indexOf(enter), 1)
        fail(new OverloadedError('too many readers at once'))
      }, patienceMs)
      const enter = () => {
        clearTimeout(timer)
        done()
      }
      this.line.push(enter)
    })
  }

  giveBack(): void {
    const next = this.line.shift()
    if (next === undefined) this.free++
    else next()
  }
}
