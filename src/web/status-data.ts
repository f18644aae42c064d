import type { Day, Range } from '../core/day.ts'
import type { OpenAlert } from '../ledger/alert-policy.ts'
import type { CalendarDay, YearDay } from '../ledger/calendar.ts'
import type { DayDetail } from '../ledger/day-detail.ts'
import type { Status } from '../ledger/status.ts'
import type { QueueStatus } from '../queue/status.ts'
import type { LiveRun } from '../schedule/live.ts'
import type { BudgetView } from '../source/budget.ts'
import type { DatabaseState } from '../warehouse/connect.ts'

/** Who looks: undefined if nobody can sign in. `csrf` proves that a form comes from a page of this session. */
export type Viewer = { csrf: string | undefined } | undefined

/** A run that failed before the ledger knew of it. */
export interface FailedStart {
  command: string
  at: Date
  reason: string
}

/** What an action came to, for the page that is shown after it. */
export interface Notice {
  kind: 'good' | 'bad'
  text: string
}

/** What every page about the sync shows. */
export interface PageData {
  version: string
  viewer: Viewer
  notice: Notice | undefined
  /** By the database, which dates what is in the ledger. */
  ledgerNow: Date
}

/** What a list is filtered by, and the choices. */
export interface ListFilters {
  project: string | undefined
  stream: string | undefined
  projects: { id: string; name: string }[]
  streams: readonly string[]
}

/** Everything that the status page is made from. */
export interface StatusData extends PageData {
  /** The address of this page. */
  self: string
  /** By this process. */
  now: Date
  database: DatabaseState
  /** How long ago the ledger was read; undefined if it never was. */
  ledgerAgeMs: number | undefined
  source: string
  warehouse: string
  status: Status | undefined
  live: readonly LiveRun[]
  next: { sync: Date | undefined; audit: Date | undefined }
  failedToStart: FailedStart | undefined
  budgets: Map<string, BudgetView>
  queue: QueueStatus | undefined
  alerts: OpenAlert[]
  maxStalenessMs: number
  projects: { id: string; name: string }[]
  /** What projects are searched for. */
  search: string | undefined
  calendar: CalendarData
}

/** The days of one project. They are undefined if they could not be read. */
export interface CalendarData {
  project: string
  streams: string[]
  range: Range
  /** The first day of interest: those before it are not missing. */
  first: Day
  /** Where the weeks after these end. */
  later: Day | undefined
  days: CalendarDay[] | undefined
  yearRange: Range
  year: YearDay[] | undefined
  /** The day whose details are shown. */
  day: Day | undefined
  detail: DayDetail | undefined
}
