import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import {
  appendFileSync,
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { createServer } from 'node:net'
import { join, resolve } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { Client } from 'pg'
import { messageOf, UsageError } from '../../core/errors.ts'
import { clip } from '../../core/text.ts'
import { type Binaries, findBinaries } from './binaries.ts'
import { isAlive, withFolderLock } from './folder-lock.ts'
import { chooseUser, type RunAs } from './run-as.ts'

/*
 * A real Postgres in a folder of ours, shared by all commands that run at the same time. Each command holds one anchor
 * connection while it needs the server; the last to let go stops it. Connections die with their process, so a killed
 * command never keeps the count wrong: the server it leaves behind is adopted, and stopped, by the next one.
 */

export interface EmbeddedPostgres {
  url: string
  /** "started" or "adopted", and how. */
  how: string
  /** Lets go of the server; the last one stops it. */
  release(): Promise<void>
}

export interface EmbeddedOptions {
  /** The folder that holds the data folder, `.data` in a checkout. */
  folder: string
  /** Extra server settings. */
  settings?: Record<string, string>
}

const ROLE = 'visibility'
const ANCHOR = 'visibility-sync anchor'
const START_MS = 60_000
const STOP_MS = 30_000

export async function startEmbedded(options: EmbeddedOptions): Promise<EmbeddedPostgres> {
  const folder = resolve(options.folder)
  makeFolder(folder)
  const data = join(folder, 'postgres')
  const lock = join(folder, 'postgres.lock')
  return withFolderLock(lock, async () => {
    const adopted = await adopt(data)
    if (adopted !== undefined) return handle(adopted, data, lock, 'already running')
    const binaries = findBinaries(folder)
    const runAs = chooseUser(binaries.postgres, folder)
    if (!existsSync(join(data, 'PG_VERSION'))) initialise(binaries, runAs, folder, data)
    const anchor = await launch(binaries, runAs, folder, data, options.settings ?? {})
    return handle(anchor, data, lock, `started ${runAs.how}`)
  })
}

function makeFolder(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true })
    // As root the server runs as another user, who must be able to enter; the data folder itself stays closed.
    if (process.getuid?.() === 0) chmodSync(folder, 0o755)
  } catch (cause) {
    throw new UsageError(
      `${folder}: cannot be made for the embedded Postgres: ${messageOf(cause)}; set DATABASE_URL instead`,
    )
  }
}

function handle(anchor: Anchor, data: string, lock: string, how: string): EmbeddedPostgres {
  let released: Promise<void> | undefined
  return {
    url: urlOf(anchor.port),
    how,
    release() {
      released ??= withFolderLock(lock, () => letGo(anchor, data))
      return released
    },
  }
}

function urlOf(port: number): string {
  return `postgres://${ROLE}@127.0.0.1:${port}/${ROLE}`
}

interface Anchor {
  client: Client
  port: number
}

interface Postmaster {
  pid: number
  port: number
}

function readPostmaster(data: string): Postmaster | undefined {
  try {
    const [pid, , , port] = readFileSync(join(data, 'postmaster.pid'), 'utf8').split('\n')
    return Number(pid) > 0 && Number(port) > 0 ? { pid: Number(pid), port: Number(port) } : undefined
  } catch {
    return undefined
  }
}

/** Connects to a server of ours that is still running; clears what a dead one left behind. */
async function adopt(data: string): Promise<Anchor | undefined> {
  const postmaster = readPostmaster(data)
  if (postmaster === undefined) return undefined
  const deadline = Date.now() + START_MS
  while (isAlive(postmaster.pid) && isPostgres(postmaster.pid) && Date.now() < deadline) {
    const anchor = await connect(postmaster.port)
    if (anchor !== undefined) return anchor
    await delay(100)
  }
  if (isAlive(postmaster.pid) && isPostgres(postmaster.pid)) {
    throw new UsageError(
      `${data}: a Postgres (process ${postmaster.pid}) runs there but does not answer; stop it and try again`,
    )
  }
  rmSync(join(data, 'postmaster.pid'), { force: true })
  return undefined
}

/** The process number of a dead server may belong to something else by now. */
function isPostgres(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('postgres')
  } catch {
    if (process.platform === 'linux') return false
    return (
      spawnSync('ps', ['-p', String(pid), '-o', 'comm='], { encoding: 'utf8' }).stdout?.includes('postgres') ?? false
    )
  }
}

async function connect(port: number): Promise<Anchor | undefined> {
  const client = new Client({ connectionString: urlOf(port), application_name: ANCHOR, connectionTimeoutMillis: 2000 })
  // A server that goes away is noticed by the connections that work, not by this one.
  client.on('error', () => {})
  try {
    await client.connect()
    return { client, port }
  } catch {
    await client.end().catch(() => {})
    return undefined
  }
}

