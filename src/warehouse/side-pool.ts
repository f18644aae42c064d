import { type ClientBase, Pool, type PoolConfig } from 'pg'
import { codeOf, messageOf, OverloadedError, TimeLimitError } from '../core/errors.ts'
import { type ConnectHook, refuseWrites, type Warehouse } from './connect.ts'
import { isUnanswered } from './retry.ts'
import { inTransaction } from './transaction.ts'

export interface SidePoolOptions {
  name: string
  connections: number
  /** So many callers wait for a connection, for so long, a new one included. Others get an OverloadedError. */
  waiting: number
  patienceMs: number
  limitMs: number
  /** True if its connections refuse to write, whatever a transaction says. */
  isReadOnly?: boolean
}

/**
 * A small connection pool for readers, separate from the pool of runs. Each use is one transaction with a time limit of its own, so
 * nobody waits for a slow statement or a lost network without end, and a run never waits for a reader.
 */
export type SidePool = ReturnType<typeof createSidePool>

const LATE_MS = 1000
const CANCELED = '57014'
const LOCKED = '55P03'
const LOCK_MS = 2000
// pg's message if no connection became free in time. A failed connection has another message.
const WAITED_TOO_LONG = 'timeout exceeded when trying to connect'

export function createSidePool(warehouse: Warehouse, options: SidePoolOptions) {
  const base = warehouse.pool.options as PoolConfig & { onConnect: ConnectHook }
  const pool = new Pool({
    ...base,
    ...(options.isReadOnly && {
      onConnect: (client: ClientBase) => refuseWrites(client, base.onConnect) as unknown as undefined,
    }),
    max: options.connections,
    application_name: options.name,
    connectionTimeoutMillis: options.patienceMs,
    query_timeout: options.limitMs + LATE_MS,
  } as PoolConfig)
  pool.on('error', () => {})
  pool.on('connect', (client) => client.on('error', () => {}))
  const closing = new AbortController()

  async function use<T>(mode: string, limitMs: number, work: (bound: Warehouse) => Promise<T>): Promise<T> {
    // The others wait in line, but neither too many nor for too long.
    if (pool.waitingCount - pool.idleCount >= options.waiting) throw new OverloadedError('too many readers at once')
    const late = new AbortController()
    let timer: NodeJS.Timeout | undefined
    const limited = (bound: Warehouse) => {
      // For all statements together.
      timer = setTimeout(() => late.abort(), limitMs + LATE_MS)
      return work(bound)
    }
    const signal = AbortSignal.any([late.signal, closing.signal])
    try {
      return await inTransaction({ ...warehouse, pool }, limited, signal, { mode, limitMs, lockTimeoutMs: LOCK_MS })
    } catch (error) {
      const { cause = error } = error as Error
      if (messageOf(cause) === WAITED_TOO_LONG) throw new OverloadedError('too many readers at once')
      if (late.signal.aborted || codeOf(cause) === CANCELED || isUnanswered(cause))
        throw new TimeLimitError(`it took longer than ${limitMs / 1000} s`, { cause })
      if (codeOf(cause) === LOCKED) throw new TimeLimitError('a table is locked by someone else', { cause })
      throw error
    } finally {
      clearTimeout(timer)
    }
  }

  return {
    /** Everything in it sees the same state. */
    read: <T>(work: (warehouse: Warehouse) => Promise<T>, limitMs = options.limitMs) =>
      use('isolation level repeatable read read only', limitMs, work),
    write: <T>(work: (warehouse: Warehouse) => Promise<T>) => use('', options.limitMs, work),
    /** Whatever is being read. */
    close() {
      closing.abort()
      void pool.end().catch(() => {})
    },
  }
}
