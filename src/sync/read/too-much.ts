import { DownError, KeyError, ProjectError, RefusedError, TransientError } from '../../core/errors.ts'

/** Errors by which a service says, or shows, that a window is too long for it. */
export function isTooMuch(error: unknown): boolean {
  if (error instanceof KeyError || error instanceof ProjectError || error instanceof DownError) return false
  if (error instanceof RefusedError) return [undefined, 400, 413, 422].includes(error.status)
  return error instanceof TransientError && (error.timedOut || [408, 504].includes(error.status ?? 0))
}
