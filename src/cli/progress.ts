import type { Observer } from '../sync/run.ts'

const WIDTH = 24
const EVERY_MS = 100

export interface Progress {
  observer: Observer
  /** Writes a line above the bar. */
  above(line: string): void
  stop(): void
}

/** A bar with rate and time left, redrawn in place on a terminal. */
export function terminalProgress(stream: NodeJS.WriteStream, now: () => number = Date.now): Progress {
  const startedAt = now()
  let total = 0
  let done = 0
  let rows = 0
  let current = ''
  let shown = false
  const draw = () => {
    if (total === 0) return
    const text = barText({ total, done, rows, current, elapsedMs: now() - startedAt })
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
      planned(totals) {
        total = totals.days + totals.lists
      },
      advanced(step) {
        done += Math.max(1, step.days)
        rows += step.rows
        current = step.stream
      },
    },
    above(line) {
      clear()
      stream.write(line)
      draw()
    },
    stop() {
      clearInterval(timer)
      clear()
    },
  }
}

/** "██████░░░░  52 %  1,234 rows  8,000/s  3 s left  chats" */
export function barText(state: {
  total: number
  done: number
  rows: number
  current: string
  elapsedMs: number
}): string {
  const share = Math.min(1, state.done / Math.max(1, state.total))
  const filled = Math.round(share * WIDTH)
  const seconds = state.elapsedMs / 1000
  const left = share > 0 ? Math.max(0, seconds / share - seconds) : Number.NaN
  const rate = seconds > 0 ? Math.round(state.rows / seconds) : 0
  const parts = [
    `${'█'.repeat(filled)}${'░'.repeat(WIDTH - filled)}`,
    `${Math.floor(share * 100)} %`,
    `${state.rows.toLocaleString('en-US')} rows`,
    `${rate.toLocaleString('en-US')}/s`,
    Number.isNaN(left) ? 'starting' : `${duration(left)} left`,
    state.current,
  ]
  return parts.join('  ')
}

export function duration(seconds: number): string {
  if (seconds < 90) return `${Math.ceil(seconds)} s`
  if (seconds < 5400) return `${Math.ceil(seconds / 60)} min`
  return `${(seconds / 3600).toFixed(1)} h`
}
