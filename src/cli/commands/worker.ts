import { rmSync, writeFileSync } from 'node:fs'
import { codeOf, messageOf, UsageError } from '../../core/errors.ts'
import { claimSource } from '../../ledger/source.ts'
import { openBoss } from '../../queue/boss.ts'
import { QueueWorker } from '../../queue/worker.ts'
import { signIn, signOfLife, signOut, type WorkerSelf } from '../../queue/workers.ts'
import { streamsOf } from '../../streams/registry.ts'
import { migrate } from '../../warehouse/migrate.ts'
import { withServices } from '../open.ts'
import { type Session, untilStopped } from '../session.ts'

const HEARTBEAT_MS = 5000

/** `worker`: takes windows from the shared queue until it is told to stop. */
export async function worker(
  session: Session,
  options: { concurrency?: number; heartbeatFile?: string },
): Promise<number> {
  const { log, clock, version } = session
  const concurrency = options.concurrency ?? session.config.source.concurrency
  const source = { ...session.config.source, concurrency }
  const config = { ...session.config, source, queue: { mode: 'pg-boss' as const } }
  const heartbeat = startHeartbeat(options.heartbeatFile)
  return withServices({ config, log, clock, version }, async (open) => {
    await migrate(open.warehouse, config)
    await claimSource(open.warehouse, open.sourceAddress)
    const boss = await openBoss(open.warehouse, log)
    const taker = new QueueWorker(open, boss, {
      concurrency,
      projects: open.projects,
      beat: (state) => signOfLife(open.warehouse, self, state),
    })
    const self: WorkerSelf = {
      id: taker.id,
      version,
      concurrency,
      source: open.source,
      projects: open.projects.map(({ id }) => id),
      streams: streamsOf(config).map(({ name }) => name),
    }
    await signIn(open.warehouse, self)
    try {
      taker.start()
      session.print(
        { worker_id: taker.id, concurrency, source: open.source, warehouse: open.database.shown },
        [
          `Working:   ${concurrency} at once, until stopped`,
          `Source:    ${open.source}`,
          `Warehouse: ${open.database.shown}${open.database.embedded ? '  (embedded, in .data/)' : ''}`,
        ].join('\n'),
      )
      await untilStopped(session)
      log.info({ done: taker.done }, 'told to stop')
      return 0
    } finally {
      await taker.stop()
      await signOut(open.warehouse, taker.id).catch(() => {})
      await boss.close()
    }
  }).finally(() => heartbeat.stop())
}

/**
 * Touches a file for as long as this process gets round to it, for a probe of who runs it. It says nothing of the database:
 * a worker that waits for one must not be restarted for that.
 */
function startHeartbeat(file: string | undefined): { stop(): void } {
  if (file === undefined) return { stop: () => {} }
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
      // The probe finds it old, which is right: whoever cannot write it any more needs a look.
    }
  }, HEARTBEAT_MS)
  return {
    stop() {
      clearInterval(timer)
      rmSync(file, { force: true })
    },
  }
}
