import { countDays } from '../../core/day.ts'
import { failureRule } from '../../core/failure-code.ts'
import { learnPages } from './recheck-pages.ts'
import { addLoad } from './report.ts'
import type { ItemResult, Loaded } from './run-types.ts'
import { failItem, logFields, type Task, type WorkItem } from './task.ts'

/** Counts a result, and lets it decide what is done next. A failure ends no more than it must. */
export function applyResult({ task, range }: WorkItem, result: ItemResult, seconds: number): void {
  const { report, remaining, stream } = task
  report.seconds += seconds
  const hasPages = result.kind === 'loaded' || result.kind === 'split'
  if (hasPages && range !== undefined && stream.by === 'day') learnPages({ task, stream, range }, result)
  if (result.kind === 'loaded') finish(task, result, range === undefined ? 0 : countDays(range), seconds)
  if (result.kind === 'failed') failItem({ task, range }, result)
  if (result.kind === 'not-offered') report.not_offered = result.status
  if (remaining.kind === 'list' || range === undefined) return
  const { feed } = remaining
  switch (result.kind) {
    case 'loaded':
      feed.density.learn(range, result.rowsByDay)
      return feed.markLoaded()
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
  if (held !== undefined)
    run.log.warn({ ...fields, ...held }, 'held: most rows would have vanished, so these days are left as they were')
}
