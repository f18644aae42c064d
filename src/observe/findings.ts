import { showRange } from '../core/day.ts'
import { clip, count, listSome } from '../core/text.ts'
import type { DifferingRange } from '../ledger/days.ts'
import type { HeldStatus, Status } from '../ledger/status.ts'
import type { RunReport } from '../sync/run/report.ts'
import type { DatabaseState } from '../warehouse/connect.ts'

export type Condition = 'run' | 'key' | 'held' | 'unreconciled' | 'stale' | 'database'
export type Severity = 'critical' | 'error' | 'warning'

export interface Finding {
  /** The problem, as the beginning of a sentence. */
  what: string
  severity: Severity
  /** The streams of projects that it concerns, if it can spread. */
  members: string[]
  /** Members that resolved while others did not. */
  over?: string[]
  reason?: string
  run?: number
  /** Since when, if that is known to be before it was noticed. */
  since?: Date
  command: string
}

export interface End {
  over: string[] | 'all'
}

/** Of each condition, what is wrong now, or what ended. A condition that is not named was not looked at. */
export type Findings = Partial<Record<Condition, Finding | End>>

export const ENDED: End = { over: 'all' }

export function isEnd(found: Finding | End): found is End {
  return !('what' in found)
}

/** The number of a run that failed before the ledger could give it one. */
export const NO_RUN = 0
/** Stands for all of a run that failed before it had streams. */
const WHOLE_RUN = 'the run'

/** `coversEverything`: the run read everything that is configured, so what it does not mention is no longer there. */
export function findingsOfRun(report: RunReport, { coversEverything }: { coversEverything: boolean }): Findings {
  if (report.outcome === 'interrupted') return {}
  const failures = report.streams.flatMap(({ failed }) => failed)
  const wrongKey = report.code === 'key' ? report.error : failures.find(({ code }) => code === 'key')?.error
  const answered = report.streams.some(({ windows }) => windows > 0)
  // One message for one cause.
  const isKeyAlone = wrongKey !== undefined && failures.every(({ code }) => code === 'key')
  return {
    ...(isKeyAlone && !answered ? {} : { run: runFinding(report, coversEverything) }),
    ...(wrongKey !== undefined ? { key: keyFinding(report, wrongKey) } : answered ? { key: ENDED } : {}),
  }
}

function runFinding(report: RunReport, coversEverything: boolean): Finding | End {
  const { streams, outcome, command } = report
  // What is held or not reconciled has an alert of its own.
  const isWell = ({ failed, quarantined }: RunReport['streams'][number]) => failed.length + quarantined === 0
  // Only a sync resolves alerts; a backfill of one day does not.
  const isRound = command === 'sync'
  const well = isRound ? [...streams.filter(isWell).map(memberOf), WHOLE_RUN] : []
  const hasOthers = streams.some(({ held, unreconciled }) => held.length + unreconciled.length > 0)
  if (outcome === 'complete' || (outcome === 'partial' && hasOthers && streams.every(isWell)))
    return { over: isRound && coversEverything ? 'all' : well }
  const troubled = streams.filter((stream) => !isWell(stream)).map(memberOf)
  const members = troubled.length === 0 ? [WHOLE_RUN] : troubled
  return {
    what: whatEnded(report),
    severity: outcome === 'failed' ? 'error' : 'warning',
    members,
    over: well.filter((member) => !members.includes(member)),
    ...runOf(report),
    ...causeOf(report),
  }
}

function causeOf({ streams, error }: RunReport): Pick<Finding, 'reason' | 'command'> {
  const failures = streams.flatMap(({ failed }) => failed)
  const quarantined = streams.reduce((sum, stream) => sum + stream.quarantined, 0)
  const example = error ?? failures[0]?.error
  const parts = [
    failures.length > 0 && count(failures.length, 'failure'),
    quarantined > 0 && `${count(quarantined, 'row')} quarantined`,
    example !== undefined && clip(example, 200),
  ].filter(Boolean)
  const command = failures.length === 0 && quarantined > 0 ? 'quarantine list' : 'status'
  return { ...(parts.length > 0 && { reason: parts.join('; ') }), command: `npx visibility-sync ${command}` }
}

