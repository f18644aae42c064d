import type { Clock } from '../core/day.ts'
import type { Observer } from '../sync/run/task.ts'

export interface LiveRun {
  runId: number
  command: string
  startedAt: Date
  total: number
  done: number
  rows: number
  requests: number
  stream: string
}

/** Follows the runs of this process, for pages and metrics. With a shared queue a backfill may go on beside a sync. */
export class Live {
  readonly runs: LiveRun[] = []

  constructor(
    private readonly clock: Clock,
    private readonly other: Observer = {},
  ) {}

  /** `started` is called once it is known which run it is. */
  watch(started?: (runId: number) => void): { observer: Observer; end: () => void } {
    let run: LiveRun | undefined
    const end = () => {
      if (run !== undefined && this.runs.includes(run)) this.runs.splice(this.runs.indexOf(run), 1)
    }
    const observer: Observer = {
      started: ({ runId, command }) => {
        end()
        run = { runId, command, startedAt: this.clock(), total: 0, done: 0, rows: 0, requests: 0, stream: '' }
        this.runs.push(run)
        started?.(runId)
      },
      planned: ({ days, lists }) => {
        if (run !== undefined) run.total = days + lists
      },
      advanced: (step) => {
        this.other.advanced?.(step)
        if (run === undefined) return
        run.done += Math.max(1, step.days)
        run.rows += step.rows
        run.stream = step.stream
      },
      onRequest: (status) => {
        this.other.onRequest?.(status)
        if (run !== undefined) run.requests++
      },
    }
    return { observer, end }
  }
}
