import { configuredProjects, queueName, withExisting } from '../../app/open-services.ts'
import { dayOf, showRange } from '../../core/day.ts'
import { clip, count, duration, listSome, secondsOf } from '../../core/text.ts'
import { type DifferingRange, hasLedger, OMITS_ROWS } from '../../ledger/days.ts'
import { type LedgerSize, readLedgerSize } from '../../ledger/retention.ts'
import { closeAbandonedRuns } from '../../ledger/run-lock.ts'
import {
  byAccept,
  type HeldStatus,
  type QuarantineStatus,
  readStatus,
  type Status,
  type StreamStatus,
  wordsOf,
} from '../../ledger/status.ts'
import { type QueueStatus, readQueueStatus } from '../../queue/dead-windows.ts'
import { streamKinds } from '../../streams/registry.ts'
import type { Warehouse } from '../../warehouse/connect.ts'
import { problemsOf, projectsByHealth, REMEDIES, streamHealth } from '../../web/health.ts'
import { type ProjectNames, projectNames, readProjectIds, readProjectNames } from '../project-names.ts'
import type { Part, Session } from '../session.ts'
import { good, paintOutcome, renderTable, warning, wrap } from '../table.ts'

const MOST_LISTED = 40

export async function status(session: Session, options: { runs: number }): Promise<number> {
  const { config, clock, width } = session
  return withExisting(session, async (warehouse, shown) => {
    if (await hasLedger(warehouse)) await closeAbandonedRuns(warehouse)
    const found = await readOwnStatus(session, warehouse, options.runs)
    if (found === undefined) {
      const text = [`Nothing was synced into ${shown} yet.`, `Next: ${session.command('sync')}`]
      session.print({ warehouse: shown, synced: false }, text)
      return 0
    }
    const ledger = await readLedgerSize(warehouse)
    const queue = (await readQueueStatus(warehouse, await queueName(config, session.streams, clock))) ?? null
    // Held days and quarantined rows may belong to projects that are no longer configured.
    const others = [...found.held, ...found.quarantine, ...found.drift].map(({ project_id }) => project_id)
    const dead = queue?.dead.map(({ project }) => project) ?? []
    const ids = [...new Set([...(await projectsShown(session, warehouse)), ...others, ...dead])]
    const names = projectNames(ids, await readProjectNames(warehouse), session.fullIds)
    const now = clock()
    const attention = needsAttention(session, found, queue)
    const document = { warehouse: shown, synced: true, attention, ...found, queue, ledger }
    const maxStalenessMs = secondsOf(config.serve.max_staleness) * 1000
    session.print(document, render(config.redactor.value(document), { names, width, now, maxStalenessMs }))
    return 0
  })
}

export async function readOwnStatus(session: Session, warehouse: Warehouse, runs: number): Promise<Status | undefined> {
  const { config, clock, command } = session
  const projects = await projectsShown(session, warehouse)
  const of = { config, today: dayOf(clock()), projects, streams: streamKinds(config), runs }
  const found = await readStatus(warehouse, of)
  const withFile = ({ accept, ...held }: HeldStatus) => ({ ...held, accept: command(wordsOf(accept)) })
  return found && { ...found, held: found.held.map(withFile) }
}

/** The projects of the warehouse, if all projects are configured and the service does not list them. */
async function projectsShown({ config, clock }: Session, warehouse: Warehouse): Promise<string[]> {
  if (config.all_projects) return readProjectIds(warehouse)
  return configuredProjects(config, clock).map(({ id }) => id)
}

interface Attention {
  reasons: string[]
  command: string
}

/** What is not right, by the command that helps; nothing if all is fresh. */
function needsAttention({ config, clock, command }: Session, found: Status, queue: QueueStatus | null): Attention[] {
  const ids = [...new Set(found.streams.map(({ project_id }) => project_id))]
  const projects = projectsByHealth({
    status: found,
    projects: ids.map((id) => ({ id, name: id })),
    ledgerNow: clock(),
    maxStalenessMs: secondsOf(config.serve.max_staleness) * 1000,
  })
  const byCommand = new Map<string, string[]>()
  for (const { kind, text, remedy } of problemsOf({ status: found, queue: queue ?? undefined }, projects)) {
    const helps = kind === 'held' ? found.held[0]!.accept : command(remedy ?? REMEDIES[kind])
    const reason = kind === 'held' ? `${text}, to be let through only if the rows are really gone` : text
    byCommand.set(helps, [...(byCommand.get(helps) ?? []), reason])
  }
  return [...byCommand].map(([helps, reasons]) => ({ reasons, command: helps }))
}