function initialise(binaries: Binaries, runAs: RunAs, folder: string, data: string): void {
  const fresh = `${data}.new`
  rmSync(fresh, { recursive: true, force: true })
  mkdirSync(fresh, { mode: 0o700 })
  runAs.own(fresh)
  // The builtin provider gives the same UTF-8 database whatever LANG says, or does not say.
  const locale = ['-E', 'UTF8', '--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--no-locale']
  command(runAs, binaries, folder, [
    binaries.initdb,
    '-D',
    fresh,
    '-U',
    'postgres',
    '-A',
    'trust',
    '--no-sync',
    ...locale,
  ])
  // Our role has no superuser rights and can connect from this machine alone, so there is no password to keep. Roles
  // that people make, for a BI tool for example, need one; the superuser has none and so cannot connect at all.
  const local = ['127.0.0.1/32', '::1/128']
  const rules = [
    ...local.map((address) => `host all ${ROLE} ${address} trust`),
    ...local.map((address) => `host all all ${address} scram-sha-256`),
  ]
  writeFileSync(join(fresh, 'pg_hba.conf'), `${rules.join('\n')}\n`)
  appendFileSync(
    join(fresh, 'postgresql.conf'),
    "\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\nmax_connections = 200\nmax_wal_size = 2GB\nshared_buffers = 256MB\n",
  )
  const roles = `create role ${ROLE} login createdb createrole\ncreate database ${ROLE} owner ${ROLE}\n`
  command(runAs, binaries, folder, [binaries.postgres, '--single', '-D', fresh, 'postgres'], roles)
  renameSync(fresh, data)
}

/** Extra variables are set by `env`, in front of the command. */
function withVariables({ env }: Binaries): string[] {
  const settings = Object.entries(env).map(([name, value]) => `${name}=${value}`)
  return settings.length === 0 ? [] : ['env', ...settings]
}

function command(runAs: RunAs, binaries: Binaries, folder: string, words: string[], input = ''): void {
  const [program, ...args] = [...runAs.prefix, ...withVariables(binaries), ...words]
  const result = spawnSync(program!, args, {
    cwd: folder,
    input,
    encoding: 'utf8',
    ...(runAs.user ?? {}),
  })
  if (result.status === 0) return
  const told = clip(`${result.stderr ?? ''} ${result.stdout ?? ''} ${result.error?.message ?? ''}`.trim(), 800)
  throw new UsageError(
    `the embedded Postgres cannot be set up in ${folder}: ${told}\nSet DATABASE_URL to use another Postgres.`,
  )
}

async function launch(
  binaries: Binaries,
  runAs: RunAs,
  folder: string,
  data: string,
  settings: Record<string, string>,
): Promise<Anchor> {
  const port = await choosePort(join(folder, 'postgres.port'))
  const logPath = join(folder, 'postgres.log')
  const log = openSync(logPath, 'a')
  const options = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const [program, ...args] = [
    ...runAs.prefix,
    ...withVariables(binaries),
    binaries.postgres,
    '-D',
    data,
    '-p',
    String(port),
    ...options,
  ]
  // In a session of its own, so that Ctrl-C reaches us alone and we can finish before the server goes.
  const child: ChildProcess = spawn(program!, args, {
    cwd: folder,
    detached: true,
    stdio: ['ignore', log, log],
    ...(runAs.user ?? {}),
  })
  closeSync(log)
  let ended = false
  child.on('exit', () => {
    ended = true
  })
  child.on('error', () => {
    ended = true
  })
  child.unref()
  const deadline = Date.now() + START_MS
  while (!ended && Date.now() < deadline) {
    const anchor = await connect(port)
    if (anchor !== undefined) return anchor
    await delay(30)
  }
  const tail = existsSync(logPath) ? readFileSync(logPath, 'utf8').split('\n').slice(-8).join('\n') : ''
  throw new UsageError(`the embedded Postgres does not start in ${data} (see ${logPath}):\n${clip(tail, 1200)}`)
}

/** The port of the last time where it is free, so that saved connections of BI tools keep working. */
async function choosePort(file: string): Promise<number> {
  const last = existsSync(file) ? Number(readFileSync(file, 'utf8')) : 0
  const port = last > 0 && (await freePort(last)) !== undefined ? last : ((await freePort(0)) as number)
  writeFileSync(file, String(port))
  return port
}

function freePort(wanted: number): Promise<number | undefined> {
  return new Promise((done) => {
    const probe = createServer()
    probe.once('error', () => done(undefined))
    probe.listen(wanted, '127.0.0.1', () => {
      const { port } = probe.address() as { port: number }
      probe.close(() => done(port))
    })
  })
}

/** Lets go of the server; where nobody else holds it, stops it. */
async function letGo(anchor: Anchor, data: string): Promise<void> {
  const postmaster = readPostmaster(data)
  let others = 0
  try {
    const result = await anchor.client.query<{ others: string }>(
      'select count(*) as others from pg_stat_activity where application_name = $1 and pid <> pg_backend_pid()',
      [ANCHOR],
    )
    others = Number(result.rows[0]?.others ?? 0)
  } catch {
    // The server is gone already.
  }
  await anchor.client.end().catch(() => {})
  if (others > 0 || postmaster === undefined || !isAlive(postmaster.pid)) return
  // SIGINT is Postgres's fast shutdown: sessions are ended, data is safe.
  process.kill(postmaster.pid, 'SIGINT')
  const deadline = Date.now() + STOP_MS
  while (existsSync(join(data, 'postmaster.pid')) && isAlive(postmaster.pid) && Date.now() < deadline) await delay(20)
}
