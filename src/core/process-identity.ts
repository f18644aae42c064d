import { spawnSync } from 'node:child_process'
import { readFileSync, readlinkSync } from 'node:fs'
import { hostname } from 'node:os'
import { codeOf } from './errors.ts'

/*
 * A name for a process that no other process ever has: the boot of the machine, the pid namespace (containers number
 * their processes separately), the pid, and when it started (pids are used again). If the system does not say the
 * first two, as on macOS, the name of the machine must do.
 */

export function processIdentity(): string {
  return [machineScope(), process.pid, startTicks(process.pid) ?? ''].join('/')
}

/** False only if the process ran on this machine and is gone; undefined if that is not known here. */
export function isProcessAlive(identity: string): boolean | undefined {
  const [boot, namespace, pid, started] = identity.split('/')
  if (`${boot}/${namespace}` !== machineScope()) return undefined
  const number = Number(pid)
  if (!Number.isInteger(number) || number <= 0) return undefined
  return started === '' ? isRunning(number) : startTicks(number) === started
}

/** True also for a process of another user, unless only those count that we may stop. */
export function isRunning(pid: number, ofAnyUser = true): boolean {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return ofAnyUser && codeOf(error) !== 'ESRCH'
  }
}

function machineScope(): string {
  try {
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
    return `${boot}/${readlinkSync('/proc/self/ns/pid')}`
  } catch {
    return `${hostname().replaceAll('/', '-')}/-`
  }
}

/** When a process started, in clock ticks since boot, or as `ps` prints it; undefined if there is no such process. */
function startTicks(pid: number): string | undefined {
  if (process.platform !== 'linux') return startByPs(pid)
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    // The name of the program may hold spaces and brackets; fields are counted behind it. A zombie does not count as alive.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return fields[0] === 'Z' ? undefined : fields[19]
  } catch {
    return undefined
  }
}

function startByPs(pid: number): string | undefined {
  const { stdout } = spawnSync('ps', ['-p', String(pid), '-o', 'state=,lstart='], { encoding: 'utf8' })
  const [state, ...start] = (stdout ?? '').trim().split(/\s+/)
  return state?.startsWith('Z') || start.length === 0 ? undefined : start.join(' ')
}
