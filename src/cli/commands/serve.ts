import { hostname } from 'node:os'
import { type Open, withServices } from '../../app/open-services.ts'
import { codeOf, messageOf, TransientError, UsageError } from '../../core/errors.ts'
import { secondsOf } from '../../core/text.ts'
import { untilStopped, waitAtMost } from '../../core/waiting.ts'
import { lastRunHeads } from '../../ledger/runs.ts'
import { mcpRoutes } from '../../mcp/http.ts'
import { createMetrics } from '../../observe/metrics.ts'
import { createCron } from '../../schedule/cron.ts'
import { DatabaseWatch } from '../../schedule/database-watch.ts'
import { Live } from '../../schedule/live.ts'
import { Scheduler } from '../../schedule/scheduler.ts'
import { createSidePool, type SidePool } from '../../warehouse/side-pool.ts'
import { createServer } from '../../web/server.ts'
import { View } from '../../web/view.ts'
import { alertsOf } from '../run-and-report.ts'
import { Readiness } from '../serve-readiness.ts'
import { AfterRun, type ServeRuns, serveRuns } from '../serve-runs.ts'
import type { Session } from '../session.ts'
import { wrap } from '../table.ts'
import { openMcpDatabase } from './mcp.ts'

const ALERT_EVERY_MS = 60_000
// The share of the grace period that a run in progress may take; the rest is for closing.
const GRACE_OF_RUN = 0.8
const LAST_REPORTS_MS = 3000
const WATCH_POOL = { name: 'visibility-sync watch', connections: 1, waiting: 16, patienceMs: 3000, limitMs: 3000 }
const PAGE_POOL = { name: 'visibility-sync pages', connections: 2, waiting: 256, patienceMs: 5000, limitMs: 10_000 }

export async function serve(session: Session, options: { host?: string; port?: number }): Promise<number> {
  // If the database is away, the command waits for it: the pages report it meanwhile.
  return withServices({ ...session, unchecked: true }, (open) => serveWith(session, open, options))
}

