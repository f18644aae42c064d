import type { Day } from '../core/day.ts'
import type { CallContext } from '../source/client.ts'
import type { AnswerSizes } from '../sync/plan/answer-sizes.ts'
import type { PageLimit } from '../sync/plan/page-limit.ts'
import type { KnownWindow } from '../sync/read/window-request.ts'
import type { Services, SyncedProject } from '../sync/run/run-types.ts'

export interface AuditContext {
  services: Services
  project: SyncedProject
  limit: PageLimit
  answers: AnswerSizes
  call: CallContext
}

export interface AuditedStream {
  project_id: string
  stream: string
  /** The columns whose sums were compared. */
  columns: string[]
  days_compared: number
  differing: Day[]
  /** Why it was left out, if it was. */
  left_out?: string
}

/** The audit's own reads are not windows of the ledger. */
export const UNKNOWN: KnownWindow = {
  task: 'audit',
  rows: 0,
  rowsByDay: new Map(),
  maxDays: Number.MAX_SAFE_INTEGER,
  valuesOf: async () => [],
  sizesOf: async () => new Map(),
}
