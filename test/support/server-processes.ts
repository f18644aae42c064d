import { execFileSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { dirname } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { Client } from 'pg'
import { readServer } from '../../src/warehouse/embedded/postmaster.ts'
import { startEmbedded } from '../../src/warehouse/embedded/server.ts'
import { startProcess, temporaryFolder } from './cli.ts'

const NEVER_MS = 40_000

/** The server that runs in a folder, or undefined. */
export const runningIn = (folder: string) => readServer(folder)

/** Waits for a condition. */
export async function until(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = Date.now() + NEVER_MS
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`never: ${what}`)
    await delay(20)
  }
}

/** A folder with a cluster that was created before: much faster than creating one. */
export function clusterTemplate() {
  const own = temporaryFolder()
  return {
    async make(): Promise<void> {
      await (await startEmbedded({ folder: own.path })).release()
    },
    copyTo(folder: string): void {
      mkdirSync(dirname(folder), { recursive: true })
      // Only cp keeps the owner, who as root is another user.
      execFileSync('cp', ['-a', own.path, folder])
    },
    remove: own.remove,
  }
}

/** Rows of one statement. */
export async function query<T>(url: string, sql: string): Promise<T[]> {
  const client = new Client({ connectionString: url })
  client.on('error', () => {})
  try {
    await client.connect()
    return (await client.query(sql)).rows as T[]
  } finally {
    await client.end().catch(() => {})
  }
}

/** A command in a process group of its own that keeps the server of its folder up. */
export async function startDatabase(cwd: string) {
  const running = startProcess(['database', '--json'], { cwd, detached: true })
  await running.saw('"url"')
  return { ...running, toGroup: (name: NodeJS.Signals) => process.kill(-running.child.pid!, name) }
}
