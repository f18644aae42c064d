import { closeSync, linkSync, openSync, readFileSync, renameSync, rmSync, writeSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { messageOf, UsageError } from '../../core/errors.ts'

const PATIENCE_MS = 60_000

/** Runs one command at a time through starting and stopping the server. A lock whose holder died is taken over. */
export async function withFolderLock<T>(path: string, work: () => Promise<T>): Promise<T> {
  const deadline = Date.now() + PATIENCE_MS
  while (!take(path)) {
    if (Date.now() > deadline)
      throw new UsageError(`${path}: another command is starting or stopping the embedded Postgres`)
    await delay(50)
  }
  try {
    return await work()
  } finally {
    rmSync(path, { force: true })
  }
}

function take(path: string): boolean {
  try {
    const file = openSync(path, 'wx')
    writeSync(file, String(process.pid))
    closeSync(file)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST')
      throw new UsageError(`${path}: cannot be written: ${messageOf(error)}`)
  }
  clearIfStale(path)
  return false
}

function clearIfStale(path: string): void {
  const holder = readHolder(path)
  // Our own number in it is that of a dead process in an earlier container.
  if (holder === undefined || (holder !== process.pid && isAlive(holder))) return
  // Renaming first lets only one of several waiting commands clear it.
  const aside = `${path}.${process.pid}`
  try {
    renameSync(path, aside)
    // It may have been cleared and taken meanwhile: then it goes back to its new holder.
    if (readHolder(aside) === holder) rmSync(aside, { force: true })
    else linkSync(aside, path)
  } catch {
    // Another command cleared it.
  }
}

function readHolder(path: string): number | undefined {
  try {
    const pid = Number(readFileSync(path, 'utf8'))
    return Number.isInteger(pid) && pid > 0 ? pid : undefined
  } catch {
    return undefined
  }
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
