import { spawnSync } from 'node:child_process'
import { lchownSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { userInfo } from 'node:os'
import { join } from 'node:path'
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

/** Picks the user for Postgres: ourselves, else postgres or nobody if they can reach the files, else a user namespace. */
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
      own: (path) => lchownSync(path, user.uid, user.gid),
    }
  }
  return namespace('Postgres refuses root, and neither postgres nor nobody can reach this folder')
}

/**
 * Gives a data folder to the user who runs Postgres now. As root that changes: a user "postgres" is added, or the folder
 * moves to where only root can enter.
 */
export function ownDataFolder({ user }: RunAs, data: string): void {
  const { uid, gid } = user ?? { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }
  if (process.getuid?.() !== 0 || statSync(data).uid === uid) return
  for (const name of readdirSync(data, { recursive: true, encoding: 'utf8' })) lchownSync(join(data, name), uid, gid)
  // Last: a folder that belongs to the user is one whose contents do.
  lchownSync(data, uid, gid)
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