function verdict({ attention, streams }: Printed, { width }: Shown): Part[] {
  if (attention.length === 0)
    return [
      `${good('✓')} Fresh: ${count(streams.length, 'stream')}, nothing is missing, held or quarantined`,
      '  Recent days may still change: is_provisional in data_status marks them.',
    ]
  return [
    `${warning('!')} Needs attention`,
    ...attention.flatMap(({ reasons, command }) => [wrap(reasons.join(', '), width, '  ', '    '), `    ${command}`]),
  ]
}

interface Shown {
  names: ProjectNames
  width: number
  now: Date
  maxStalenessMs: number
}

interface Printed extends Status {
  attention: Attention[]
  warehouse: string
  queue: QueueStatus | null
  ledger: LedgerSize
}

function render(found: Printed, shown: Shown): Part[] {
  const { names, width, now } = shown
  const of = ({ stream, project_id }: { stream: string; project_id: string }) => `${stream} of ${names.of(project_id)}`
  const workers = found.queue?.workers ?? []
  const workerText = (worker: QueueStatus['workers'][number]) => {
    const trouble = worker.reason === null ? '' : `, backing off: ${clip(worker.reason, 100)}`
    const work = `${worker.busy} of ${worker.concurrency} busy, ${worker.done} done`
    return `worker ${worker.pid} on ${worker.host}: ${work}, since ${ago(worker.started_at, now)}${trouble}`
  }
  const current = workers.filter(({ is_current }) => is_current)
  const differing = (entry: DifferingRange) => {
    const { days, first_day, last_day, difference } = entry
    return `${of(entry)}: ${count(days, 'day')} in ${first_day}..${last_day}; on ${last_day} ${difference}`
  }
  const sections: [title: string, items: (string | [text: string, command: string])[]][] = [
    [
      'Held (an answer would have deleted most or all of the rows)',
      byAccept(found.held).map((group) => {
        const [{ project_id, from, to, accept }] = group
        const since = new Date(Math.min(...group.map((held) => held.since.getTime()))).toISOString().slice(0, 16)
        const streams = listSome(group.map(({ stream }) => stream))
        return [`${of({ stream: streams, project_id })}, ${from}..${to}, since ${since}Z; to let it through:`, accept]
      }),
    ],
    [
      'Not reconciled (the days do not add up to the totals of the service; each run reads them again)',
      found.unreconciled.map(differing),
    ],
    [
      'Loaded though they do not add up (the service leaves rows out; pages are proven instead)',
      found.not_additive.map((entry) => `${differing(entry)}${entry.stream === 'chats' ? '' : `; ${OMITS_ROWS}`}`),
    ],
    [
      'Quarantined rows ("npx visibility-sync quarantine list" shows them)',
      found.quarantine.map(
        (entry) =>
          `${of(entry)}: ${quarantinedText(entry)}, since ${dayOf(entry.oldest)}; e.g. ${clip(entry.example, 100)}`,
      ),
    ],
    [
      'Drift: undocumented behaviour of the service (no action needed)',
      found.drift.map((note) => `${of(note)}: ${note.kind} ${note.name}, e.g. ${clip(note.example, 60)}`),
    ],
    ['Lookback', lookbackText(found.lookback)],
    ['Queue', found.queue === null ? [] : [queueText(found.queue, current.length, now), ...current.map(workerText)]],
    [
      'Workers with another configuration (they take no windows of this one; restart them with it)',
      workers.filter(({ is_current }) => !is_current).map(workerText),
    ],
    [
      'Given up (failed several times; a backfill of these days tries again)',
      (found.queue?.dead ?? []).map(({ project, stream, range, reason, since }) => {
        const days = range === undefined ? '' : `, ${showRange(range)}`
        return `${of({ stream, project_id: project })}${days}, ${ago(since, now)}: ${clip(reason, 100)}`
      }),
    ],
    ['Ledger', [ledgerText(found.ledger)]],
  ]
  return [
    wrap(found.warehouse, width, 'Warehouse: '),
    '',
    ...verdict(found, shown),
    '',
    streamTable(found, shown),
    ...sections.flatMap(([title, items]) => section(title, items, width)),
    '',
    'Last runs',
    runTable(found.runs, width),
  ]
}

