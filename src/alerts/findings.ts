import { clip, count, listSome } from '../core/text.ts'
import type { HeldStatus, StreamStatus } from '../ledger/status.ts'
import type { RunReport } from '../sync/run/report.ts'
import type { DatabaseState } from '../warehouse/database-state.ts'

/* What is worth telling people, as data. */

export type Condition = 'run' | 'key' | 'held' | 'stale' | 'database'

export interface Finding {
  text: string
  /** What it is about, where it can spread. */
  members: string[]
}

/** Of each condition, what is wrong now; undefined where nothing is. A condition that is not named was not looked at. */
export type Findings = Partial<Record<Condition, Finding | undefined>>

/** The number of a run that failed before the ledger could give it one. */
export const NO_RUN = 0

export function findingsOfRun(report: RunReport): Findings {
  if (report.outcome === 'interrupted') return {}
  const failures = report.streams.flatMap(({ failed }) => failed.map(({ error }) => error))
  const reason = report.error ?? failures[0]
  const wrongKey = [report.error ?? '', ...failures].find((text) => text.includes('check VISIBILITY_API_KEY'))
  const quarantined = report.streams.reduce((sum, stream) => sum + stream.quarantined, 0)
  const parts = [
    ...(failures.length > 0 ? [count(failures.length, 'failure')] : []),
    ...(quarantined > 0 ? [`${count(quarantined, 'row')} quarantined`] : []),
    ...(reason === undefined ? [] : [clip(reason, 200)]),
  ]
  const found = (text: string): Finding => ({ text, members: [] })
  const answered = report.streams.some(({ windows }) => windows > 0)
  return {
    // Only the sync that comes round says that all is well again; a backfill of one day does not.
    ...(report.outcome !== 'complete'
      ? { run: found(`${whatEnded(report)}: ${parts.join('; ') || 'something was held back'}`) }
      : report.command === 'sync'
        ? { run: undefined }
        : {}),
    ...(wrongKey !== undefined
      ? { key: found(`the service refuses the key: ${clip(wrongKey, 200)}`) }
      : answered
        ? { key: undefined }
        : {}),
  }
}

function whatEnded({ run_id, command, outcome }: RunReport): string {
  if (run_id === NO_RUN) return `${command} failed before it began`
  return `run ${run_id} (${command}) ${outcome === 'failed' ? 'failed' : 'was partial'}`
}

/** As the ledger says, since a run may also have let something through. */
export function findingOfHeld(held: readonly Pick<HeldStatus, 'project_id' | 'stream'>[]): Finding | undefined {
  return about(held, 'held back, since an answer would have deleted most rows')
}

export function findingsOfStatus(
  status: { streams: readonly StreamStatus[]; held: readonly HeldStatus[] },
  now: Date,
  maxStalenessMs: number,
): Findings {
  // What was never read shows as missing, and as a run that failed; it is not late.
  const stale = status.streams.filter(
    ({ last_read_at }) => last_read_at !== null && now.getTime() - last_read_at.getTime() > maxStalenessMs,
  )
  return { held: findingOfHeld(status.held), stale: about(stale, 'not read for too long') }
}

function about(streams: readonly { project_id: string; stream: string }[], text: string): Finding | undefined {
  const members = [...new Set(streams.map(({ project_id, stream }) => `${stream} of ${project_id}`))]
  return members.length === 0 ? undefined : { text: `${text}: ${listSome(members)}`, members }
}

// A server that is restarted is back sooner than this.
const PATIENCE_MS = 60_000

/** A database that is away for a moment is not worth a message, unless a run failed of it. */
export function findingsOfDatabase({ up, forMs, reason }: DatabaseState, failed?: RunReport): Findings {
  if (up) return { database: undefined }
  if (failed === undefined && forMs < PATIENCE_MS) return {}
  const parts = [reason ?? 'the database cannot be reached', ...(failed === undefined ? [] : [whatEnded(failed)])]
  return { database: { text: parts.join('; '), members: [] } }
}
