import type { Socket } from 'node:net'
import { Kysely, PostgresDialect } from 'kysely'
import {
  Client,
  type ClientBase,
  type ClientConfig,
  type CustomTypesConfig,
  Pool,
  type PoolClient,
  type PoolConfig,
  types,
} from 'pg'
import { codeOf, messageOf, TransientError, UsageError } from '../core/errors.ts'
import { quote } from '../core/identifier.ts'
import { clip, redact } from '../core/text.ts'
import type { Ops, OpsTables, Tables, WarehouseTables } from './database.ts'

export interface Warehouse {
  pool: Pool
  schema: string
  opsSchema: string
  /** The schema for people, and the one for the machinery. */
  tables: Tables
  ops: Ops
  /** A connection of one's own, outside the pool. */
  dedicated(name: string): Promise<Client>
  close(): Promise<void>
}

/** One transaction: its connection, and Kysely bound to that connection. */
export interface Transaction {
  client: PoolClient
  tables: Tables
  ops: Ops
}

const OLDEST = 150_000
// A lock that someone else holds is not waited for without end, and the server notices soon when we are gone: what we had
// locked must not stay so. Compiling a statement takes longer than any of ours runs: 230 ms were measured for one of 0.4 ms.
const SESSION = [
  'set client_min_messages = warning; set timezone = UTC; set datestyle = ISO; set jit = off',
  'set lock_timeout = 60000; set idle_in_transaction_session_timeout = 60000; set client_connection_check_interval = 2000',
  'set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3',
].join('; ')
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
}

/** Connects and checks the server: an unreachable or too old one is said in one sentence, with what to do. */
export async function connectWarehouse(options: ConnectOptions): Promise<Warehouse> {
  const config: ClientConfig = {
    connectionString: options.url,
    types: plainTypes,
    connectionTimeoutMillis: 10_000,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
  }
  const pool = new Pool({
    ...config,
    max: options.connections,
    application_name: 'visibility-sync',
    // The pool waits for what this returns, though its types do not say so.
    onConnect: (client: ClientBase) => client.query(SESSION) as unknown as undefined,
  } as PoolConfig)
  // A connection that dies while nobody asks it anything is replaced by the pool; without listeners it would end the
  // process. The pool itself listens only to those that nobody has taken out.
  pool.on('error', () => {})
  pool.on('connect', (client) => client.on('error', () => {}))
  const bind = <T>(schema: string, on: Pool) =>
    new Kysely<T>({ dialect: new PostgresDialect({ pool: on }) }).withSchema(schema)
  const opsSchema = `${options.schema}_ops`
  try {
    const { rows } = await pool.query<{ version: string }>("select current_setting('server_version_num') as version")
    refuseOld(Number(rows[0]?.version))
  } catch (error) {
    await pool.end().catch(() => {})
    throw error instanceof UsageError ? error : unreachable(options.url, error)
  }
  return {
    pool,
    schema: options.schema,
    opsSchema,
    tables: bind<WarehouseTables>(options.schema, pool),
    ops: bind<OpsTables>(opsSchema, pool),
    async dedicated(name) {
      const client = new Client({ ...config, application_name: name })
      client.on('error', () => {})
      await client.connect()
      await client.query(SESSION)
      return client
    },
    close: () => pool.end(),
  }
}

/** Postgres 15 is the first to know unique constraints in which nulls are not distinct. */
export function refuseOld(version: number): void {
  if (version >= OLDEST) return
  const name = Math.floor(version / 10_000)
  throw new UsageError(`the database is Postgres ${name}; visibility-sync needs Postgres 15 or later`)
}

function unreachable(url: string, error: unknown): UsageError {
  const { hostname, port, pathname } = new URL(url)
  const place = `${hostname || 'localhost'}:${port || 5432}${pathname}`
  const told = redact(clip(messageOf(error) || (codeOf(error) ?? 'no answer'), 200), [new URL(url).password])
  return new UsageError(
    `the database at ${place} cannot be used (${told}). Start a Postgres 15 or later there, for example with ` +
      '"docker run -d -p 5432:5432 -e POSTGRES_PASSWORD=… postgres:18", or leave DATABASE_URL unset to use the embedded one.',
  )
}

const LOST = new Set([
  'ECONNRESET',
  'ECONNREFUSED',
  'EPIPE',
  'ETIMEDOUT',
  '57P01',
  '57P02',
  '57P03',
  '40001',
  '40P01',
  '55P03',
])

const PROTOCOL_VIOLATION = '08P01'

/** True where trying again on another connection may work. */
export function isLostConnection(error: unknown): boolean {
  const code = codeOf(error) ?? ''
  // A message that Postgres does not understand, such as one with too many values, is our fault and will not pass. A
  // pooler that loses its server tells it under the same code, but ends the connection with it.
  if (code === PROTOCOL_VIOLATION) return (error as { severity?: unknown }).severity === 'FATAL'
  return (
    LOST.has(code) ||
    code.startsWith('08') ||
    /Connection terminated|Client has encountered a connection error|not queryable|timeout exceeded when trying to connect/i.test(
      messageOf(error),
    )
  )
}

/** Runs work in one transaction; any error rolls all of it back. */
export async function inTransaction<T>(
  warehouse: Warehouse,
  work: (transaction: Transaction) => Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  const client = await warehouse.pool.connect().catch((cause: unknown) => {
    throw new TransientError(`the database cannot be reached: ${clip(messageOf(cause), 200)}`, { cause })
  })
  let broken: Error | undefined
  const onError = (error: Error) => {
    broken = error
  }
  client.on('error', onError)
  // Whoever is told to stop must not wait for a lock of someone else: without its connection the transaction is undone.
  const onAbort = () => (client as unknown as { connection: { stream: Socket } }).connection.stream.destroy()
  signal?.addEventListener('abort', onAbort)
  const only = { connect: async () => ({ ...bound(client) }), end: async () => {} } as unknown as Pool
  const kysely = <S>(schema: string) =>
    new Kysely<S>({ dialect: new PostgresDialect({ pool: only }) }).withSchema(schema)
  try {
    await client.query('begin')
    const result = await work({ client, tables: kysely(warehouse.schema), ops: kysely(warehouse.opsSchema) })
    await client.query('commit')
    return result
  } catch (error) {
    await client.query('rollback').catch((failure: Error) => {
      broken ??= failure
    })
    if (isLostConnection(error) || broken !== undefined) {
      throw new TransientError(`the database connection was lost: ${clip(messageOf(error), 200)}`, { cause: error })
    }
    throw error
  } finally {
    signal?.removeEventListener('abort', onAbort)
    client.off('error', onError)
    client.release(broken)
  }
}

/** A pool's client whose release is ours, not Kysely's. */
function bound(client: PoolClient): Pick<PoolClient, 'query' | 'release'> {
  return { query: client.query.bind(client) as PoolClient['query'], release: () => {} }
}

/** The quoted name of a table in the schema for people. */
export function tableName(warehouse: Warehouse, table: string): string {
  return quote(warehouse.schema, table)
}
