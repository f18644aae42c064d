import { linkSync, readdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { codeOf, messageOf, UsageError } from '../../core/errors.ts'
import { isProcessAlive } from '../../core/process-identity.ts'
import { folderIdentity } from './folder-identity.ts'

/** What the lock file says about the process that runs the server of a folder. */
export interface FolderLock {
  /** A name for the process that no other process ever has. */
  process: string
  /** The folder as device and inode: in a copy of the folder, a copy of the lock holds nothing. */
  folder: string
  /** Where the process listens for commands, and the 32 hexadecimal digits that they have to say there. */
  port: number
  token: string
}

/** A lock of a process in another container or machine counts only while it is refreshed. */
const FRESH_MS = 10_000
const DRAFT = /\.[\da-f]{32}$/

/** The lock of a live process. An empty, half-written or stale file is none. */
export function readLock(path: string): FolderLock | undefined {
  try {
    const lock = JSON.parse(readFileSync(path, 'utf8')) as FolderLock | null
    if (lock === null || typeof lock !== 'object' || typeof lock.process !== 'string') return undefined
    if (lock.folder !== folderIdentity(dirname(path))) return undefined
    const isAlive = isProcessAlive(lock.process) ?? Math.abs(Date.now() - statSync(path).mtimeMs) < FRESH_MS
    return isAlive ? lock : undefined
  } catch (error) {
    const code = codeOf(error)
    if (code === undefined || code === 'ENOENT') return undefined
    throw new UsageError(`${path}: cannot be read (${messageOf(error)}); is it of another user?`)
  }
}

/** True if the process holds a lock that it can see from here: one in another container cannot be talked to. */
export function isReachable(lock: FolderLock): boolean {
  return isProcessAlive(lock.process) === true
}

/**
 * Takes the lock unless a live process holds it. The file is written under another name first and appears whole: a full
 * disk or a kill leaves no half of it.
 */
export function takeLock(path: string, lock: FolderLock): boolean {
  const draft = `${path}.${lock.token}`
  try {
    writeFileSync(draft, JSON.stringify(lock), { mode: 0o600 })
    if (linked(draft, path)) return true
    if (readLock(path) !== undefined) return false
    // One at a time clears a stale lock, and looks again first: it may have been cleared and taken meanwhile.
    const clearing = `${path}.clear`
    if (!takeLock(clearing, lock)) return false
    try {
      if (readLock(path) === undefined) rmSync(path, { force: true })
      return linked(draft, path)
    } finally {
      rmSync(clearing, { force: true })
    }
  } finally {
    rmSync(draft, { force: true })
  }
}

function linked(draft: string, path: string): boolean {
  try {
    linkSync(draft, path)
    return true
  } catch (error) {
    // The draft is gone if the new holder of the lock tidied up.
    if (codeOf(error) === 'EEXIST' || codeOf(error) === 'ENOENT') return false
    throw error
  }
}

/** Removes drafts that a kill left behind. Only for the holder of the lock. */
export function tidyLock(path: string): void {
  for (const name of readdirSync(dirname(path))) {
    if (name.startsWith(basename(path)) && DRAFT.test(name)) rmSync(join(dirname(path), name), { force: true })
  }
}

/** Says that the holder lives, to those in other containers. */
export function refreshLock(path: string): void {
  try {
    utimesSync(path, new Date(), new Date())
  } catch {
    // The folder was moved or deleted: others notice that.
  }
}

export function dropLock(path: string, lock: FolderLock): void {
  if (readLock(path)?.token === lock.token) rmSync(path, { force: true })
}
