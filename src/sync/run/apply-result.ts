import { countDays, type Day } from '../../core/day.ts'
import { failureRule } from '../../core/failure-code.ts'
import { filtersText } from '../../ledger/control-totals.ts'
import { isControl } from '../../streams/stream.ts'
import { addLoad } from './report.ts'
import type { ItemResult, Loaded } from './run.ts'
import { failItem, logFields, type Task, type WorkItem } from './task.ts'

/** Counts a result, and lets it decide what is done next. A failure ends no more than it must. */
export function applyResult({ task, range }: WorkItem, result: ItemResult, seconds: number): void {
  const { report, remaining, run } = task
  report.seconds += seconds
  // Another process may have found that the service truncates answers.
  if (result.kind === 'loaded' || result.kind === 'split') run.limit.lowerTo(result.pageLimit)
  if (result.kind === 'loaded') finish(task, result, range === undefined ? 0 : countDays(range), seconds)
  if (result.kind === 'failed') failItem({ task, range }, result)
  if (result.kind === 'not-offered') report.not_offered = result.status
  if (remaining.kind === 'list') remaining.state = 'done'
  if (remaining.kind === 'list' || range === undefined) return
  const { feed } = remaining
  switch (result.kind) {
    case 'loaded':
      feed.density.learn(range, result.rowsByDay)
      readControlAgain(task, result.changedControl)
      return feed.markLoaded()
    case 'disagreed':
      return feed.isolate(range, result.days)
    case 'split':
      return feed.split(range)
    case 'not-offered':
      return feed.drop()
    case 'shorten':
      return feed.shorten(range)
    case 'failed':
      return feed.fail(range, failureRule(result.code).isRefusal ?? false)
  }
}

/** The report by date alone has a table, too: days of it that turned out to be wrong are read again. */
function readControlAgain(task: Task, days: readonly Day[]): void {
  const { project, stream, shared } = task
  if (days.length === 0 || stream.by !== 'day') return
  for (const other of shared.tasks.values()) {
    const { stream: compared, remaining } = other
    if (other === task || other.project.id !== project.id || remaining.kind !== 'windows') continue
    const isSame = compared.by === 'day' && filtersText(compared.filters) === filtersText(stream.filters)
    if (isSame && isControl(compared)) remaining.feed.readAgain(days)
  }
}

function finish(task: Task, { summary }: Loaded, days: number, seconds: number): void {
  const { run, project, report } = task
  addLoad(report, summary, days)
  const { inserted, updated, deleted, unchanged, held } = summary.effect
  task.shared.observer.advanced?.({
    projectId: project.id,
    stream: report.stream,
    days,
    rows: summary.rowsRead,
    effect: { inserted, updated, deleted, unchanged },
    quarantined: summary.rejects,
    seconds,
  })
  const fields = {
    ...logFields(task, summary.range),
    rows: summary.rowsRead,
    inserted,
    updated,
    deleted,
    unchanged,
    seconds,
  }
  run.log.info(fields, summary.range === undefined ? 'list loaded' : 'window loaded')
  if (summary.rejects > 0) run.log.warn({ ...fields, quarantined: summary.rejects }, 'rows quarantined')
  if (summary.difference !== undefined)
    run.log.warn({ ...fields, difference: summary.difference }, 'day does not add up to the control totals')
  if (held !== undefined)
    run.log.warn({ ...fields, ...held }, 'held: most rows would have vanished, so these days are left as they were')
}
