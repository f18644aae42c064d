import { type DestinationStream, type Logger, pino } from 'pino'
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
    { write: (line: string) => destination.write(redact(line, secrets)) },
  )
}

/** Lines for a person at a terminal: time, message, then the fields that vary. */
export function prettyLine(line: string): string {
  const { time, level, msg, ...fields } = JSON.parse(line) as Record<string, unknown>
  const mark = level === 'error' || level === 'fatal' ? '✗ ' : level === 'warn' ? '! ' : ''
  const rest = Object.entries(fields)
    .map(([key, value]) => `${key}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(' ')
  return `${String(time).slice(11, 19)} ${mark}${String(msg)}${rest === '' ? '' : `  ${rest}`}\n`
}
