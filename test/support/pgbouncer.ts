import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { Client } from 'pg'
import { closeLater } from './close-later.ts'

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
