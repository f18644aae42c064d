import { TransientError } from '../core/errors.ts'
import { clip } from '../core/text.ts'

/* The members of an answer beside its items. */

const DOCUMENTED = new Set(['data', 'totalCount', 'total_count'])
/** Fields by which services report a failure in an answer with HTTP 200. */
const FAILURES: Record<string, (value: unknown) => boolean> = {
  error: isTruthy,
  errors: isTruthy,
  success: (value) => value === false,
  ok: (value) => value === false,
  partial: (value) => value === true,
  truncated: (value) => value === true,
  status: (value) => typeof value === 'string' && /^(error|fail(ed|ure)?)$/i.test(value),
}
const LONGEST_MESSAGE = 300

/** True for a field whose value is needed to understand the answer. */
export function isEnvelopeField(name: string): boolean {
  return DOCUMENTED.has(name) || Object.hasOwn(FAILURES, name) || name === 'message'
}

/** Refuses an answer that reports a failure or an incomplete result. The request is sent again like any that failed. */
export function refuseFailure(body: unknown, operation: string): void {
  if (typeof body !== 'object' || body === null) return
  const fields = body as Record<string, unknown>
  const failed = Object.keys(FAILURES).filter((name) => FAILURES[name]!(fields[name]))
  if (failed.length === 0) return
  const message = [fields.message, fields.error, fields.errors].find(isTruthy)
  const words = message === undefined ? '' : `: ${clip(textOf(message), LONGEST_MESSAGE)}`
  throw new TransientError(
    `${operation}: the answer says ${failed.map((name) => describeMember(name, fields[name])).join(', ')}${words}`,
  )
}

function describeMember(name: string, value: unknown): string {
  return typeof value === 'boolean' ? `${name}: ${value}` : name
}

/** An empty list of errors reports none. */
function isTruthy(value: unknown): boolean {
  return typeof value === 'object' && value !== null ? Object.keys(value).length > 0 : Boolean(value)
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}
