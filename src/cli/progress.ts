import { count, duration, grouped } from '../core/text.ts'
import type { Observer, Step } from '../sync/run/task.ts'

const WIDTH = 24
const EVERY_MS = 100
const LINE_EVERY_MS = 5000
const SILENT_MS = 15_000

export interface Progress {
  observer: Observer
  above(line: string): void
  /** A step that is worth a line if there is no bar. */
  say(text: string): void
  stop(): void
}

export function terminalProgress(stream: NodeJS.WriteStream): Progress {
  const state = { total: 0, done: 0, rows: 0, startedAt: Date.now() }
  let current = ''
  let shown = false
  const draw = () => {
    if (state.total === 0) return
    const text = barText(state, current)
    stream.write(`\r\u001b[2K${text.slice(0, Math.max(20, (stream.columns || 100) - 1))}`)
    shown = true
  }
  const clear = () => {
    if (shown) stream.write('\r\u001b[2K')
    shown = false
  }
  const timer = setInterval(draw, EVERY_MS)
  timer.unref()
  return {
    observer: {
      planned({ days, lists }) {
        state.total = days + lists
      },
      advanced(step) {
        addStep(state, step)
        current = step.stream
      },
    },
    above(line) {
      clear()
      stream.write(line)
      draw()
    },
    say() {},
    stop() {
      clearInterval(timer)
      clear()
    },
  }
}

/** A line for each step and one every few seconds, for people who see no terminal: in a file, or in the log of a job. */
export function lineProgress(write: (line: string) => void): Progress {
  const state = { total: 0, done: 0, rows: 0, startedAt: Date.now() }
  let saidAt = state.startedAt
  let requests = 0
  let plan = ''
  // Windows that are split, and waits for the request budget, load nothing for minutes.
  const timer = setInterval(() => {
    if (Date.now() - saidAt >= SILENT_MS) say(`${count(requests, 'request')} so far, ${count(state.rows, 'row')}`)
  }, SILENT_MS)
  timer.unref()
  const say = (text: string) => write(`${new Date().toISOString().slice(11, 19)} ${text}\n`)
  return {
    observer: {
      started: ({ runId, command }) => say(`run ${runId} started: ${command}`),
      planned({ days, lists }) {
        state.total = days + lists
        saidAt = Date.now()
        const parts = [...(days > 0 ? [count(days, 'stream-day')] : []), ...(lists > 0 ? [count(lists, 'list')] : [])]
        const text = state.total === 0 ? 'nothing is due' : `to read: ${parts.join(' and ')}`
        // The plan of a project is made again once its control totals are known.
        if (text !== plan) say(text)
        plan = text
      },
      advanced(step) {
        addStep(state, step)
        if (Date.now() - saidAt < LINE_EVERY_MS || state.done >= state.total) return
        saidAt = Date.now()
        say(progressText(state).join(', '))
      },
      onRequest() {
        requests++
      },
    },
    above: write,
    say,
    stop() {
      clearInterval(timer)
    },
  }
}

/** "██████░░░░  52 %  1,234 rows  8,000/s  3 s left  chats" */
function barText(state: ProgressState, current: string): string {
  const filled = Math.round(shareOf(state) * WIDTH)
  const bar = `${'█'.repeat(filled)}${'░'.repeat(WIDTH - filled)}`
  return [bar, ...progressText(state), current].join('  ')
}

interface ProgressState {
  total: number
  done: number
  rows: number
  startedAt: number
}

function addStep(state: ProgressState, { days, rows }: Step): void {
  state.done += Math.max(1, days)
  state.rows += rows
}

/** Below 1 until the run has ended: after the last window it checks answers and prepares views. */
function shareOf({ done, total }: ProgressState): number {
  return Math.min(0.99, done / Math.max(1, total))
}

function progressText(state: ProgressState): string[] {
  const share = shareOf(state)
  const seconds = (Date.now() - state.startedAt) / 1000
  const left = share > 0 ? Math.max(0, seconds / share - seconds) : Number.NaN
  const rate = seconds > 0 ? Math.round(state.rows / seconds) : 0
  return [
    `${Math.floor(share * 100)} %`,
    count(state.rows, 'row'),
    `${grouped(rate)}/s`,
    Number.isNaN(left) ? 'starting' : state.done >= state.total ? 'finishing' : `${duration(Math.ceil(left))} left`,
  ]
}
