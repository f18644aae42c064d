import { spawnSync } from 'node:child_process'
import { statSync } from 'node:fs'

/* A folder is identified by device and inode. Its path may name another folder by now: folders are moved, deleted and copied
 * under a running server, which goes on in the one that it was started in. */

/** The folder that a path names now, or undefined if there is none. */
export function folderIdentity(path: string): string | undefined {
  try {
    const { dev, ino } = statSync(path, { bigint: true })
    return `${dev}:${ino}`
  } catch {
    return undefined
  }
}

/** The folder that a process works in; undefined if the system does not say. */
export function workingFolder(pid: number): string | undefined {
  return process.platform === 'linux' ? folderIdentity(`/proc/${pid}/cwd`) : workingFolderByLsof(pid)
}

/** The fields of lsof: D and the device in hexadecimal, i and the inode. */
export function workingFolderByLsof(pid: number): string | undefined {
  const { stdout } = spawnSync('lsof', ['-a', '-p', String(pid), '-d', 'cwd', '-F', 'Di'], { encoding: 'utf8' })
  const device = /^D(0x[\da-f]+)$/im.exec(stdout ?? '')?.[1]
  const inode = /^i(\d+)$/m.exec(stdout ?? '')?.[1]
  return device === undefined || inode === undefined ? undefined : `${BigInt(device)}:${inode}`
}
