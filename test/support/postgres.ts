import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { Client, Pool } from 'pg'
import type { Range } from '../../src/core/day.ts'
import type { ProjectStream } from '../../src/core/vocabulary.ts'
import { countMonths } from '../../src/ledger/days.ts'
import { type ConnectOptions, connectWarehouse, type Warehouse } from '../../src/warehouse/connect.ts'
import { migrate } from '../../src/warehouse/schema/migrate.ts'
import { closeLater } from './close-later.ts'
import { configOf, FOUR_GRAINS } from './config.ts'

/** A database of one's own on the test server. */
export interface TestDatabase {
  url: string
  warehouse: Warehouse
  /** Rows of a query, with dates as texts. */
  rows<T = Record<string, unknown>>(sql: string, values?: unknown[]): Promise<T[]>
  drop(): Promise<void>
}

export function serverUrl(): URL {
  const text = process.env.TEST_SERVER_URL
  if (text === undefined) throw new Error('TEST_SERVER_URL is not set: run the tests with "npm test"')
  return new URL(text)
}

/** For creating and dropping databases. */
let server: Pool | undefined

async function onServer(sql: string): Promise<void> {
  server ??= new Pool({ connectionString: serverUrl().href, allowExitOnIdle: true }).on('error', () => {})
  await server.query(sql)
}

/** A vacuum worker of the server may be at work in it, which only a superuser could end: then a moment later. */
async function dropDatabase(name: string): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await onServer(`drop database ${name} with (force)`)
    } catch (error) {
      if ((error as { code?: string }).code !== '42501' || attempt >= 50) throw error
      await new Promise((done) => setTimeout(done, 200))
    }
  }
}

/** What a new database has: nothing, all migrations but no reports, or also the reports that tests usually sync. */
type Content = 'empty' | 'migrated' | 'reports'

// Cloned for each test, which takes less than migrating.
const TEMPLATES: Record<Content, string> = {
  empty: 'template0',
  migrated: 'vs_template',
  reports: 'vs_template_reports',
}

/** Makes the templates anew, once before all tests. */
export async function createTemplates(): Promise<void> {
  await createTemplate('migrated', 'empty', [])
  await createTemplate('reports', 'migrated', FOUR_GRAINS)
}

async function createTemplate(content: Content, from: Content, reports: readonly object[]): Promise<void> {
  const name = TEMPLATES[content]
  await onServer(`drop database if exists ${name} with (force)`)
  await onServer(`create database ${name} template ${TEMPLATES[from]}`)
  const url = serverUrl()
  url.pathname = `/${name}`
  const warehouse = await connectWarehouse({ url: url.href, schema: 'visibility', connections: 1 })
  await migrate(warehouse, configOf({ reports }))
  await warehouse.close()
}

/** Counts the months of the coverage again, after a test wrote days itself. */
export async function recountMonths({ warehouse, rows }: TestDatabase): Promise<void> {
  await rows('delete from visibility_ops.coverage_months')
  const streams = await rows<ProjectStream & Range>(`
    select project_id as "projectId", stream, min(date) as "from", max(date) as "to" from visibility_ops.coverage group by 1, 2`)
  for (const stream of streams) await countMonths(stream, stream).execute(warehouse.db)
}

/** Connections that are closed after the test. */
export async function openWarehouse(url: string, options: Partial<ConnectOptions> = {}): Promise<Warehouse> {
  const warehouse = await connectWarehouse({ url, schema: 'visibility', connections: 2, ...options })
  return Object.assign(warehouse, { close: closeLater(warehouse.close) })
}

export async function createDatabase(content: Content = 'empty'): Promise<TestDatabase> {
  const name = `vs_${randomBytes(6).toString('hex')}`
  // Without writing the copy to the log, which takes twice as long.
  await onServer(`create database ${name} template ${TEMPLATES[content]} strategy file_copy`)
  const url = serverUrl()
  url.pathname = `/${name}`
  const warehouse = await openWarehouse(url.href, { connections: 6 })
  return {
    url: url.href,
    warehouse,
    rows: async (sql, values) => (await warehouse.pool.query(sql, values)).rows as never,
    drop: closeLater(async () => {
      await warehouse.close()
      await dropDatabase(name)
    }),
  }
}

export const PGBOUNCER = process.env.PGBOUNCER ?? '/usr/sbin/pgbouncer'
export const hasPgBouncer = existsSync(PGBOUNCER)

export interface PgBouncer {
  /** The same database through the pooler. */
  url: string
  close(): Promise<void>
}

/** PgBouncer before a database, with so many connections to the server. */
export async function startPgBouncer(target: string, poolSize: number, mode = 'transaction'): Promise<PgBouncer> {
  const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-pgbouncer-'))
  const { hostname, port, username, password, pathname } = new URL(target)
  const listenPort = await freePort()
  const database = pathname.slice(1)
  const secret = password === '' ? '' : ` password=${decodeURIComponent(password)}`
  writeFileSync(
    join(folder, 'pgbouncer.ini'),
    [
      '[databases]',
      `${database} = host=${hostname} port=${port || 5432} user=${username}${secret} dbname=${database}`,
      '[pgbouncer]',
      'listen_addr = 127.0.0.1',
      `listen_port = ${listenPort}`,
      'unix_socket_dir =',
      'auth_type = any',
      `pool_mode = ${mode}`,
      `default_pool_size = ${poolSize}`,
      'max_client_conn = 200',
      `logfile = ${join(folder, 'pgbouncer.log')}`,
    ].join('\n'),
  )
  // PgBouncer refuses to run as root.
  const user = process.getuid?.() === 0 ? ['-u', 'nobody'] : []
  if (user.length > 0) {
    const { chmodSync, chownSync } = await import('node:fs')
    chmodSync(folder, 0o777)
    chownSync(folder, 65_534, 65_534)
  }
  const child = spawn(PGBOUNCER, [...user, join(folder, 'pgbouncer.ini')], { stdio: 'ignore' })
  const ended = new Promise<void>((done) => child.on('close', () => done()))
  const url = `postgres://${username}@127.0.0.1:${listenPort}/${database}`
  await untilReady(url)
  return {
    url,
    close: closeLater(async () => {
      child.kill('SIGKILL')
      await ended
      rmSync(folder, { recursive: true, force: true })
    }),
  }
}

async function untilReady(url: string): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const client = new Client({ connectionString: url })
    client.on('error', () => {})
    try {
      await client.connect()
      await client.query('select 1')
      await client.end()
      return
    } catch (error) {
      await client.end().catch(() => {})
      if (attempt >= 100) throw error
      await delay(100)
    }
  }
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer()
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as { port: number }
      server.close(() => resolve(port))
    })
  })
}
