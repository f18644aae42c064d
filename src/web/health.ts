import { clip, count, streamDays } from '../core/text.ts'
import { type TroubleKind, troublesOf } from '../ledger/run-reason.ts'
import type { RunRow } from '../ledger/runs.ts'
import type { StreamStatus } from '../ledger/status.ts'
import type { StatusData } from './status-data.ts'
import type { View } from './view.ts'

/* Problems as data: for the banner, for the list below it, and for the order of projects. */

/** How one stream is: its words, and how grave the gravest of them is; 0 is well. */
interface StreamHealth {
  row: StreamStatus
  words: string[]
  rank: number
}

/** A project and its streams, the gravest first. */
export interface ProjectHealth {
  id: string
  name: string
  streams: StreamHealth[]
  troubled: StreamHealth[]
  rank: number
  /** When the least recently read stream was read; null if one was never read. */
  readAt: Date | null
}

/** How many days were never read, of a stream that was. Of one that never was, all are missing, and it is stale. */
export function missingDays({ days_missing, last_read_at }: StreamStatus): number {
  return last_read_at === null ? 0 : (days_missing ?? 0)
}

export function streamHealth(row: StreamStatus, now: Date, maxMs: number): StreamHealth {
  const { last_read_at, days_held, days_unreconciled, days_quarantined, days_stale } = row
  const candidates: [rank: number, isSo: boolean, word: string][] = [
    [
      4,
      last_read_at === null,
      row.is_table_missing ? 'its table is missing; the next sync makes it again' : 'never read',
    ],
    [4, last_read_at !== null && now.getTime() - last_read_at.getTime() > maxMs, 'stale'],
    [3, days_held > 0, row.days_missing === null ? 'held' : `${count(days_held, 'day')} held`],
    [3, days_unreconciled > 0, `${count(days_unreconciled, 'day')} not reconciled`],
    [2, days_quarantined > 0, 'rows in quarantine'],
    [1, days_stale > 0, count(days_stale, 'stale day')],
    [1, missingDays(row) > 0, `${count(missingDays(row), 'day')} missing`],
  ]
  const found = candidates.filter(([, isSo]) => isSo)
  return { row, words: found.map(([, , word]) => word), rank: Math.max(0, ...found.map(([rank]) => rank)) }
}

export function projectsByHealth({
  status,
  projects,
  ledgerNow,
  maxStalenessMs,
}: Pick<StatusData, 'status' | 'projects' | 'ledgerNow' | 'maxStalenessMs'>): ProjectHealth[] {
  const byProject = new Map<string, StreamHealth[]>()
  for (const row of status?.streams ?? []) {
    const list = byProject.get(row.project_id) ?? []
    byProject.set(row.project_id, list)
    list.push(streamHealth(row, ledgerNow, maxStalenessMs))
  }
  const all = projects.map(({ id, name }) => {
    const streams = (byProject.get(id) ?? []).sort((a, b) => b.rank - a.rank)
    const troubled = streams.filter(({ rank }) => rank > 0)
    const times = streams.map(({ row }) => row.last_read_at?.getTime())
    const readAt = times.length === 0 || times.includes(undefined) ? null : new Date(Math.min(...(times as number[])))
    return { id, name, streams, troubled, rank: streams[0]?.rank ?? 0, readAt }
  })
  return all.sort(
    (a, b) =>
      b.rank - a.rank || b.troubled.length - a.troubled.length || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0),
  )
}

/** Says no more than is known while the database is away. */
export function freshWords({ database }: Pick<StatusData, 'database'>): string {
  return database.up ? 'fresh and complete' : 'fresh and complete when last read'
}

type ProblemKind = 'start' | 'run' | 'stale' | 'held' | 'unreconciled' | 'quarantine' | 'dead' | 'changed' | 'missing'

export interface Problem {
  kind: ProblemKind
  /** For the banner: "3 ranges held". */
  text: string
  /** A command that helps more than the usual one. */
  remedy?: string
}

/** The command that helps, without the name of the program. Held days have commands of their own. */
export const REMEDIES: Record<Exclude<ProblemKind, 'held'>, string> = {
  start: 'check',
  run: 'sync',
  stale: 'sync',
  unreconciled: 'sync',
  quarantine: 'quarantine list',
  dead: 'sync',
  changed: 'sync',
  missing: 'sync',
}

