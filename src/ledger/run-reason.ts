import { REPORTED_CODES, type ReportedCode, reportedCode, toFailureCode } from '../core/failure-code.ts'
import { clip, count, grouped, listSome, streamDays } from '../core/text.ts'

/* Why a run was not complete, from what the ledger keeps of it: for the log, `status`, the page and the summary of a run. */

export type TroubleKind = ReportedCode | 'held' | 'unreconciled' | 'quarantined'

export interface Trouble {
  kind: TroubleKind
  /** Windows and lists, or rows if they were quarantined. */
  count: number
  streams: string[]
  projects: string[]
  /** "3 windows of chats could not be read" */
  text: string
  occurrences: Occurrence[]
}

interface Occurrence {
  project_id: string
  stream: string
  range: string | undefined
  detail: string
}

/** The summary of a run as it was stored. Older versions stored less, and an audit stores something else. */
interface StoredStream {
  project_id: string
  stream: string
  quarantined?: number
  held?: { range: string; rows_present: number; rows_vanishing: number }[]
  unreconciled?: { date: string; difference: string }[]
  failed?: { range: string; error: string; code?: string }[]
  differing?: string[]
}

interface EndedRun {
  outcome: string | null
  error: string | null
  summary: unknown
}

const LONGEST = 240

/** One sentence on why a run was not complete; undefined if it was, or goes on. */
export function runReason({ outcome, error, summary }: EndedRun): string | undefined {
  if (outcome === null || outcome === 'complete') return undefined
  const troubles = troublesOf(summary)
  const texts = troubles.map(({ kind, text, occurrences }) => {
    if (kind === 'quarantined' || kind === 'interrupted') return text
    if (kind === 'held') return `${text}: ${vanishing(storedStreams(summary).flatMap(({ held = [] }) => held))}`
    // Windows that were left because of a failure repeat its reason with words before it.
    const [example] = occurrences.map(({ detail }) => detail).sort((a, b) => a.length - b.length)
    return `${text}: ${example}`
  })
  if (error !== null) {
    const own = troubles.flatMap(({ kind }, index) => (AFTERMATH.has(kind) ? [] : [texts[index]!]))
    return sentence([clip(error, LONGEST), ...own])
  }
  const days = storedStreams(summary).reduce((sum, { differing = [] }) => sum + differing.length, 0)
  if (days > 0)
    texts.push(`the audit found ${streamDays(days)} that ${days === 1 ? 'differs' : 'differ'} from the service`)
  if (texts.length === 0) texts.push(outcome === 'interrupted' ? 'it was asked to stop' : 'nothing more is known')
  return sentence(texts)
}

/** If the whole run failed, its unread windows have the same reason. They are not listed again. */
export const AFTERMATH: ReadonlySet<TroubleKind> = new Set(['key', 'transient', 'error', 'interrupted'])

function sentence(parts: readonly string[]): string {
  const text = parts.join('; ').replace(/[.;\s]+$/, '')
  // An id at the beginning stays as it is.
  return `${text.replace(/^[a-z]+(?=[ ,:])/, (word) => word.charAt(0).toUpperCase() + word.slice(1))}.`
}

const KINDS: readonly TroubleKind[] = [...REPORTED_CODES, 'held', 'unreconciled', 'quarantined']

/** Everything that kept a run from being complete, the worst first. */
export function troublesOf(summary: unknown): Trouble[] {
  const all = storedStreams(summary).flatMap(occurrencesOf)
  return KINDS.flatMap((kind) => {
    const occurrences = all.filter((one) => one.kind === kind)
    if (occurrences.length === 0) return []
    const number = occurrences.reduce((sum, { count }) => sum + count, 0)
    const streams = [...new Set(occurrences.map(({ stream }) => stream))]
    const projects = [...new Set(occurrences.map(({ project_id }) => project_id))]
    const text = WORDS[kind](number, listSome(streams, 3), projects.length)
    return [{ kind, count: number, streams, projects, text, occurrences }]
  })
}

function occurrencesOf(row: StoredStream): (Occurrence & { kind: TroubleKind; count: number })[] {
  const { project_id, stream, failed = [], held = [], unreconciled = [], quarantined = 0 } = row
  const one = (kind: TroubleKind, range: string | undefined, detail: string, number = 1) => {
    return { project_id, stream, kind, range, detail, count: number }
  }
  return [
    ...failed.map(({ range, error, code }) => one(reportedCode(toFailureCode(code)), range, clip(error, LONGEST))),
    ...held.map((entry) => one('held', entry.range, vanishing([entry]))),
    ...unreconciled.map(({ date, difference }) => one('unreconciled', date, difference)),
    ...(quarantined > 0 ? [one('quarantined', undefined, count(quarantined, 'row'), quarantined)] : []),
  ]
}

function vanishing(held: NonNullable<StoredStream['held']>): string {
  const sum = (field: 'rows_present' | 'rows_vanishing') => held.reduce((total, entry) => total + entry[field], 0)
  return whyHeld({ rows_present: sum('rows_present'), rows_vanishing: sum('rows_vanishing') })
}

/** All streams follow the control totals, so few rows of a stream may vanish. */
export function whyHeld({ rows_present, rows_vanishing }: { rows_present: number; rows_vanishing: number }): string {
  if (rows_vanishing * 2 <= rows_present) return 'the answers of the control totals fell below half'
  return `${grouped(rows_vanishing)} of ${count(rows_present, 'row')} would have vanished`
}

function storedStreams(summary: unknown): StoredStream[] {
  const list: unknown[] = Array.isArray(summary) ? summary : []
  return list.filter((row): row is StoredStream => typeof row === 'object' && row !== null && 'stream' in row)
}

const windows = (number: number, streams: string) => `${count(number, 'window')} of ${streams}`
const were = (number: number) => (number === 1 ? 'was' : 'were')

const WORDS: Record<TroubleKind, (number: number, streams: string, projects: number) => string> = {
  key: () => 'the service refuses the key',
  project: (_number, _streams, projects) => `the service refuses everything of ${count(projects, 'project')}`,
  refused: (number, streams) => `the service refuses ${windows(number, streams)}`,
  incomplete: (number, streams) => `${windows(number, streams)} could not be proven complete`,
  'bad-page': (number, streams) => `${windows(number, streams)} had too many bad rows, so nothing of them was loaded`,
  transient: (number, streams) => `${windows(number, streams)} could not be read or loaded`,
  dead: (number, streams) => `${windows(number, streams)} ${were(number)} given up in the queue`,
  'worker-died': (number, streams) =>
    `${windows(number, streams)} ${were(number)} given up: workers that read it died again and again`,
  error: (number, streams) => `${windows(number, streams)} failed`,
  superseded: (number, streams) =>
    `a newer read of ${windows(number, streams)} was loaded meanwhile, so this one was not`,
  interrupted: (number, streams) => `${windows(number, streams)} ${were(number)} not read, because the run was stopped`,
  held: (number, streams) => `${windows(number, streams)} ${number === 1 ? 'is' : 'are'} held`,
  unreconciled: (number, streams) =>
    `${count(number, 'day')} of ${streams} ${number === 1 ? 'does' : 'do'} not add up to the totals of the service`,
  quarantined: (number, streams) => `${count(number, 'row')} of ${streams} ${were(number)} quarantined`,
}
