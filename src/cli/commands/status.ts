import { daysOfInterest } from '../../core/config/load.ts'
import { dayOf, showRange } from '../../core/day.ts'
import { clip, count } from '../../core/text.ts'
import { hasLedger } from '../../ledger/coverage.ts'
import { closeAbandonedRuns } from '../../ledger/locks.ts'
import { readStatus, type Status, type StreamStatus } from '../../ledger/status.ts'
import { type QueueStatus, readQueueStatus } from '../../queue/status.ts'
import { streamsOf } from '../../streams/registry.ts'
import { configuredProjects, openWarehouse, queueName } from '../open.ts'
import { duration } from '../progress.ts'
import type { Session } from '../session.ts'
import { renderTable } from '../table.ts'

/** `status`: freshness, coverage, what is held or quarantined, and the last runs. */
export async function status(session: Session, options: { runs: number }): Promise<number> {
  const { config, log, clock } = session
  const now = clock()
  const database = await openWarehouse(config, log)
  try {
    const today = dayOf(now)
    if (await hasLedger(database.warehouse)) await closeAbandonedRuns(database.warehouse)
    const found = await readStatus(database.warehouse, {
      interest: daysOfInterest(config, today),
      today,
      lookbackDays: config.lookback_days,
      projects: configuredProjects(config, clock).map(({ id }) => id),
      streams: streamsOf(config),
      runs: options.runs,
    })
    if (found === undefined) {
      session.print(
        { warehouse: database.shown, synced: false },
        `Nothing was synced into ${database.shown} yet. Next: npx visibility-sync sync`,
      )
      return 0
    }
    const queue = await readQueueStatus(database.warehouse, await queueName(config, clock))
    session.print(
      { warehouse: database.shown, synced: true, ...found, queue: queue ?? null },
      render(found, queue, now, database.shown),
    )
    return 0
  } finally {
    await database.close()
  }
}

function render(found: Status, queue: QueueStatus | undefined, now: Date, warehouse: string): string {
  const ago = (date: Date | null) =>
    date === null ? 'never' : `${duration((now.getTime() - date.getTime()) / 1000)} ago`
  const streams = renderTable<StreamStatus>(
    [
      { title: 'project', value: (row) => row.project_id },
      { title: 'stream', value: (row) => row.stream },
      { title: 'last read', value: (row) => ago(row.last_read_at) },
      { title: 'first day', value: (row) => row.first_day ?? '–' },
      { title: 'last day', value: (row) => row.last_day ?? '–' },
      { title: 'days', align: 'right', value: (row) => (row.days_missing === null ? '–' : row.days_read) },
      { title: 'missing', align: 'right', value: (row) => row.days_missing ?? '–' },
      { title: 'rows', align: 'right', value: (row) => row.rows },
      { title: 'state', value: stateText },
    ],
    found.streams,
  )
  const runs = renderTable(
    [
      { title: 'run', align: 'right', value: (run: Status['runs'][number]) => String(run.run_id) },
      { title: 'command', value: (run) => run.command },
      { title: 'started (UTC)', value: (run) => run.started_at.toISOString().slice(0, 19).replace('T', ' ') },
      {
        title: 'took',
        value: (run) =>
          run.ended_at === null ? '–' : duration((run.ended_at.getTime() - run.started_at.getTime()) / 1000),
      },
      { title: 'outcome', value: (run) => run.outcome ?? 'running' },
      { title: 'error', value: (run) => clip(run.error ?? '', 60) },
    ],
    found.runs,
  )
  return [
    `Warehouse: ${warehouse}`,
    '',
    streams,
    ...section(
      'Held (an answer would have deleted more than half of the rows)',
      found.held.flatMap((held) => [
        `  ${held.stream} of ${held.project_id}, ${held.from}..${held.to}, since ${held.since.toISOString().slice(0, 16)}Z`,
        `    to let it through: ${held.accept}`,
      ]),
    ),
    ...section(
      'Quarantined rows',
      found.quarantine.map(
        (entry) =>
          `  ${entry.stream} of ${entry.project_id}: ${entry.open}, since ${entry.oldest.toISOString().slice(0, 10)}; e.g. ${clip(entry.example, 100)}`,
      ),
    ),
    ...section(
      'Drift (not in the interface; data, not an error)',
      found.drift.map(
        (note) => `  ${note.stream} of ${note.project_id}: ${note.kind} ${note.name}, e.g. ${clip(note.example, 60)}`,
      ),
    ),
    ...section('Lookback', lookbackText(found.lookback)),
    ...(queue === undefined ? [] : renderQueue(queue, ago)),
    '',
    'Last runs',
    runs,
  ].join('\n')
}

function renderQueue(queue: QueueStatus, ago: (date: Date | null) => string): string[] {
  const { waiting, active, oldest, dead } = queue
  const age = oldest === null ? '' : `, the oldest put in ${ago(oldest)}`
  const lineOf = (worker: QueueStatus['workers'][number]) => {
    const trouble = worker.reason === null ? '' : `, backing off: ${clip(worker.reason, 100)}`
    return `  worker ${worker.pid} on ${worker.host}: ${worker.busy} of ${worker.concurrency} busy, ${worker.done} done, since ${ago(worker.started_at)}${trouble}`
  }
  const workers = queue.workers.filter(({ is_current }) => is_current)
  const others = queue.workers.filter(({ is_current }) => !is_current)
  return [
    ...section('Queue', [
      `  ${count(waiting, 'window')} waiting${age}; ${active} being worked at; ${count(workers.length, 'worker')}`,
      ...workers.map(lineOf),
    ]),
    ...section(
      'Workers with another configuration (they take no windows of this one; restart them with it)',
      others.map(lineOf),
    ),
    ...section(
      'Set aside (failed several times; a backfill of these days tries again)',
      dead.map(
        ({ project, stream, range, reason, since }) =>
          `  ${stream} of ${project}${range === undefined ? '' : `, ${showRange(range)}`}, ${ago(since)}: ${clip(reason, 100)}`,
      ),
    ),
  ]
}

function section(title: string, lines: string[]): string[] {
  return lines.length === 0
    ? []
    : [
        '',
        title,
        ...lines.slice(0, 40),
        ...(lines.length > 40 ? [`  … ${lines.length - 40} more; --json shows all`] : []),
      ]
}

function stateText(row: StreamStatus): string {
  if (row.last_read_at === null) return 'never read'
  const parts = [
    ...(row.days_held > 0 ? [`${count(row.days_held, 'day')} held`] : []),
    ...(row.days_quarantined > 0 ? [`${count(row.days_quarantined, 'day')} with quarantined rows`] : []),
    ...(row.days_stale > 0 ? [`${count(row.days_stale, 'day')} to read again`] : []),
    ...((row.days_missing ?? 0) > 0 ? ['incomplete'] : []),
  ]
  return parts.length === 0 ? 'complete' : parts.join(', ')
}

function lookbackText({ configured_days, needed_days, too_short }: Status['lookback']): string[] {
  if (needed_days === null) return []
  const needed = `  the service still changed days up to ${count(needed_days, 'day')} old; lookback_days is ${configured_days}`
  return [too_short ? `${needed}: too short, set it to ${needed_days}` : `${needed}: enough`]
}
