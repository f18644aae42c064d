import { type Attributes, type Span, SpanStatusCode, trace } from '@opentelemetry/api'
import { type DestinationStream, type Logger, pino } from 'pino'
import { codeOf, plainError } from './errors.ts'
import { createRedactor, type Redactor } from './redactor.ts'
import { printable } from './text.ts'

export type Log = Logger

interface LogOptions {
  level: string
  /** Cleans every finished line; without one, only passwords in addresses are taken out. */
  redactor?: Redactor
  /** Where lines go. Human-readable lines instead of JSON are the business of this stream. */
  destination: DestinationStream
}

/** The program's logger. Errors are written by their words alone, and each finished line is cleaned of secrets. */
export function createLog({ level, redactor = createRedactor(), destination }: LogOptions): Log {
  return pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }), log: withPlainErrors },
      // They are plain by then; the serializer that comes with pino would write them once more.
      serializers: { err: (error: unknown) => error },
      redact: { paths: ['*.api_key', '*.url', '*.headers', 'api_key'], censor: '[redacted]' },
    },
    { write: (line: string) => destination.write(printable(redactor.json(line))) },
  )
}

/** The errors of libraries carry requests with their headers, and clients with their settings. */
function withPlainErrors(fields: Record<string, unknown>): Record<string, unknown> {
  if (!Object.values(fields).some((value) => value instanceof Error)) return fields
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [name, value instanceof Error ? plainError(value) : value]),
  )
}

/*
 * Spans for those who bring an SDK of OpenTelemetry. Without one they are empty objects: nothing is kept or sent. A span
 * carries no text of an error, since that may hold what the service said; its code says what kind it was.
 */

const tracer = trace.getTracer('visibility-sync')

/** Runs work in a span, which ends with it. What throws is marked as an error. */
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
