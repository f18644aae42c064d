import { dayOf } from '../../core/day.ts'
import { messageOf, UsageError } from '../../core/errors.ts'
import { lastRuns } from '../../ledger/runs.ts'
import { claimSource } from '../../ledger/source.ts'
import { findingsOfRun, findingsOfStatus, tell } from '../../schedule/alerts.ts'
import { createCron } from '../../schedule/cron.ts'
import { type Follow, Live } from '../../schedule/live.ts'
import { Scheduler } from '../../schedule/scheduler.ts'
import { streamsOf } from '../../streams/registry.ts'
import type { RunReport } from '../../sync/report.ts'
import { type RunRequest, runSync } from '../../sync/run.ts'
import { runAudit } from '../../sync/run-audit.ts'
import { applyLabels } from '../../warehouse/mentions.ts'
import { migrate } from '../../warehouse/migrate.ts'
import { applyOwnBrands } from '../../warehouse/own-brands.ts'
import { createMetrics } from '../../web/metrics.ts'
import { type BackfillRequest, createServer } from '../../web/server.ts'
import { createView } from '../../web/view.ts'
import { chooseProjects, type Open, withServices } from '../open.ts'
import { type Session, untilStopped } from '../session.ts'
import { parseRange, streamsToBackfill } from './backfill.ts'

const LOOK_AROUND_MS = 60_000
const UNITS = { m: 60_000, h: 3_600_000, d: 86_400_000 }

/** `serve`: the scheduler, with the status page, health and metrics over HTTP, until it is told to stop. */
export async function serve(session: Session, options: { host?: string; port?: number }): Promise<number> {
  const { config, log, clock, version } = session
  const { timezone, jitter_seconds } = config.schedule
  const crons = {
    sync: createCron(config.schedule.cron, timezone),
    audit: createCron(config.schedule.audit_cron, timezone),
  }
  const maxStalenessMs = durationMs(config.serve.max_staleness)
  return withServices({ config, log, clock, version }, async (open) => {
    await migrate(open.warehouse, config)
    await claimSource(open.warehouse, open.sourceAddress)
    const ids = open.projects.map(({ id }) => id)
    await applyLabels(open.warehouse, ids, config.labels)
    await applyOwnBrands(open.warehouse, ids, config.labels)
    const metrics = createMetrics()
    const live = new Live(clock, [metrics.observer])
    const view = createView(open, open.projects)
    const alerting = { warehouse: open.warehouse, webhookUrl: config.alerts.webhook_url, log }
    const lookAround = async () => {
      const status = await view.status()
      if (status !== undefined) await tell(alerting, findingsOfStatus(status, clock(), maxStalenessMs))
    }
    const run = runner(session, open, live, async (report) => {
      metrics.finished(report)
      await tell(alerting, findingsOfRun(report))
      await lookAround()
    })
    const scheduler = new Scheduler(
      [
        { name: 'sync', cron: crons.sync, work: () => run.sync() },
        { name: 'audit', cron: crons.audit, work: () => run.audit() },
      ],
      { clock, log, jitterMs: jitter_seconds * 1000 },
    )
    // With a queue a backfill works beside the schedule, and later: a sync goes first there. Without one it takes a turn.
    const backfills = open.drain === undefined ? scheduler : new Scheduler([], { clock, log, jitterMs: 0 })
    const server = createServer({
      view,
      live,
      metrics,
      version,
      warehouse: open.database.shown,
      maxStalenessMs,
      token: config.token,
      next: () => ({ sync: scheduler.next('sync'), audit: scheduler.next('audit') }),
      backfill: (request) => run.backfill(backfills, request),
    })
    const host = options.host ?? config.serve.host
    const port = options.port ?? config.serve.port
    const address = await server.listen({ host, port }).catch((error: unknown) => {
      throw new UsageError(`serve: cannot listen on ${host}:${port} (${messageOf(error)})`)
    })
    const watch = setInterval(() => void lookAround().catch(() => {}), LOOK_AROUND_MS)
    try {
      session.print(
        { address, source: open.source, warehouse: open.database.shown, next_sync: scheduler.next('sync') ?? null },
        [
          `Serving:   ${address}`,
          `Source:    ${open.source}`,
          `Warehouse: ${open.database.shown}${open.database.embedded ? '  (embedded, in .data/)' : ''}`,
          `Schedule:  ${config.schedule.cron} (${timezone}), next ${scheduler.next('sync')?.toISOString() ?? 'never'}`,
        ].join('\n'),
      )
      log.info({ address, schedule: config.schedule.cron, timezone }, 'serving')
      scheduler.start()
      if (await isDue(open, crons.sync.previous(clock()))) scheduler.trigger('sync')
      await untilStopped(session)
      log.info({ grace_seconds: config.serve.grace_seconds }, 'told to stop')
      await withinGrace(Promise.all([scheduler.stop(), backfills.stop()]), config.serve.grace_seconds, () =>
        log.error('the run did not end in time; the next one reads what it left'),
      )
      return 0
    } finally {
      clearInterval(watch)
      await server.close()
    }
  })
}

