import { hostname } from 'node:os'
import { Alerts } from '../../alerts/alerts.ts'
import { channelsOf } from '../../alerts/channels.ts'
import { ENDED, findingsOfDatabase, findingsOfRun, findingsOfStatus, NO_RUN } from '../../alerts/findings.ts'
import { type Open, withServices } from '../../app/open-services.ts'
import { pruneAfterRun } from '../../app/prune.ts'
import { messageOf, TransientError, UsageError } from '../../core/errors.ts'
import { waitAtMost } from '../../core/time-limit.ts'
import { runReason } from '../../ledger/run-reason.ts'
import { lastRunHeads } from '../../ledger/runs.ts'
import { claimSource } from '../../ledger/source.ts'
import { createCron } from '../../schedule/cron.ts'
import { DatabaseWatch } from '../../schedule/database-watch.ts'
import { Live } from '../../schedule/live.ts'
import { Scheduler } from '../../schedule/scheduler.ts'
import type { RunReport } from '../../sync/run/report.ts'
import { createMetrics, type RunEnd } from '../../telemetry/metrics.ts'
import type { RunTelemetry } from '../../telemetry/run-telemetry.ts'
import { isAway } from '../../warehouse/away.ts'
import type { DatabaseState } from '../../warehouse/database-state.ts'
import { applyLabels } from '../../warehouse/load/labels.ts'
import { applyOwnBrands } from '../../warehouse/load/own-brands.ts'
import { migrate } from '../../warehouse/schema/migrate.ts'
import { createSidePool } from '../../warehouse/side-pool.ts'
import { createServer } from '../../web/server.ts'
import type { FailedStart } from '../../web/status-data.ts'
import { View } from '../../web/view.ts'
import { serveRuns } from '../serve-runs.ts'
import { type Session, untilStopped } from '../session.ts'

const LOOK_AROUND_MS = 60_000
// Of the grace, what a run in progress may take; the rest is for closing.
const GRACE_OF_RUN = 0.8
const LAST_WORDS_MS = 3000
const OUTSIDE_MS = 10_000
// A database that answers but cannot be used needs somebody's hand.
const TRY_AGAIN_MS = 30_000
const UNITS = { m: 60_000, h: 3_600_000, d: 86_400_000 }

/** `serve`: the scheduler, with the status page, health and metrics over HTTP, until it is asked to stop. */
export async function serve(session: Session, options: { host?: string; port?: number }): Promise<number> {
  const { config, log, clock, version } = session
  // A database that is away is waited for: the pages say so meanwhile.
  return withServices({ config, log, clock, version, unchecked: true }, (open) => serveWith(session, open, options))
}

