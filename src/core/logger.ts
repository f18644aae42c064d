import { type Attributes, type Span, SpanStatusCode, trace } from '@opentelemetry/api'
import { type Logger, pino } from 'pino'
import { codeOf, plainError } from './errors.ts'
import { createRedactor, REDACTED, type Redactor } from './redactor.ts'
import { printable } from './text.ts'

export type Log = Logger

export const SECRET_FIELDS = ['api_key', 'url', 'headers']

/** What one call logged, for people. Secret fields are still in it. */
export interface LogEntry {
  level: string
  message: string
  fields: Record<string, unknown>
}

interface LogOptions {
  level: string
  /** Cleans every finished line of JSON; without one, only passwords in addresses are taken out. */
  redactor?: Redactor
  destination: { write(line: string): void } | { show(entry: LogEntry): void }
}

/** The program's logger. Errors are written by their words alone, and each finished line is cleaned of secrets. */
export function createLog({ level, redactor = createRedactor(), destination }: LogOptions): Log {
  const stream = {
    // Has pino set the fields below before it writes a line.
    [Symbol.for('pino.metadata')]: true,
    lastLevel: 0,
    lastMsg: '',
    lastObj: {},
    write(line: string) {
      if ('write' in destination) return destination.write(printable(redactor.json(line)))
      const { lastLevel, lastMsg: message, lastObj } = stream
      destination.show({ level: pino.levels.labels[lastLevel]!, message, fields: plainFields(lastObj) })
    },
  }
  return pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }), log: plainFields },
      // They are plain by then; the serializer that comes with pino would write them once more.
      serializers: { err: (error: unknown) => error },
      redact: { paths: ['api_key', ...SECRET_FIELDS.map((name) => `*.${name}`)], censor: REDACTED },
    },
    stream,
  )
}

/** The errors of libraries carry requests with their headers, and clients with their settings. */
function plainFields(fields: Record<string, unknown>): Record<string, unknown> {
  const plain = (value: unknown) => (value instanceof Error ? plainError(value) : value)
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, plain(value)]))
}

/*
 * Spans for those who bring an SDK of OpenTelemetry. Without one they are empty objects: nothing is kept or sent. A span
 * carries no text of an error, since that may hold what the service said; its code says what kind it was.
 */

const tracer = trace.getTracer('visibility-sync')

export function inSpan<T>(name: string, attributes: Attributes, work: (span: Span) => Promise<T>): Promise<T> {
  return tracer.startActiveSpan(name, { attributes }, async (span) => {
    try {
      return await work(span)
    } catch (error) {
      failSpan(span, codeOf(error) ?? 'error')
      throw error
    } finally {
      span.end()
    }
  })
}

export function failSpan(span: Span, kind: string): void {
  span.setAttribute('error.type', kind)
  span.setStatus({ code: SpanStatusCode.ERROR })
}