function section(title: string, items: (string | [text: string, command: string])[], width: number): Part[] {
  if (items.length === 0) return []
  const lines = items.slice(0, MOST_LISTED).flatMap((item) => {
    const [text, command] = typeof item === 'string' ? [item] : item
    return [wrap(text!, width, '  ', '    '), command !== undefined && `    ${command}`]
  })
  const more = items.length - MOST_LISTED
  return ['', title, ...lines, more > 0 && `  … ${more} more; --json shows all`]
}

function ago(date: Date | null, now: Date): string {
  return date === null ? 'never' : `${duration((now.getTime() - date.getTime()) / 1000)} ago`
}

function streamTable(found: Status, { names, width, now, maxStalenessMs }: Shown): string {
  const troubles = (row: StreamStatus) => streamHealth(row, now, maxStalenessMs).words
  const group = (row: StreamStatus) => names.heading(row.project_id)
  const note = (row: StreamStatus) => troubles(row).join(', ')
  return renderTable({ rows: found.streams, width, group, note }, [
    { title: '', value: (row) => (troubles(row).length === 0 ? good('✓') : warning('!')) },
    { title: 'stream', value: (row) => row.stream },
    { title: 'last read', value: (row) => ago(row.last_read_at, now) },
    { title: 'first day', value: (row) => row.first_day ?? '–', drop: 2 },
    { title: 'last day', value: (row) => row.last_day ?? '–' },
    { title: 'days', align: 'right', value: (row) => (row.days_missing === null ? '–' : row.days_read), drop: 1 },
    { title: 'missing', align: 'right', value: (row) => row.days_missing ?? '–' },
    { title: 'rows', value: (row) => row.rows },
  ])
}

function runTable(runs: Status['runs'], width: number): string {
  return renderTable({ rows: runs, width, note: (run) => run.reason ?? undefined }, [
    { title: 'run', align: 'right', value: (run) => String(run.run_id) },
    { title: 'command', value: (run) => run.command },
    { title: 'started (UTC)', value: (run) => run.started_at.toISOString().slice(0, 19).replace('T', ' ') },
    {
      title: 'took',
      value: (run) =>
        run.ended_at === null ? '–' : duration((run.ended_at.getTime() - run.started_at.getTime()) / 1000),
    },
    { title: 'outcome', value: (run) => (run.outcome === null ? 'running' : paintOutcome[run.outcome](run.outcome)) },
  ])
}

function queueText({ waiting, active, oldest }: QueueStatus, workers: number, now: Date): string {
  const age = oldest === null ? '' : `, the oldest put in ${ago(oldest, now)}`
  return `${count(waiting, 'window')} waiting${age}; ${active} being worked at; ${count(workers, 'worker')}`
}

/** "10 rows (3 of them without a valid date, in answers for 2026-01-01..2026-03-25)" */
function quarantinedText({ open, undated, undated_from, undated_to }: QuarantineStatus): string {
  const unknown =
    undated === 0 ? '' : ` (${undated} of them without a valid date, in answers for ${undated_from}..${undated_to})`
  return `${count(open, 'row')}${unknown}`
}

/** "31 MB: restatements 20 MB, coverage 8 MB, runs 2 MB" */
function ledgerText({ bytes, tables }: LedgerSize): string {
  const largest = tables.slice(0, 3).map((table) => `${table.name} ${size(table.bytes)}`)
  return `${size(bytes)}: ${largest.join(', ')}`
}

function size(bytes: number): string {
  if (bytes < 1_000_000) return `${Math.round(bytes / 1000)} kB`
  return bytes < 1_000_000_000 ? `${(bytes / 1_000_000).toFixed(1)} MB` : `${(bytes / 1_000_000_000).toFixed(2)} GB`
}

function lookbackText({ configured_days, needed_days, too_short }: Status['lookback']): string[] {
  if (needed_days === null) return []
  const needed = `the service still changed days up to ${count(needed_days - 1, 'day')} old; lookback_days is ${configured_days}`
  return [too_short ? `${needed}: too short, set it to ${needed_days}` : `${needed}: enough`]
}
