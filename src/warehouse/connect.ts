import { once } from 'node:events'
import { Socket } from 'node:net'
import {
  type ClientBase,
  type ClientConfig,
  type CustomTypesConfig,
  Pool,
  type PoolClient,
  type PoolConfig,
  type QueryResult,
  types,
} from 'pg'
import { secretsOfAddress } from '../core/config/secrets.ts'
import { UsageError } from '../core/errors.ts'
import { createRedactor, type Redactor } from '../core/redactor.ts'
import { waitAtMost } from '../core/waiting.ts'
import { connectionsOf, Db } from './database.ts'
import { databaseFailure } from './database-failure.ts'
import { isTransient, withRetries } from './retry.ts'

export interface Warehouse {
  pool: Pool
  schema: string
  opsSchema: string
  db: Db
  /** For queries that may take long for good reasons: they read much. */
  slowDb: Db
  patienceMs: number
  /** Cleans what is written to the ops schema: words of the service and of errors, never rows. */
  redactor: Redactor
  /** An unreachable or too old server is an error of one sentence. */
  check(): Promise<void>
  /** The command was asked to stop: what the database does not answer within a few seconds is given up. */
  hurry(): void
  /** Waits briefly for connections in use. Then it closes all of them, since the network may not answer. */
  close(): Promise<void>
  cut(): void
}

/** What the pool waits for before it hands out a new connection. */
export type ConnectHook = (client: ClientBase) => PromiseLike<unknown>

/** Not behind a pooler, where the setting would stay for other clients; transactions say so themselves. */
export async function refuseWrites(client: ClientBase, first: ConnectHook): Promise<void> {
  await first(client)
  await client.query(
    `select set_config('default_transaction_read_only', 'on', false) where pg_backend_pid() = ${processIdOf(client)}`,
  )
}

const OLDEST = 150_000
export const SLOW_MS = 600_000
// Poolers carry the first two over to other connections of the same client, and to no other client. The role may have other
// values of the last two, which would change what is read. They are not set behind a pooler, where they would stay for others.
const sessionSql = (processId: number) => `set timezone = UTC; set datestyle = ISO;
  select set_config(name, value, false) from (values ('array_nulls', 'on'), ('extra_float_digits', '1')) settings (name, value)
  where pg_backend_pid() = ${processId}`
const pooled = new WeakSet<ClientBase>()

/** True behind a pooler, where two transactions may be on two connections of the server. */
export function isPooled(client: ClientBase): boolean {
  return pooled.has(client)
}

const CONNECT_MS = 10_000
// Longer than any wait for a lock, so that the server says which it was. A query that may take longer says so.
const QUERY_MS = 30_000
const ENDING_MS = 5000
const HURRY_CONNECT_MS = 3000
const CUT_CONNECT_MS = 1000
// By then the work has ended, or was given up.
const CLOSE_MS = 3000
const DATE = 1082
const BIGINT = 20

/** Dates stay texts (a Date would move them into the local time zone); counts are numbers. */
const plainTypes: CustomTypesConfig = {
  getTypeParser: ((oid: number, format?: 'text' | 'binary') => {
    if (oid === DATE) return (text: string) => text
    if (oid === BIGINT) return Number
    return types.getTypeParser(oid, format as 'text')
  }) as CustomTypesConfig['getTypeParser'],
}

export interface ConnectOptions {
  url: string
  schema: string
  connections: number
  patienceMs?: number
  redactor?: Redactor
  /** True for those who can wait for a database that is away: they ask `check` themselves. */
  unchecked?: boolean
  /** Ends the wait for a database that is lost while it is checked. */
  signal?: AbortSignal | undefined
}

const PATIENCE_MS = 120_000

