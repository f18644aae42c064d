import { spawnSync } from 'node:child_process'
import { chownSync, readFileSync } from 'node:fs'
import { userInfo } from 'node:os'
import { UsageError } from '../../core/errors.ts'

/** How to run Postgres so that it accepts its user: it refuses root, and a uid that has no name. */
export interface RunAs {
  /** Says it in the log. */
  how: string
  /** Put in front of every command. */
  prefix: string[]
  user: { uid: number; gid: number } | undefined
  /** Makes a folder or file belong to the user who runs Postgres. */
  own(path: string): void
}

const PLAIN: RunAs = { how: 'as this user', prefix: [], user: undefined, own: () => {} }

/** Picks the user for Postgres: ourselves, else postgres or nobody where they can reach the files, else a user namespace. */
export function chooseUser(binary: string, folder: string): RunAs {
  if (process.getuid?.() !== 0) {
    return hasName() ? PLAIN : namespace('this user id has no name')
  }
  for (const name of ['postgres', 'nobody']) {
    const user = lookUp(name)
    if (user === undefined || !canReach(user, binary, folder)) continue
    return {
      how: `as ${name}, since Postgres refuses root`,
      prefix: [],
      user,
      own: (path) => chownSync(path, user.uid, user.gid),
    }
  }
  return namespace('Postgres refuses root, and neither postgres nor nobody can reach this folder')
}

function hasName(): boolean {
  try {
    return userInfo().username !== ''
  } catch {
    return false
  }
}

function lookUp(name: string): { uid: number; gid: number } | undefined {
  try {
    const line = readFileSync('/etc/passwd', 'utf8')
      .split('\n')
      .find((entry) => entry.startsWith(`${name}:`))
    const [, , uid, gid] = line?.split(':') ?? []
    return uid === undefined || gid === undefined ? undefined : { uid: Number(uid), gid: Number(gid) }
  } catch {
    return undefined
  }
}

function canReach(user: { uid: number; gid: number }, binary: string, folder: string): boolean {
  const options = { uid: user.uid, gid: user.gid, stdio: 'ignore' as const, cwd: '/' }
  const runs = spawnSync(binary, ['--version'], options).status === 0
  return runs && spawnSync('/bin/sh', ['-c', 'cd "$1"', 'sh', folder], options).status === 0
}

/** In a user namespace of its own the process is nobody to itself, and keeps its rights to our files. */
function namespace(reason: string): RunAs {
  if (spawnSync('unshare', ['-U', 'true'], { stdio: 'ignore' }).status === 0) {
    return { how: `in a user namespace: ${reason}`, prefix: ['unshare', '-U'], user: undefined, own: () => {} }
  }
  throw new UsageError(
    `the embedded Postgres cannot be started here: ${reason}, and user namespaces are not allowed. Run as a normal user ` +
      'with a name, move the folder where the user "nobody" can reach it, or set DATABASE_URL to a Postgres 15 or later',
  )
}
