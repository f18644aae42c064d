import type { Clock } from '../core/day.ts'
import type { Observer, Step } from '../sync/run.ts'

/** A run that is going on in this process. */
export interface LiveRun {
  runId: number
  command: string
  startedAt: Date
  /** Days of streams and lists, planned and done. */
  total: number
  done: number
  rows: number
  requests: number
  stream: string
}

/** Follows the run of this process, for whoever looks. */
export class Live {
  run: LiveRun | undefined

  constructor(
    private readonly clock: Clock,
    private readonly others: Observer[] = [],
  ) {}

  /** Called once it is known which run it is. */
  observer(started?: (runId: number) => void): Observer {
    const tell = (call: (observer: Observer) => void) => {
      for (const observer of this.others) call(observer)
    }
    return {
      started: ({ runId, command }) => {
        const startedAt = this.clock()
        this.run = { runId, command, startedAt, total: 0, done: 0, rows: 0, requests: 0, stream: '' }
        started?.(runId)
      },
      planned: ({ days, lists }) => {
        if (this.run !== undefined) this.run.total = days + lists
      },
      advanced: (step: Step) => {
        tell((observer) => observer.advanced?.(step))
        if (this.run === undefined) return
        this.run.done += Math.max(1, step.days)
        this.run.rows += step.rows
        this.run.stream = step.stream
      },
      asked: (status) => {
        tell((observer) => observer.asked?.(status))
        if (this.run !== undefined) this.run.requests++
      },
    }
  }

  end(): void {
    this.run = undefined
  }
}
