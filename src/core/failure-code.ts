import { codeOf } from './errors.ts'

/** The consequences of a failure for other reads, and for the process that reads. */
interface FailureRule {
  /** How much cannot be read for the same reason. */
  ends: 'window' | 'stream' | 'project' | 'run'
  /**
   * The cause, which decides what a worker of the queue does:
   * - `window`: the window itself. It counts as a failed attempt.
   * - `access`: the key that this process has. Another process may be let in.
   * - `route`: one project or operation does not answer here. Another process may get an answer.
   * - `worker`: this process does not reach the service or the database. The window goes back to the queue.
   * - `unknown`: the worker, unless the service answered any of its requests.
   */
  fault: 'window' | 'access' | 'route' | 'worker' | 'unknown'
  /** The service refused, and would refuse the same request again. */
  isRefusal?: boolean
  /** The code that is reported instead, for those that only matter while a run goes on. */
  reportedAs?: 'transient' | 'error'
}

/** Why a window or list was not loaded, by severity: reports list them in this order. */
const RULES = {
  key: { ends: 'run', fault: 'access', isRefusal: true },
  /** The clock here is wrong; that of another process may be right. */
  clock: { ends: 'run', fault: 'access', isRefusal: true, reportedAs: 'error' },
  project: { ends: 'project', fault: 'access', isRefusal: true },
  refused: { ends: 'window', fault: 'window', isRefusal: true },
  usage: { ends: 'window', fault: 'window', isRefusal: true, reportedAs: 'error' },
  incomplete: { ends: 'window', fault: 'window' },
  'bad-page': { ends: 'window', fault: 'window' },
  'service-down': { ends: 'run', fault: 'worker', reportedAs: 'transient' },
  'project-down': { ends: 'project', fault: 'route', reportedAs: 'transient' },
  'operation-down': { ends: 'stream', fault: 'route', reportedAs: 'transient' },
  'database-away': { ends: 'window', fault: 'worker', reportedAs: 'transient' },
  transient: { ends: 'window', fault: 'unknown' },
  /** Given up in the queue by an older version. */
  dead: { ends: 'window', fault: 'unknown' },
  /** The workers that read it died again and again. */
  'worker-died': { ends: 'window', fault: 'unknown' },
  /** Everything that was not foreseen. */
  error: { ends: 'window', fault: 'unknown' },
  superseded: { ends: 'window', fault: 'window' },
  /** The run that asked for it is over. */
  'run-over': { ends: 'window', fault: 'window', reportedAs: 'error' },
  interrupted: { ends: 'window', fault: 'unknown' },
} as const satisfies Record<string, FailureRule>

export type FailureCode = keyof typeof RULES

export type ReportedCode = {
  [Code in FailureCode]: (typeof RULES)[Code] extends { reportedAs: string } ? never : Code
}[FailureCode]

const CODES = Object.keys(RULES) as FailureCode[]
export const REPORTED_CODES = CODES.filter((code): code is ReportedCode => !('reportedAs' in RULES[code]))

export function failureRule(code: FailureCode): FailureRule {
  return RULES[code]
}

export function failureCodeOf(error: unknown): FailureCode {
  return toFailureCode(codeOf(error))
}

export function toFailureCode(text: unknown): FailureCode {
  return CODES.find((code) => code === text) ?? 'error'
}

export function reportedCode(code: FailureCode): ReportedCode {
  return failureRule(code).reportedAs ?? (code as ReportedCode)
}
