import { randomBytes } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { codeOf, UsageError } from '../../core/errors.ts'
import { dataPath, ownFolder, type Programs, startProgram } from './programs.ts'

/** The role of the program, and its database. */
export const ROLE = 'visibility'
/** Everyone who connects over loopback needs a password; the superuser has none and so cannot connect at all. */
const RULES = ['127.0.0.1/32', '::1/128'].map((address) => `host all all ${address} scram-sha-256\n`).join('')
const SETTINGS = `
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 200
max_wal_size = 2GB
shared_buffers = 256MB
`
// The builtin provider gives the same UTF-8 database with any LANG, or none.
const LOCALE = ['-E', 'UTF8', '--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--no-locale']

/** The password of our role in the format of libpq, so that PGPASSFILE=… is all that psql and JDBC need. */
export const passwordFile = (folder: string) => join(folder, 'pgpass')
export const hasCluster = (folder: string) => isThere(join(dataPath(folder), 'PG_VERSION'))
const newPassword = () => randomBytes(24).toString('base64url')

/** True also for a file that this user may not see. */
function isThere(path: string): boolean {
  try {
    return statSync(path).isFile()
  } catch (error) {
    return codeOf(error) !== 'ENOENT'
  }
}

export function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

export function readPassword(folder: string): string | undefined {
  const text = isThere(passwordFile(folder)) ? readFileSync(passwordFile(folder), 'utf8') : ''
  // Such files escape colons and backslashes.
  return /^127\.0\.0\.1:[^:\n]+:[^:\n]+:visibility:([^\n]+)$/m.exec(text)?.[1]?.replaceAll(/\\(.)/g, '$1')
}

/** The file appears whole, for its owner alone. */
function writePassword(folder: string, password: string): void {
  const lines = ['127.0.0.1', 'localhost'].map((host) => `${host}:*:*:${ROLE}:${password}\n`)
  const draft = `${passwordFile(folder)}.${process.pid}`
  writeFileSync(draft, lines.join(''), { mode: 0o600 })
  renameSync(draft, passwordFile(folder))
}

/** Creates the cluster if there is none, and sets a password if none is known. */
export async function prepareCluster(programs: Programs, folder: string): Promise<void> {
  const data = dataPath(folder)
  if (!hasCluster(folder)) await create(programs, folder)
  ownFolder(programs, data)
  if (readPassword(folder) !== undefined) return
  const rules = readFileSync(join(data, 'pg_hba.conf'), 'utf8')
  // Version 0.2.0 trusted our role. The first rule that matches is valid, so the rules that follow may stay.
  if (!rules.startsWith(RULES)) writeFileSync(join(data, 'pg_hba.conf'), RULES + rules)
  const password = newPassword()
  await runStatements(programs, data, `alter role ${ROLE} password '${password}'\n`)
  writePassword(folder, password)
}

/** Created under another name, then renamed: a command that is killed leaves no half of a cluster. */
async function create(programs: Programs, folder: string): Promise<void> {
  for (const name of readdirSync(folder)) {
    const pid = /^postgres\.new-(\d+)-/.exec(name)?.[1]
    if (pid !== undefined && !isAlive(Number(pid))) await removeFolder(join(folder, name))
  }
  const draft = mkdtempSync(join(folder, `postgres.new-${process.pid}-`))
  try {
    ownFolder(programs, draft)
    await run(programs, draft, ['initdb', '-D', draft, '-U', 'postgres', '-A', 'trust', '--no-sync', ...LOCALE])
    writeFileSync(join(draft, 'postgresql.conf'), SETTINGS, { flag: 'a' })
    writeFileSync(join(draft, 'pg_hba.conf'), RULES)
    const password = newPassword()
    const role = `create role ${ROLE} login createdb createrole password '${password}'\n`
    await runStatements(programs, draft, `${role}create database ${ROLE} owner ${ROLE}\n`)
    renameSync(draft, dataPath(folder))
    writePassword(folder, password)
  } catch (error) {
    // Another command may have been faster.
    if (hasCluster(folder)) return
    if (codeOf(error) !== 'ENOTEMPTY') throw error
    throw new UsageError(`${dataPath(folder)}: is not empty and no data folder of Postgres; move it away and try again`)
  } finally {
    await removeFolder(draft)
  }
}

/** The initdb of a killed command may still write files here. It fails once its folder is gone. */
function removeFolder(path: string): Promise<void> {
  return rm(path, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 })
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
    const child = startProgram(programs, words, { cwd: data, stdio: 'pipe' })
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
