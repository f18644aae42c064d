import { parseRange, streamsToBackfill } from '../app/backfill-request.ts'
import { chooseProjects, type Open } from '../app/open-services.ts'
import { pruneAfterRun } from '../app/prune.ts'
import { runAudit } from '../audit/run-audit.ts'
import { dayOf } from '../core/day.ts'
import { messageOf } from '../core/errors.ts'
import type { Alerts } from '../observe/alerts.ts'
import { findingsOfDatabase, findingsOfRun, findingsOfStatus, NO_RUN } from '../observe/findings.ts'
import { type EndedRun, FollowedRun } from '../observe/followed-run.ts'
import type { Metrics } from '../observe/metrics.ts'
import type { DatabaseWatch } from '../schedule/database-watch.ts'
import type { Live } from '../schedule/live.ts'
import type { Scheduler } from '../schedule/scheduler.ts'
import type { Stream } from '../streams/stream.ts'
import type { RunReport } from '../sync/run/report.ts'
import type { RunRequest } from '../sync/run/run.ts'
import { runSync } from '../sync/run/run-sync.ts'
import type { Observer } from '../sync/run/task.ts'
import type { BackfillRequest, FailedStart } from '../web/server-options.ts'
import type { View } from '../web/view.ts'
import { auditReport } from './run-and-report.ts'
import type { Session } from './session.ts'

export type ServeRuns = ReturnType<typeof serveRuns>

/**
 * The three kinds of work of `serve`. The end of each is reported to `finished`, with a report, also if it failed
 * before the ledger knew of it.
 */
export function serveRuns(
  session: Session,
  open: Open,
  live: Live,
  finished: (run: FollowedRun, ended: EndedRun) => void,
) {
  const { config, log, signal, clock } = session

  async function perform(
    command: string,
    streams: readonly Stream[],
    work: (observer: Observer) => Promise<RunReport>,
    started?: (runId: number) => void,
  ): Promise<void> {
    const run = new FollowedRun(session, { command, streams })
    run.open = open
    const watch = live.watch((id) => {
      if (run.started(id)) started?.(id)
    })
    try {
      finished(run, run.ended(await work(watch.observer)))
    } catch (error) {
      finished(run, run.failed(error))
      throw error
    } finally {
      watch.end()
    }
  }

  const runOne = (
    request: Omit<RunRequest, 'projects' | 'signal'>,
    projects = open.projects,
    started?: (runId: number) => void,
  ) => {
    const whole = { ...request, projects, signal }
    const work = (observer: Observer) => runSync(open, whole, observer, open.execute)
    return perform(request.command, request.streams, work, started)
  }

  return {
    sync: () => runOne({ command: 'sync', streams: open.streams.named() }),
    audit: () =>
      perform('audit', session.streams.all, async (observer) => {
        const { projects, execute } = open
        const result = await runAudit(open, { projects, repair: true, signal, execute }, observer)
        log.info({ days: result.remaining, requests: result.requests }, 'audit ended')
        return auditReport(result, open.source)
      }),
    async backfill(scheduler: Scheduler, asked: BackfillRequest): Promise<{ runId: number } | { busy: string }> {
      const range = parseRange(asked, config, dayOf(clock()))
      const acceptDeletes = asked.acceptDeletes ?? false
      const streams = streamsToBackfill(open.streams, asked.streams, acceptDeletes)
      const projects = chooseProjects(config, clock, asked.projects)
      return new Promise((resolve, reject) => {
        const isStarted = scheduler.tryRun('backfill', async () => {
          const request = { command: 'backfill', streams, range, missingOnly: asked.missing, acceptDeletes }
          await runOne(request, projects, (runId) => resolve({ runId })).catch((error: unknown) => {
            reject(error as Error)
            throw error
          })
        })
        if (!isStarted) {
          resolve({ busy: `busy with ${scheduler.activity?.name ?? 'stopping'}: try again when it has ended` })
        }
      })
    },
  }
}

export interface ServeParts {
  session: Session
  open: Open
  watch: DatabaseWatch
  view: View
  alerts: Alerts
  metrics: Metrics
  maxStalenessMs: number
  ended: AbortSignal
}

const OUTSIDE_MS = 10_000

/** The work after each run of `serve`: reports, alerts, pruning. No run waits for it. */
export class AfterRun {
  /** True if a sync failed because the database was away: another one runs once it is back. */
  owesSync = false
  private readonly failedStarts = new Map<string, FailedStart>()
  private readonly pending = new Set<Promise<void>>()

  constructor(private readonly parts: ServeParts) {}

  /** The last run that failed before the ledger knew of it, unless its command has run since. */
  get failedStart(): FailedStart | undefined {
    return [...this.failedStarts.values()].at(-1)
  }

  runEnded(run: FollowedRun, ended: EndedRun): void {
    const { report, end } = ended
    const { session, view, metrics } = this.parts
    const { command } = report
    metrics.finished({ ...report, outcome: end }, session.clock())
    this.inBackground(run.sendEnd(ended, AbortSignal.timeout(OUTSIDE_MS)))
    view.cache.clear()
    if (end === 'locked') return
    if (report.run_id === NO_RUN && end === 'failed')
      this.failedStarts.set(command, { command, at: session.clock(), reason: report.error ?? '' })
    else this.failedStarts.delete(command)
    this.inBackground(this.alert(report))
  }

  async alertForState(): Promise<void> {
    const { alerts, watch, view, maxStalenessMs } = this.parts
    if (watch.state.up) await alerts.reconcile()
    else await alerts.update(findingsOfDatabase(watch.state))
    const status = view.latest?.status
    if (status !== undefined) await alerts.update(findingsOfStatus(status, view.ledgerNow(), maxStalenessMs))
    await alerts.sendUnsent()
  }

  async settle(): Promise<void> {
    await Promise.all(this.pending)
  }

  private async alert(report: RunReport): Promise<void> {
    const { session, open, alerts, watch, view, ended } = this.parts
    const state = await watch.look()
    if (!state.up && report.outcome !== 'complete') {
      if (report.command === 'sync' && report.outcome !== 'interrupted') this.owesSync = true
      await alerts.update(findingsOfDatabase(state, report))
      return
    }
    await view.refresh().catch(() => {})
    await alerts.update(findingsOfRun(report, { coversEverything: report.command === 'sync' }))
    await this.alertForState()
    await pruneAfterRun(session, open.warehouse, ended)
  }

  private inBackground(work: Promise<void>): void {
    const tracked = work
      .catch((error: unknown) => this.parts.session.log.warn({ reason: messageOf(error) }, 'after the run'))
      .finally(() => this.pending.delete(tracked))
    this.pending.add(tracked)
  }
}