export const BACKFILL_REST = 'backfill --from D --to D'

/** A sync does not read the days that a backfill was asked for. */
function problemOfRun(last: RunRow | undefined): Problem | undefined {
  if (last === undefined || last.outcome === 'complete') return undefined
  const { command, outcome } = last
  if (command !== 'backfill') return { kind: 'run', text: `the last run was ${outcome}` }
  return { kind: 'run', text: `the last run, a backfill, was ${outcome}`, remedy: BACKFILL_REST }
}

export function problemsOf(
  { status, queue, failedToStart }: Pick<StatusData, 'status' | 'queue'> & Partial<Pick<StatusData, 'failedToStart'>>,
  projects: readonly ProjectHealth[],
): Problem[] {
  if (status === undefined) return []
  const streams = projects.flatMap(({ streams: list }) => list)
  const stale = streams.filter(({ rank }) => rank === 4)
  const never = stale.filter(({ row }) => row.last_read_at === null).length
  const missing = streams.filter(({ row }) => missingDays(row) > 0).length
  const changed = streams.filter(({ row }) => row.days_stale > 0).length
  const open = status.quarantine.reduce((sum, row) => sum + row.open, 0)
  const unreconciled = status.unreconciled.reduce((sum, row) => sum + row.days, 0)
  const last = status.runs.find(({ outcome }) => outcome !== null)
  const dead = queue?.dead.length ?? 0
  const isFailed = last?.outcome === 'failed'
  const named: Partial<Record<TroubleKind, number>> = { held: status.totals.held, quarantined: open, unreconciled }
  const troubles = last?.outcome === 'partial' ? troublesOf(last.summary) : []
  // What kept the run from being complete is above it, with a command that helps.
  const isNamed = troubles.length > 0 && troubles.every(({ kind }) => named[kind])
  const lastRun = problemOfRun(last)
  const amount = (kind: ProblemKind, number: number, noun: string, words: string) =>
    number > 0 && { kind, text: `${count(number, noun)} ${words}` }
  const found: (Problem | false | undefined)[] = [
    failedToStart && {
      kind: 'start',
      text: `a ${failedToStart.command} failed before it began (${clip(failedToStart.reason, 200)})`,
    },
    isFailed && lastRun,
    amount('stale', stale.length - never, 'stream', 'not read for too long'),
    amount('stale', never, 'stream', 'never read'),
    amount('held', status.totals.held, 'range', 'held'),
    unreconciled > 0 && { kind: 'unreconciled', text: `${streamDays(unreconciled)} not reconciled` },
    amount('quarantine', open, 'row', 'in quarantine'),
    amount('dead', dead, 'window', 'given up'),
    !isFailed && !isNamed && lastRun,
    amount('changed', changed, 'stream', 'with days to read again'),
    amount('missing', missing, 'stream', 'with days that were never read'),
  ]
  return found.filter((problem): problem is Problem => typeof problem === 'object')
}

/** Answered from the state that was read last: a probe waits neither for the database nor for a large ledger. */
export function readiness(view: View, maxStalenessMs: number): { ready: boolean; reason?: string } {
  const not = (reason: string) => ({ ready: false, reason })
  if (!view.database.up) return not('the database cannot be reached')
  if (view.latest === undefined) return not('the ledger was not read yet')
  const { status } = view.latest
  // Before the first run nothing is late: it starts with the program.
  if (status === undefined || status.runs.length === 0) return { ready: true }
  const isFresh = (time: Date | null) => time !== null && view.ledgerNow().getTime() - time.getTime() <= maxStalenessMs
  const done = status.runs.find(({ outcome, command }) => outcome === 'complete' && command === 'sync')?.ended_at
  if (done != null) return isFresh(done) ? { ready: true } : not('the last success is too long ago')
  // Without a complete run among the last ones, the reads themselves decide.
  return status.streams.every(({ last_read_at }) => isFresh(last_read_at))
    ? { ready: true }
    : not('no run succeeded yet')
}
