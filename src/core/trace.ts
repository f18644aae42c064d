import { type Attributes, type Span, SpanStatusCode, trace } from '@opentelemetry/api'
import { codeOf } from './errors.ts'

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