async function serveWith(session: Session, open: Open, options: { host?: string; port?: number }): Promise<number> {
  const { config, log, clock, monotonic, version, width } = session
  const { host = config.serve.host, port = config.serve.port } = options
  const ended = new AbortController()
  const watchPool = createSidePool(open.warehouse, WATCH_POOL)
  const pagePool = createSidePool(open.warehouse, PAGE_POOL)
  const watch = new DatabaseWatch({ pool: watchPool, clock, monotonic, log })
  const view = new View({ services: open, projects: open.projects, pool: pagePool, watch, monotonic })
  const alerts = alertsOf(session, {
    warehouse: open.database.shown,
    nameOf: (id) => view.latest?.names.get(id) ?? id,
    clock: () => watch.now(),
    signal: ended.signal,
    ledger: (work) =>
      watch.state.up ? watchPool.write(work) : Promise.reject(new TransientError('the database does not answer')),
  })
  const metrics = createMetrics(session.streams.all.map(({ name }) => name))
  const live = new Live(clock, metrics.observer)
  const maxStalenessMs = 1000 * secondsOf(config.serve.max_staleness)
  const parts = { session, open, watch, view, alerts, metrics, maxStalenessMs, ended: ended.signal }
  const afterRun = new AfterRun(parts)
  const readiness = new Readiness(parts)
  const runs = serveRuns(session, open, live, (...run) => afterRun.runEnded(...run))
  const schedule = serveSchedule(session, open, runs)
  const { scheduler } = schedule
  const reader = config.mcp.database_url === undefined ? undefined : await openMcpDatabase(session)
  const server = createServer({
    view,
    live,
    metrics,
    monotonic,
    version,
    warehouse: open.database.shown,
    maxStalenessMs,
    hosts: [host, hostname(), ...config.serve.hosts],
    token: config.token,
    routes: (app, guard) =>
      mcpRoutes(app, guard, { config, clock, log, version, warehouse: reader?.warehouse ?? open.warehouse }),
    next: () => ({ sync: scheduler.next('sync'), audit: scheduler.next('audit') }),
    alerts: () => alerts.open,
    failedToStart: () => afterRun.failedStart,
    backfill: (request) => runs.backfill(schedule.backfills, request),
    sync: () =>
      readiness.isReady ? schedule.syncNow() : { busy: 'the database does not answer, so no sync can begin' },
  })
  const catchUp = async () => {
    if (!afterRun.owesSync && !(await isSyncDue(pagePool, schedule.previousSync()))) return
    afterRun.owesSync = false
    scheduler.trigger('sync')
  }
  const alerting = setInterval(() => void afterRun.alertForState().catch(() => {}), ALERT_EVERY_MS)
  try {
    const address = await server.listen({ host, port }).catch((error: unknown) => {
      const advice = 'choose another one by --host and --port, or serve.host and serve.port'
      throw new UsageError(`serve: cannot listen on ${host}:${port} (${codeOf(error) ?? messageOf(error)}); ${advice}`)
    })
    const isThere = await readiness.begin()
    const { cron, timezone } = config.schedule
    const { source, database } = open
    const next = scheduler.next('sync')
    session.print({ address, source, warehouse: database.shown, next_sync: next ?? null }, [
      wrap(`${address} (status), ${address}/insights`, width, 'Serving:   '),
      wrap(source, width, 'Source:    '),
      wrap(`${database.located}${isThere ? '' : ' (does not answer; waiting for it)'}`, width, 'Warehouse: '),
      wrap(`${cron} (${timezone}), next ${next?.toISOString() ?? 'never'}`, width, 'Schedule:  '),
    ])
    log.info({ address, schedule: cron, timezone }, 'serving')
    watch.start((state) => readiness.databaseSeen(state, catchUp))
    void view.refreshUntil(ended.signal)
    scheduler.start()
    if (isThere)
      await catchUp().catch((error: unknown) =>
        log.warn({ reason: messageOf(error) }, 'not known whether a sync is due'),
      )
    await untilStopped(session.signal)
    log.info({ grace_seconds: config.serve.grace_seconds }, 'asked to stop')
    const stopping = schedule.stop().then(() => waitAtMost(LAST_REPORTS_MS, afterRun.settle()))
    if (!(await waitAtMost(config.serve.grace_seconds * GRACE_OF_RUN * 1000, stopping))) {
      log.error('the run did not end in time; the next run continues')
      // Nothing is waited for any more, not even a database that does not answer.
      open.warehouse.cut()
    }
    return 0
  } finally {
    clearInterval(alerting)
    ended.abort()
    watch.stop()
    watchPool.close()
    pagePool.close()
    await server.close()
    await reader?.close()
  }
}

function serveSchedule({ config, clock, log }: Session, open: Open, runs: ServeRuns) {
  const { cron, audit_cron, timezone, jitter_seconds } = config.schedule
  const syncCron = createCron(cron, timezone)
  const scheduler = new Scheduler(
    [
      { name: 'sync', cron: syncCron, work: () => runs.sync() },
      { name: 'audit', cron: createCron(audit_cron, timezone), work: () => runs.audit() },
    ],
    { clock, log, jitterMs: jitter_seconds * 1000 },
  )
  // With a queue a backfill runs beside the schedule, where a sync goes first. Without one it takes a turn.
  const backfills = open.execute === undefined ? scheduler : new Scheduler([], { clock, log, jitterMs: 0 })
  return {
    scheduler,
    backfills,
    previousSync: () => syncCron.previous(clock()),
    syncNow() {
      const { activity } = scheduler
      if (activity?.name === 'sync') return { busy: 'a sync is at work already' }
      scheduler.trigger('sync')
      return activity === undefined ? { begun: true as const } : { after: activity.name }
    },
    stop: () => Promise.all([scheduler.stop(), backfills.stop()]),
  }
}

async function isSyncDue(pool: SidePool, previous: Date | undefined): Promise<boolean> {
  const heads = await pool.read((warehouse) => lastRunHeads(warehouse, 20))
  const last = heads.find(({ command, outcome }) => command === 'sync' && outcome !== 'interrupted')
  return last === undefined || (previous !== undefined && last.started_at < previous)
}