/** Due at the start is a sync whose last time passed without a run. */
async function isDue(open: Open, previous: Date | undefined): Promise<boolean> {
  const runs = await lastRuns(open.warehouse, 20)
  const last = runs.find(({ command, outcome }) => command === 'sync' && outcome !== 'interrupted')
  return last === undefined || (previous !== undefined && last.started_at < previous)
}

/** The three kinds of work, each of which ends in the same way. */
function runner(session: Session, open: Open, live: Live, finished: (report: RunReport) => Promise<void>) {
  const { config, log, signal, clock } = session
  async function runOne(request: Omit<RunRequest, 'projects' | 'signal'>, follow: Follow, projects = open.projects) {
    try {
      const report = await runSync(open, { ...request, projects, signal }, follow.observer, open.drain)
      await finished(report).catch((error: unknown) => log.warn({ reason: messageOf(error) }, 'after the run'))
    } finally {
      follow.end()
    }
  }
  return {
    sync: () => runOne({ command: 'sync', streams: streamsOf(config) }, live.follow()),
    async audit() {
      const startedAt = clock().getTime()
      let outcome: RunReport['outcome'] = 'failed'
      let error: string | undefined
      const follow = live.follow()
      try {
        const result = await runAudit(
          open,
          { projects: open.projects, repair: true, signal, drain: open.drain },
          follow.observer,
        )
        outcome = result.remaining === 0 ? (result.repair?.outcome ?? 'complete') : 'partial'
        if (result.remaining > 0) error = `${result.remaining} days still differ from the service`
        log.info({ days: result.remaining, requests: result.requests }, 'audit ended')
      } catch (cause) {
        outcome = signal.aborted ? 'interrupted' : 'failed'
        error = messageOf(cause)
        throw cause
      } finally {
        follow.end()
        const seconds = (clock().getTime() - startedAt) / 1000
        const report = { run_id: 0, command: 'audit', outcome, source: open.source, seconds, streams: [], notes: [] }
        await finished({ ...report, ...(error === undefined ? {} : { error }) }).catch(() => {})
      }
    },
    async backfill(scheduler: Scheduler, asked: BackfillRequest): Promise<{ runId: number } | { busy: string }> {
      const range = parseRange(asked, dayOf(clock()))
      const streams = streamsToBackfill(config, asked.streams)
      const projects = chooseProjects(open.projects, asked.projects)
      return new Promise((resolve, reject) => {
        const started = scheduler.tryRun('backfill', async () => {
          const request = { command: 'backfill', streams, range, missingOnly: asked.missing }
          await runOne(
            request,
            live.follow((runId) => resolve({ runId })),
            projects,
          ).catch((error: unknown) => {
            reject(error as Error)
            throw error
          })
        })
        if (!started) {
          resolve({ busy: `busy with ${scheduler.activity?.name ?? 'stopping'}: try again when it has ended` })
        }
      })
    },
  }
}

function durationMs(text: string): number {
  return Number(text.slice(0, -1)) * UNITS[text.at(-1) as keyof typeof UNITS]
}

async function withinGrace(work: Promise<unknown>, seconds: number, tooLate: () => void): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const end = new Promise<void>((done) => {
    timer = setTimeout(() => {
      tooLate()
      done()
    }, seconds * 1000)
  })
  await Promise.race([work, end])
  clearTimeout(timer)
}
