import { countDays } from '../../core/day.ts'
import { failureRule } from '../../core/failure-code.ts'
import type { ItemResult, Loaded } from './context.ts'
import { learnPages } from './recheck-pages.ts'
import { addOutcome } from './report.ts'
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
      return feed.complete()
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

function finish(task: Task, { outcome }: Loaded, days: number, seconds: number): void {
  const { run, project, report } = task
  addOutcome(report, outcome, days)
  const { inserted, updated, deleted, unchanged, held } = outcome.effect
  task.board.observer.advanced?.({
    projectId: project.id,
    stream: report.stream,
    days,
    rows: outcome.rowsRead,
    effect: { inserted, updated, deleted, unchanged },
    quarantined: outcome.rejects,
    seconds,
  })
  const fields = {
    ...logFields(task, outcome.range),
    rows: outcome.rowsRead,
    inserted,
    updated,
    deleted,
    unchanged,
    seconds,
  }
  run.log.info(fields, outcome.range === undefined ? 'list loaded' : 'window loaded')
  if (outcome.rejects > 0) run.log.warn({ ...fields, quarantined: outcome.rejects }, 'rows quarantined')
  if (held !== undefined)
    run.log.warn({ ...fields, ...held }, 'held: most rows would have vanished, so these days are left as they were')
}
