import { type ChildProcess, execFileSync, type SpawnOptions, spawn, spawnSync } from 'node:child_process'
import { readFileSync, statSync } from 'node:fs'
import { userInfo } from 'node:os'
import { systemEnvironment } from '../../core/config/load.ts'
import { UsageError } from '../../core/errors.ts'

/** How to run Postgres: it refuses root, and initdb refuses a user id without a name. */
export interface RunAs {
  /** For the log. */
  how: string
  /** Words in front of every command. */
  prefix: string[]
  /** Set if root runs Postgres as another user. */
  user?: { uid: number; gid: number }
}

/** Picks the user for Postgres: ourselves, else postgres or nobody if they can reach the files, else a user namespace. */
export function chooseUser(binary: string, folder: string): RunAs {
  if (process.getuid?.() !== 0)
    return hasName() ? { how: 'as this user', prefix: [] } : inNamespace('this user id has no name')
  const users = readFileSync('/etc/passwd', 'utf8')
  for (const name of ['postgres', 'nobody']) {
    const found = new RegExp(`^${name}:[^:]*:(\\d+):(\\d+):`, 'm').exec(users)
    const user = { uid: Number(found?.[1]), gid: Number(found?.[2]) }
    const options = { ...user, stdio: 'ignore' as const, cwd: '/' }
    const canReach = ['-c', '"$1" --version && cd "$2"', 'sh', binary, folder]
    if (found !== null && spawnSync('/bin/sh', canReach, options).status === 0)
      return { how: `as ${name}, since Postgres refuses root`, prefix: [], user }
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
function inNamespace(reason: string): RunAs {
  if (spawnSync('unshare', ['-U', 'true'], { stdio: 'ignore' }).status === 0)
    return { how: `in a user namespace: ${reason}`, prefix: ['unshare', '-U'] }
  throw new UsageError(
    `the embedded Postgres cannot be started here: ${reason}, and user namespaces are not allowed. Run as a normal user ` +
      'with a name, move the folder where the user "nobody" can reach it, or set DATABASE_URL to a Postgres 15 or later',
  )
}

/** Starts a program of Postgres in a session of its own, so that signals of the terminal do not reach it. */
export function spawnAs({ prefix, user }: RunAs, words: string[], options: SpawnOptions): ChildProcess {
  const [program, ...args] = [...prefix, ...words]
  // Postgres may run as another user, who could read our variables: keys and passwords are not passed on.
  const env = { ...systemEnvironment(), ...options.env }
  return spawn(program!, args, { ...options, ...user, env, detached: true })
}

/** As root the user may change: a user "postgres" is added, or the folder moves to where only root can enter. */
export function ownFolder({ user = { uid: 0, gid: 0 } }: RunAs, path: string): void {
  if (process.getuid?.() !== 0 || statSync(path).uid === user.uid) return
  execFileSync('chown', ['-Rh', `${user.uid}:${user.gid}`, path])
}
