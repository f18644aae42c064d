import { appendFileSync, existsSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { UsageError } from '../../core/errors.ts'
import { NEW_CLUSTER_MB, RUNNING_MB } from './disk-space.ts'
import { digestOf, ensurePassword, ROLE, scramVerifier, writePrivate } from './password.ts'
import { ownDataFolder } from './run-as.ts'
import { dataArgument, runServerCommand, type ServerPaths } from './server-command.ts'

/* The cluster: made once, and brought to the present rules of access before every start. */

/** Everyone who connects over loopback needs a password; the superuser has none and so cannot connect at all. */
const RULES = ['127.0.0.1/32', '::1/128'].map((address) => `host all all ${address} scram-sha-256\n`).join('')
const SETTINGS = `
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 200
max_wal_size = 2GB
shared_buffers = 256MB
`
/** In the data folder: the digest of the password that our role has. */
const PASSWORD_SET = 'visibility.password'

export async function prepareCluster(paths: ServerPaths, signal: AbortSignal): Promise<void> {
  const password = ensurePassword(paths.folder)
  if (!existsSync(join(paths.data, 'PG_VERSION'))) await initialise(paths, signal)
  ownDataFolder(paths.runAs, paths.data)
  await secure(paths, password, signal)
}

/** Made under a name of its own, then renamed: what a kill leaves half made is never taken for a cluster. */
async function initialise(paths: ServerPaths, signal: AbortSignal): Promise<void> {
  const { folder, data, binaries, runAs } = paths
  if (existsSync(data) && readdirSync(data).length > 0)
    throw new UsageError(`${data}: is not empty and no data folder of Postgres; move it away and try again`)
  for (const name of readdirSync(folder)) {
    if (name.startsWith('postgres.new')) rmSync(join(folder, name), { recursive: true, force: true })
  }
  const fresh = mkdtempSync(join(folder, 'postgres.new-'))
  try {
    runAs.own(fresh)
    // The builtin provider gives the same UTF-8 database whatever LANG says, or does not say.
    const locale = ['-E', 'UTF8', '--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--no-locale']
    const words = [binaries.initdb, '-D', fresh, '-U', 'postgres', '-A', 'trust', '--no-sync', ...locale]
    await runServerCommand(paths, { words, cwd: folder, neededMb: NEW_CLUSTER_MB }, signal)
    appendFileSync(join(fresh, 'postgresql.conf'), SETTINGS)
    // No server runs by the rules of initdb: these are in place before the first start.
    writePrivate(join(fresh, 'pg_hba.conf'), RULES, runAs.own)
    const roles = `create role ${ROLE} login createdb createrole\ncreate database ${ROLE} owner ${ROLE}\n`
    await singleUser(paths, fresh, roles, NEW_CLUSTER_MB, signal)
    renameSync(fresh, data)
  } finally {
    rmSync(fresh, { recursive: true, force: true })
  }
}

/** Sets the password of our role if it is not that of the file, and takes back that anyone on this machine was trusted. */
async function secure(paths: ServerPaths, password: string, signal: AbortSignal): Promise<void> {
  const { data, runAs } = paths
  const rules = join(data, 'pg_hba.conf')
  const present = readFileSync(rules, 'utf8')
  const strict = withoutTrust(present)
  if (strict !== present) writePrivate(rules, strict, runAs.own)
  const mark = join(data, PASSWORD_SET)
  if (existsSync(mark) && readFileSync(mark, 'utf8') === digestOf(password)) return
  const statement = `alter role ${ROLE} password '${scramVerifier(password)}'\n`
  await singleUser(paths, data, statement, RUNNING_MB, signal)
  writePrivate(mark, digestOf(password), runAs.own)
}

/** Version 0.2.0 trusted our role on loopback. Lines that people added stay as they are. */
export function withoutTrust(rules: string): string {
  return rules.replaceAll(/^(host\s+all\s+visibility\s+(?:127\.0\.0\.1\/32|::1\/128)\s+)trust\s*$/gm, '$1scram-sha-256')
}

/** Statements of the superuser, for whom no server has to run. */
function singleUser(
  paths: ServerPaths,
  data: string,
  input: string,
  neededMb: number,
  signal: AbortSignal,
): Promise<void> {
  const words = [paths.binaries.postgres, '--single', '-D', dataArgument(data), 'postgres']
  return runServerCommand(paths, { words, input, cwd: data, neededMb }, signal)
}