function runOf({ run_id }: RunReport): { run?: number } {
  return run_id === NO_RUN ? {} : { run: run_id }
}

function keyFinding(report: RunReport, wrongKey: string): Finding {
  const refused = report.streams.filter(({ failed }) => failed.some(({ code }) => code === 'key'))
  return {
    what: 'the service refuses the key',
    severity: 'critical',
    members: [...new Set(refused.map(({ project_id }) => `all streams of ${project_id}`))],
    reason: clip(wrongKey, 200),
    ...runOf(report),
    command: 'npx visibility-sync check',
  }
}

function whatEnded({ run_id, command, outcome }: RunReport): string {
  if (run_id === NO_RUN) return `${command} failed before it began`
  return `run ${run_id} (${command}) ${outcome === 'failed' ? 'failed' : 'was partial'}`
}

/** Uses the ledger, not the report: a run may also release held days. */
export function findingOfHeld(held: readonly HeldStatus[]): Finding | End {
  const ranges = [...new Set(held.map(showRange))].sort()
  const commands = [...new Set(held.map(({ accept }) => accept))]
  return findingOf(held, ({ since }) => since, {
    what: 'held, since an answer would have deleted most rows',
    severity: 'warning',
    reason: listSome(ranges, 3),
    command: commands.length === 1 ? commands[0]! : 'npx visibility-sync status',
  })
}

export function findingOfUnreconciled(unreconciled: readonly DifferingRange[]): Finding | End {
  const [first] = unreconciled
  return findingOf(unreconciled, () => null, {
    what: 'does not add up to the totals of the service',
    severity: 'error',
    ...(first && { reason: clip(`${first.last_day}: ${first.difference}`, 200) }),
    command: 'npx visibility-sync status',
  })
}

export function findingsOfStatus(
  status: Pick<Status, 'streams' | 'held' | 'unreconciled'>,
  now: Date,
  maxStalenessMs: number,
): Findings {
  // Streams that were never read are reported as missing and as a failed run. They are not late.
  const stale = status.streams.filter(
    ({ last_read_at }) => last_read_at !== null && now.getTime() - last_read_at.getTime() > maxStalenessMs,
  )
  return {
    held: findingOfHeld(status.held),
    unreconciled: findingOfUnreconciled(status.unreconciled),
    stale: findingOf(stale, ({ last_read_at }) => last_read_at, {
      what: 'not read for too long',
      severity: 'error',
      command: 'npx visibility-sync sync',
    }),
  }
}

function findingOf<R extends { project_id: string; stream: string }>(
  rows: readonly R[],
  sinceOf: (row: R) => Date | null,
  about: Omit<Finding, 'members' | 'since'>,
): Finding | End {
  if (rows.length === 0) return ENDED
  const times = rows.flatMap((row) => sinceOf(row)?.getTime() ?? [])
  const since = times.length === 0 ? {} : { since: new Date(Math.min(...times)) }
  return { ...about, ...since, members: [...new Set(rows.map(memberOf))] }
}

function memberOf({ project_id, stream }: { project_id: string; stream: string }): string {
  return `${stream} of ${project_id}`
}

export function partsOf(member: string): { stream: string; project: string } | undefined {
  const at = member.lastIndexOf(' of ')
  return at < 0 ? undefined : { stream: member.slice(0, at), project: member.slice(at + 4) }
}

// A server that is restarted is back sooner than this.
const PATIENCE_MS = 60_000

/** A database that is away for a moment is not worth a message, unless a run failed of it. */
export function findingsOfDatabase({ up, forMs, reason }: DatabaseState, failed?: RunReport): Findings {
  if (up) return { database: ENDED }
  if (failed === undefined && forMs < PATIENCE_MS) return {}
  const why = reason ?? 'it cannot be reached'
  return {
    database: {
      what: 'the database does not answer',
      severity: 'critical',
      members: [],
      reason: failed === undefined ? why : `${why}; ${whatEnded(failed)}`,
      ...(failed && runOf(failed)),
      command: 'npx visibility-sync check',
    },
  }
}
