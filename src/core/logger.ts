import { type DestinationStream, type Logger, pino } from 'pino'
import { bad, toOneLine, warning } from './paint.ts'
import { printable } from './printable.ts'
import { redact } from './text.ts'

export type Log = Logger

export interface LogOptions {
  level: string
  /** Values that must never be written, wherever they turn up. */
  secrets: readonly string[]
  /** Where lines go. Human-readable lines instead of JSON are the business of this stream. */
  destination: DestinationStream
}

/** The program's logger. A last line of defence redacts every secret from the finished line. */
export function createLog({ level, secrets, destination }: LogOptions): Log {
  return pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: ['*.api_key', '*.url', '*.headers', 'api_key'], censor: '[redacted]' },
    },
    { write: (line: string) => destination.write(printable(redact(line, secrets))) },
  )
}

/** Lines for people: time, message, then the fields that vary and say something. `shortOf` shortens ids of projects. */
export function prettyLine(line: string, shortOf: (id: string) => string = (id) => id): string {
  const { time, level, msg, project, ...others } = JSON.parse(line) as Record<string, unknown>
  const fields = typeof project === 'string' ? { project: shortOf(project), ...others } : others
  const mark = level === 'error' || level === 'fatal' ? bad('✗ ') : level === 'warn' ? warning('! ') : ''
  const rest = Object.entries(fields)
    .filter(([key, value]) => key !== 'run' && value !== 0)
    .map(([key, value]) => `${key}=${shown(value)}`)
    .join(' ')
  return `${String(time).slice(11, 19)} ${mark}${toOneLine(String(msg))}${rest === '' ? '' : `  ${rest}`}\n`
}

function shown(value: unknown): string {
  if (typeof value === 'number') return Number.isInteger(value) ? String(value) : value.toFixed(1)
  return toOneLine(typeof value === 'string' ? value : JSON.stringify(value))
}