async function serveWith(session: Session, open: Open, options: { host?: string; port?: number }): Promise<number> {
  const { config, log, clock, monotonic, version } = session
  const { timezone, jitter_seconds } = config.schedule
  const crons = {
    sync: createCron(config.schedule.cron, timezone),
    audit: createCron(config.schedule.audit_cron, timezone),
  }
  const maxStalenessMs = durationMs(config.serve.max_staleness)
  const ids = open.projects.map(({ id }) => id)
  const ended = new AbortController()
  const watchPool = createSidePool(open.warehouse, {
    name: 'visibility-sync watch',
    connections: 1,
    waiting: 16,
    patienceMs: 3000,
    limitMs: 3000,
  })
  const pagePool = createSidePool(open.warehouse, {
    name: 'visibility-sync pages',
    connections: 2,
    waiting: 256,
    patienceMs: 5000,
    limitMs: 10_000,
  })
  const watch = new DatabaseWatch({ pool: watchPool, clock, monotonic, log, looked: (state) => onLook(state) })
  const alerts = new Alerts({
    channels: channelsOf(config, open.database.shown),
    quietMs: config.alerts.quiet_minutes * 60_000,
    pageUrl: config.alerts.page_url,
    nameOf: (id) => view.latest?.names.get(id) ?? id,
    log,
    redactor: config.redactor,
    clock: () => watch.now(),
    signal: ended.signal,
    ledger: (work) =>
      watch.state.up ? watchPool.write(work) : Promise.reject(new TransientError('the database does not answer')),
  })
  const view = new View({ services: open, projects: open.projects, pool: pagePool, watch, alerts, monotonic })
  const metrics = createMetrics(session.streams.all.map(({ name }) => name))
  const live = new Live(clock, [metrics.observer])
  const failedStarts = new Map<string, FailedStart>()
  // What is done after a run holds up neither the run nor the next one.
  const afterwards = new Set<Promise<void>>()
  const later = (work: Promise<void>) => {
    const tracked = work
      .catch((error: unknown) => log.warn({ reason: messageOf(error) }, 'after the run'))
      .finally(() => afterwards.delete(tracked))
    afterwards.add(tracked)
  }
  /** True if a sync failed because the database was away: it is made good once it is back. */
  let owesSync = false

  const alertAfterRun = async (report: RunReport) => {
    const state = await watch.look()
    if (!state.up && report.outcome !== 'complete') {
      if (report.command === 'sync' && report.outcome !== 'interrupted') owesSync = true
      await alerts.update(findingsOfDatabase(state, report))
      return
    }
    await view.refresh().catch(() => {})
    await alerts.update(findingsOfRun(report, { isWhole: report.command === 'sync' }))
    await lookAround()
    await pruneAfterRun(session, open.warehouse, ended.signal)
  }
  const lookAround = async () => {
    if (watch.state.up) await alerts.reconcile()
    else await alerts.update(findingsOfDatabase(watch.state))
    const status = view.latest?.status
    if (status !== undefined) await alerts.update(findingsOfStatus(status, view.ledgerNow(), maxStalenessMs))
    await alerts.sendUnsent()
  }
  const runs = serveRuns(session, open, live, (report: RunReport, end: RunEnd, telemetry: RunTelemetry) => {
    metrics.finished({ ...report, outcome: end }, clock())
    later(reportEnd(telemetry, report, end))
    view.forget()
    if (report.run_id === NO_RUN && end === 'failed') {
      failedStarts.set(report.command, { command: report.command, at: clock(), reason: report.error ?? '' })
    } else if (end !== 'locked') failedStarts.delete(report.command)
    if (end !== 'locked') later(alertAfterRun(report))
  })
  const scheduler = new Scheduler(
    [
      { name: 'sync', cron: crons.sync, work: () => runs.sync() },
      { name: 'audit', cron: crons.audit, work: () => runs.audit() },
    ],
    { clock, log, jitterMs: jitter_seconds * 1000 },
  )
  // With a queue a backfill works beside the schedule, and later: a sync goes first there. Without one it takes a turn.
  const backfills = open.execute === undefined ? scheduler : new Scheduler([], { clock, log, jitterMs: 0 })

  let isServing = false
  /** False from when the database goes away until its tables are known to be there again. */
  let isReady = false
  let gettingReady: Promise<void> | undefined
  let notBefore = 0
  const getReady = async () => {
    await open.warehouse.check()
    await migrate(open.warehouse, config)
    await claimSource(open.warehouse, open.sourceAddress)
    await applyLabels(open.warehouse, ids, config.labels)
    await applyOwnBrands(open.warehouse, ids, config.labels)
    isReady = true
    await view.refresh().catch(() => {})
    await alerts.update({ database: ENDED })
    await alerts.reconcile()
  }
  /** Due is a sync whose last time passed without a run. */
  const isDue = async () => {
    const previous = crons.sync.previous(clock())
    const heads = await pagePool.read((warehouse) => lastRunHeads(warehouse, 20))
    const last = heads.find(({ command, outcome }) => command === 'sync' && outcome !== 'interrupted')
    return last === undefined || (previous !== undefined && last.started_at < previous)
  }
  const catchUp = async () => {
    if (!isReady || !(owesSync || (await isDue()))) return
    owesSync = false
    scheduler.trigger('sync')
  }
  const onLook = ({ up }: DatabaseState) => {
    if (!up) isReady = false
    if (!up || isReady || !isServing || gettingReady !== undefined || monotonic() < notBefore) return
    gettingReady = getReady()
      .then(catchUp)
      .catch((error: unknown) => {
        notBefore = monotonic() + TRY_AGAIN_MS
        log.error({ reason: messageOf(error) }, 'the database cannot be used yet')
      })
      .finally(() => {
        gettingReady = undefined
      })
  }

  const host = options.host ?? config.serve.host
  const port = options.port ?? config.serve.port
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
    next: () => ({ sync: scheduler.next('sync'), audit: scheduler.next('audit') }),
    failedToStart: () => [...failedStarts.values()].at(-1),
    backfill: (request) => runs.backfill(backfills, request),
    sync: () => {
      if (!isReady) return { busy: 'the database does not answer, so no sync can begin' }
      const { activity } = scheduler
      if (activity?.name === 'sync') return { busy: 'a sync is at work already' }
      scheduler.trigger('sync')
      return activity === undefined ? { begun: true } : { after: activity.name }
    },
  })
  const lookingAround = setInterval(() => void lookAround().catch(() => {}), LOOK_AROUND_MS)
  try {
    const address = await server.listen({ host, port }).catch((error: unknown) => {
      throw new UsageError(`serve: cannot listen on ${host}:${port} (${messageOf(error)})`)
    })
    const isThere = await untilReadyOrAway(watch, open, getReady)
    session.print(
      { address, source: open.source, warehouse: open.database.shown, next_sync: scheduler.next('sync') ?? null },
      [
        `Serving:   ${address}`,
        `Source:    ${open.source}`,
        `Warehouse: ${open.database.shown}${open.database.embedded ? '  (embedded, in .data/)' : ''}${isThere ? '' : '  (does not answer; waiting for it)'}`,
        `Schedule:  ${config.schedule.cron} (${timezone}), next ${scheduler.next('sync')?.toISOString() ?? 'never'}`,
      ].join('\n'),
    )
    log.info({ address, schedule: config.schedule.cron, timezone }, 'serving')
    isServing = true
    watch.start()
    void view.follow(ended.signal)
    scheduler.start()
    await catchUp().catch((error: unknown) => log.warn({ reason: messageOf(error) }, 'not known whether a sync is due'))
    await untilStopped(session)
    log.info({ grace_seconds: config.serve.grace_seconds }, 'asked to stop')
    const stopping = Promise.all([scheduler.stop(), backfills.stop()]).then(() =>
      waitAtMost(LAST_WORDS_MS, Promise.all(afterwards)),
    )
    if (!(await waitAtMost(config.serve.grace_seconds * GRACE_OF_RUN * 1000, stopping))) {
      log.error('the run did not end in time; the next one reads what it left')
      // Nothing is waited for any more, a database that does not answer least of all.
      open.warehouse.cut()
    }
    return 0
  } finally {
    clearInterval(lookingAround)
    ended.abort()
    watch.stop()
    watchPool.close()
    pagePool.close()
    await server.close()
  }
}

/** What those outside hear of the end of a run. It comes after the run and holds up nothing. */
function reportEnd(telemetry: RunTelemetry, report: RunReport, end: RunEnd): Promise<void> {
  const { run_id, streams, seconds, outcome, error = null } = report
  const reason = runReason({ outcome, error, summary: streams })
  const runId = run_id === NO_RUN ? undefined : run_id
  return telemetry.ended({ end, runId, streams, seconds, reason }, AbortSignal.timeout(OUTSIDE_MS))
}

/** Makes the database ready; false if it is away, so that waiting may help. Anything else ends the command. */
async function untilReadyOrAway(watch: DatabaseWatch, open: Open, getReady: () => Promise<void>): Promise<boolean> {
  const { up, mayPass } = await watch.look()
  if (!up && mayPass) return false
  try {
    // One that answers but will not have us is said in a sentence.
    if (!up) await open.warehouse.check()
    await getReady()
    return true
  } catch (error) {
    if (isAway(error)) return false
    throw error
  }
}

function durationMs(text: string): number {
  return Number(text.slice(0, -1)) * UNITS[text.at(-1) as keyof typeof UNITS]
}
