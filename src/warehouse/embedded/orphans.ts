import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { UsageError } from '../../core/errors.ts'
import { monotonic } from '../../core/monotonic.ts'
import { isProcessAlive, processIdentity } from '../../core/process-identity.ts'
import { folderIdentity, workingFolder } from './folder-identity.ts'
import { readPostmaster } from './postmaster.ts'

/* Servers that nobody looks after: those of version 0.2.0, and of a keeper that was killed together with its guard. They
 * are ended, not used: only one that this process starts is known to follow the present rules. */

const END_MS = 70_000

/** Ends a server that runs in the data folder, and clears what a dead one left there. */
export async function endServerIn(data: string): Promise<void> {
  const { pid } = readPostmaster(data)
  if (pid !== undefined && isPostgres(pid)) {
    const at = workingFolder(pid)
    if (at === undefined)
      throw new UsageError(
        `${data}: process ${pid} may be a Postgres that runs there; stop it with "kill -INT ${pid}" and try again`,
      )
    // In a copy of a data folder, the file names a server that runs in the original.
    if (at === folderIdentity(data)) await end(pid, 'SIGINT', data)
  }
  rmSync(join(data, 'postmaster.pid'), { force: true })
}

/**
 * Ends servers that were started with this path and now run in another folder, or in a deleted one: they would write
 * into the cluster that is about to be made here. SIGQUIT, because an orderly end writes a checkpoint.
 */
export async function endServersMovedFrom(data: string): Promise<void> {
  for (const { pid, command } of processes()) {
    if (!`${command} `.includes(` -D ${data} `) || !isPostgres(pid)) continue
    if (workingFolder(pid) !== folderIdentity(data)) await end(pid, 'SIGQUIT', data)
  }
}

async function end(pid: number, name: NodeJS.Signals, data: string): Promise<void> {
  const identity = processIdentity(pid)
  const deadline = monotonic() + END_MS
  while (isProcessAlive(identity)) {
    if (monotonic() > deadline)
      throw new UsageError(`${data}: a Postgres (process ${pid}) runs there and does not end; stop it and try again`)
    signalTo(pid, name, data)
    await delay(200)
  }
}

function signalTo(pid: number, name: NodeJS.Signals, data: string): void {
  try {
    process.kill(pid, name)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return
    throw new UsageError(`${data}: a Postgres (process ${pid}) of another user runs there; stop it and try again`)
  }
}

/** True for a server, not for its sessions. The number of a dead server may belong to something else by now. */
function isPostgres(pid: number): boolean {
  const name =
    process.platform === 'linux' ? commandOf(pid).split('\0')[0] : ps('-p', String(pid), '-o', 'comm=').trim()
  return /(^|\/)postgres$/.test(name ?? '')
}

function processes(): { pid: number; command: string }[] {
  if (process.platform === 'linux') {
    const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name))
    return pids.map((pid) => ({ pid: Number(pid), command: commandOf(Number(pid)).replaceAll('\0', ' ') }))
  }
  const lines = ps('-A', '-ww', '-o', 'pid=,args=').trim().split('\n')
  return lines.map((line) => ({ pid: Number.parseInt(line, 10), command: line }))
}

/** Its words, with a zero behind each. */
function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8')
  } catch {
    return ''
  }
}

function ps(...args: string[]): string {
  return spawnSync('ps', args, { encoding: 'utf8' }).stdout ?? ''
}