export async function connectWarehouse(options: ConnectOptions): Promise<Warehouse> {
  const redactor = options.redactor ?? createRedactor()
  // The password of the embedded server is in no configuration.
  redactor.add(secretsOfAddress(options.url))
  const sockets = new Set<Socket>()
  const config: ClientConfig = {
    connectionString: plainUrl(options.url),
    // Known from the start, so that none outlives the program, whatever it waits for.
    stream: () => {
      const socket = new Socket()
      sockets.add(socket)
      return socket.on('close', () => sockets.delete(socket))
    },
    types: plainTypes,
    connectionTimeoutMillis: CONNECT_MS,
    // On a network that drops packets silently nothing fails by itself. A connection without an answer is closed.
    query_timeout: QUERY_MS,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
  }
  let wasConnected = false
  const pool = new Pool({
    ...config,
    max: options.connections,
    application_name: 'visibility-sync',
    // The pool waits for what this returns, though its types do not say so.
    onConnect: (async (client: ClientBase) => {
      wasConnected = true
      const results = (await client.query(sessionSql(processIdOf(client)))) as unknown as QueryResult[]
      // A pooler gives its clients process numbers of its own.
      if (results.at(-1)!.rowCount === 0) pooled.add(client)
    }) as unknown as undefined,
  } as PoolConfig)
  // A connection that dies while nobody asks it anything is replaced by the pool; without listeners it would end the
  // process. The pool itself listens only to those that nobody has taken out.
  pool.on('error', () => {})
  pool.on('connect', (client) => client.on('error', () => {}))
  const inUse = new Set<PoolClient>()
  pool.on('acquire', (client) => {
    limitQueries(client, pool.options.query_timeout)
    inUse.add(client)
  })
  pool.on('release', (_, client) => inUse.delete(client))
  const { schema } = options
  const opsSchema = `${schema}_ops`
  const warehouse: Warehouse = {
    pool,
    schema,
    opsSchema,
    db: new Db({ schema, opsSchema }, connectionsOf(pool)),
    slowDb: new Db(
      { schema, opsSchema },
      connectionsOf(pool, (client) => limitQueries(client, SLOW_MS)),
    ),
    patienceMs: options.patienceMs ?? PATIENCE_MS,
    redactor,
    async check() {
      try {
        const { rows } = await pool.query<{ version: number }>(
          "select current_setting('server_version_num')::int as version",
        )
        refuseOld(rows[0]!.version)
      } catch (error) {
        throw error instanceof UsageError ? error : databaseFailure(options.url, error)
      }
    },
    hurry,
    async close() {
      hurry()
      const closed = async () => {
        await pool.end()
        await Promise.all([...sockets].map((socket) => once(socket, 'close')))
      }
      // What fails by then changes no result.
      await waitAtMost(
        CLOSE_MS,
        closed().catch(() => {}),
      )
      cut()
    },
    cut,
  }
  if (options.unchecked) return warehouse
  try {
    await warehouse.check().catch((error: unknown) => {
      // A server that was reached is waited for, as by all work that follows.
      if (!wasConnected || !isTransient(error)) throw error
      return withRetries(warehouse, options.signal, () => warehouse.check())
    })
    return warehouse
  } catch (error) {
    await warehouse.close().catch(() => {})
    throw error
  }

  function hurry(): void {
    Object.assign(pool.options, { connectionTimeoutMillis: HURRY_CONNECT_MS, query_timeout: ENDING_MS })
    const stuck = new Set(inUse)
    pool.on('release', (_, client) => stuck.delete(client))
    setTimeout(() => stuck.forEach(closeAtOnce), ENDING_MS).unref()
  }

  function cut(): void {
    pool.options.connectionTimeoutMillis = CUT_CONNECT_MS
    for (const socket of sockets) socket.destroy()
  }
}

/** pg takes these modes for verify-full, and prints a warning of eight lines that it will not do so for ever. */
function plainUrl(url: string): string {
  const parsed = new URL(url)
  const { searchParams } = parsed
  const isWarnedOf = ['prefer', 'require', 'verify-ca'].includes(searchParams.get('sslmode') ?? '')
  if (!isWarnedOf || searchParams.get('uselibpqcompat') === 'true') return url
  searchParams.set('sslmode', 'verify-full')
  return parsed.href
}

function processIdOf(client: ClientBase): number {
  return (client as unknown as { processID: number }).processID
}

/** Without waiting for the server. The pool replaces it once it is released. */
export function closeAtOnce(client: ClientBase): void {
  ;(client as unknown as { connection: { stream: Socket } }).connection.stream.destroy()
}

/** pg reads this limit for each query that has none of its own. It is valid until the connection is taken from the pool again. */
export function limitQueries(client: ClientBase, ms: number | undefined): void {
  Object.assign((client as unknown as { connectionParameters: object }).connectionParameters, { query_timeout: ms })
}

/** Postgres 15 is the first to know unique constraints in which nulls are not distinct. */
export function refuseOld(version: number): void {
  if (version >= OLDEST) return
  const name = Math.floor(version / 10_000)
  throw new UsageError(`the database is Postgres ${name}; visibility-sync needs Postgres 15 or later`)
}

export interface DatabaseState {
  up: boolean
  /** Since its last change. */
  forMs: number
  reason: string | undefined
  /** False if it answers, but refuses the connection: waiting does not help. */
  mayPass: boolean
}
