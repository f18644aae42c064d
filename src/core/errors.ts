import { readFileSync } from 'node:fs'
import { SourceMap, type SourceMapPayload } from 'node:module'
import { fileURLToPath } from 'node:url'
import type { Redactor } from './redactor.ts'

/*
 * Every error that reaches a person carries a verdict (its class), a place (its message) and a cause. The message
 * never holds a key, a password or a connection string.
 */

abstract class VisibilityError extends Error {
  abstract readonly code: string
  override get name(): string {
    return this.constructor.name
  }
}

/** Bad usage or configuration: nothing was read or written. Exit code 2. */
export class UsageError extends VisibilityError {
  readonly code = 'usage'
}

/** Another run holds what this one needs. Exit code 3. */
export class LockedError extends VisibilityError {
  readonly code = 'locked'
}

/** May pass when tried again: a reset, a 503, a mangled body, a lost database connection. */
export class TransientError extends VisibilityError {
  readonly code: string = 'transient'
  /** How long the service asked us to wait, if it said so. */
  readonly retryAfterMs: number | undefined
  readonly status: number | undefined
  /** True if the request cannot have reached the service. */
  readonly neverSent: boolean
  readonly timedOut: boolean

  constructor(message: string, options: TransientOptions = {}) {
    super(message, { cause: options.cause })
    this.retryAfterMs = options.retryAfterMs
    this.status = options.status
    this.neverSent = options.neverSent ?? false
    this.timedOut = options.timedOut ?? false
  }
}

interface TransientOptions {
  cause?: unknown
  retryAfterMs?: number | undefined
  status?: number
  neverSent?: boolean
  timedOut?: boolean
}

/**
 * The service, a project or an operation does not answer, or asks for a wait that is longer than a run allows. The request
 * was not sent. Further requests fail with this error until an answer arrives.
 */
export class DownError extends TransientError {
  override readonly code: 'service-down' | 'project-down' | 'operation-down'

  constructor(message: string, scope: 'service' | 'project' | 'operation') {
    super(message, { neverSent: true })
    this.code = `${scope}-down`
  }
}

/** Will not pass however often it is tried: the service refused what was asked. */
export class RefusedError extends VisibilityError {
  readonly code: string = 'refused'
  readonly status: number | undefined

  constructor(message: string, options: { cause?: unknown; status?: number } = {}) {
    super(message, { cause: options.cause })
    this.status = options.status
  }
}

/** The key is missing or wrong: no other request can succeed, so the run stops at once. */
export class KeyError extends RefusedError {
  override readonly code = 'key'
}

/** The clock of this machine differs from the service's: which days are due is not known, so the run stops at once. */
export class ClockError extends RefusedError {
  override readonly code = 'clock'
}

/** The key may not read this project: its other requests cannot succeed, those of other projects can. */
export class ProjectError extends RefusedError {
  override readonly code = 'project'
}

/** An answer that cannot be proven complete. Nothing of it is loaded and nothing is deleted. */
export class IncompleteError extends VisibilityError {
  readonly code = 'incomplete'
}

/** A page with too many bad rows, or rows that contradict each other: a sign that the answer as a whole is wrong. */
export class BadPageError extends VisibilityError {
  readonly code = 'bad-page'
}

/** The run was asked to stop. What was in progress is rolled back. */
export class InterruptedError extends VisibilityError {
  readonly code = 'interrupted'
}

/** More readers at once than the few connections for readers can serve soon. */
export class OverloadedError extends VisibilityError {
  readonly code = 'overloaded'
}

/** A reading took longer than it may. */
export class TimeLimitError extends VisibilityError {
  readonly code = 'time-limit'
}

/** A newer read of the same days was loaded meanwhile: this answer was not written. */
export class SupersededError extends VisibilityError {
  readonly code = 'superseded'
}

export function messageOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') return error.errors.map(messageOf).join('; ')
  return error instanceof Error ? error.message : String(error)
}

export function codeOf(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null)?.code
  return typeof code === 'string' ? code : undefined
}

const DEEPEST_CAUSE = 5

/** Cleans the words of an error, and of what caused it, for callers outside the package. Gives the same error. */
export function cleanError<T>(error: T, redactor: Redactor, depth = 0): T {
  if (!(error instanceof Error) || depth > DEEPEST_CAUSE) return error
  for (const name of ['message', 'stack'] as const) {
    const text = error[name]
    const clean = text === undefined ? text : redactor.text(text)
    // Errors of the platform have a message that cannot be set.
    if (clean !== text) Object.defineProperty(error, name, { value: clean, configurable: true, writable: true })
  }
  cleanError(error.cause, redactor, depth + 1)
  if (error instanceof AggregateError) for (const one of error.errors) cleanError(one, redactor, depth + 1)
  return error
}

interface PlainError {
  type: string
  message: string
  code?: string
  stack?: string
  cause?: PlainError
}

export function plainError(error: unknown, depth = 0): PlainError {
  if (!(error instanceof Error)) return { type: typeof error, message: String(error) }
  const { name, stack, cause } = error
  const code = codeOf(error)
  return {
    type: name,
    message: messageOf(error),
    ...(code === undefined ? {} : { code }),
    ...(stack === undefined ? {} : { stack: realStack(stack) }),
    ...(cause === undefined || depth >= DEEPEST_CAUSE ? {} : { cause: plainError(cause, depth + 1) }),
  }
}

// No part of a place may hold what another one begins with, so that a hostile message takes linear time.
const FRAME = /(?:file:\/\/|(?<=[( ])\/)[^\s(:]+\.c?js(?=:\d+:\d+)/

/**
 * A stack whose places are those of the sources, not of the bundle. Node could do so by itself, but would then read the
 * maps of all files at each start.
 */
export function realStack(stack: string): string {
  const maps = new Map<string, SourceMap | undefined>()
  const realLine = (line: string) => {
    const file = FRAME.exec(line)?.[0]
    if (file === undefined) return line
    if (!maps.has(file)) maps.set(file, mapOf(file))
    const [found, row, column] = /:(\d+):(\d+)/.exec(line.slice(line.indexOf(file) + file.length))!
    const entry = maps.get(file)?.findEntry(Number(row) - 1, Number(column) - 1)
    if (entry === undefined || !('originalSource' in entry)) return line
    const source = entry.originalSource.replace(/^(\.\.\/)+/, '')
    return line.replace(file + found, `${source}:${entry.originalLine + 1}:${entry.originalColumn + 1}`)
  }
  return stack.split('\n').map(realLine).join('\n')
}

function mapOf(file: string): SourceMap | undefined {
  try {
    const path = file.startsWith('file:') ? fileURLToPath(file) : file
    return new SourceMap(JSON.parse(readFileSync(`${path}.map`, 'utf8')) as SourceMapPayload)
  } catch {
    return undefined
  }
}
