import { rmSync, writeFileSync } from 'node:fs'
import { type Open, queueName, withServices } from '../../app/open-services.ts'
import type { Config } from '../../core/config/load.ts'
import { codeOf, messageOf, UsageError } from '../../core/errors.ts'
import { sleep, untilStopped } from '../../core/waiting.ts'
import { claimSource } from '../../ledger/source.ts'
import { openQueue } from '../../queue/boss.ts'
import { QueueWorker } from '../../queue/worker.ts'
import { signOut } from '../../queue/workers.ts'
import { isTransient } from '../../warehouse/retry.ts'
import { migrate } from '../../warehouse/schema/migrate.ts'
import type { Session } from '../session.ts'

const TOUCH_MS = 5000
const PATIENCE_SECONDS = 5
const FIRST_PAUSE_MS = 500
const LONGEST_PAUSE_MS = 5000

/** A database that is away is waited for. */
export async function worker(
  session: Session,
  options: { concurrency?: number; heartbeatFile?: string },
): Promise<number> {
  const stopHeartbeat = startHeartbeat(options.heartbeatFile)
  try {
    return await workUntilStopped(session, options.concurrency)
  } finally {
    stopHeartbeat()
  }
}

async function workUntilStopped(session: Session, given: number | undefined): Promise<number> {
  const { log, signal } = session
  const concurrency = given ?? session.config.source.concurrency
  // Others may reach the service: windows are given back soon, and this worker tries again by itself.
  const patience_seconds = Math.min(PATIENCE_SECONDS, session.config.source.patience_seconds)
  const source = { ...session.config.source, concurrency, patience_seconds }
  const config: Config = { ...session.config, source, queue: { mode: 'pg-boss' } }
  let hasBegun = false
  const begun = () => {
    hasBegun = true
  }
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(LONGEST_PAUSE_MS, pauseMs * 2)) {
    try {
      return await withServices({ ...session, config }, (open) => runWorker(session, open, concurrency, begun))
    } catch (error) {
      if (signal.aborted) return 0
      if (hasBegun || !isTransient(error)) throw error
      log.warn({ reason: messageOf(error) }, 'waiting for the database')
      await sleep(pauseMs, signal).catch(() => {})
      if (signal.aborted) return 0
    }
  }
}

async function runWorker(session: Session, open: Open, concurrency: number, begun: () => void): Promise<number> {
  const { log, version, clock, signal } = session
  const { warehouse, config, owner, source, database } = open
  await migrate(warehouse, config)
  await claimSource(warehouse, open.sourceAddress)
  const queue = await openQueue(warehouse, await queueName(config, open.streams, clock), log, signal)
  const taker = new QueueWorker(
    open,
    queue,
    { id: owner, version, concurrency, source, queue: queue.name },
    open.projects,
  )
  try {
    await taker.start()
    begun()
    session.print({ worker_id: owner, concurrency, queue: queue.name, source, warehouse: database.shown }, [
      `Working:   ${concurrency} at once, until stopped`,
      `Source:    ${source}`,
      `Warehouse: ${database.described}`,
    ])
    await untilStopped(signal)
    log.info({ done: taker.done }, 'asked to stop')
    return 0
  } finally {
    warehouse.hurry()
    await taker.stop()
    await signOut(warehouse, owner).catch(() => {})
    await queue.close()
  }
}

/**
 * Touches a file every 5 seconds, for a liveness probe. A worker that waits for the database keeps touching it, so it is not
 * restarted.
 */
function startHeartbeat(file: string | undefined): () => void {
  if (file === undefined) return () => {}
  const touch = () => writeFileSync(file, `${process.pid}\n`)
  try {
    touch()
  } catch (error) {
    throw new UsageError(`--heartbeat-file: ${file} cannot be written (${codeOf(error) ?? messageOf(error)})`)
  }
  const timer = setInterval(() => {
    try {
      touch()
    } catch {
      // The liveness probe then finds the file too old, which is right: this worker needs attention.
    }
  }, TOUCH_MS)
  return () => {
    clearInterval(timer)
    rmSync(file, { force: true })
  }
}
