import type { Config } from '../core/config/load.ts'
import type { Clock, Day, Range } from '../core/day.ts'
import type { Log } from '../core/logger.ts'
import type { Caller, Client } from '../source/client.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { MentionMemory } from '../warehouse/mentions.ts'
import type { ListEffect } from '../warehouse/replace-list.ts'
import type { PageLimit } from './page-limit.ts'

/** What every run needs: its collaborators. */
export interface Services {
  config: Config
  client: Client
  warehouse: Warehouse
  log: Log
  clock: Clock
  version: string
  /** Where the rows come from, for people: an address or "the reference service". */
  source: string
}

/** A project as it is synced: what the service calls it, and what the tables call it. */
export interface SyncedProject {
  /** The id in the tables. */
  id: string
  caller: Caller
  /** True where the key is the project's own: if it is wrong, other projects can still be read. */
  ownKey: boolean
}

/** One run: its services, and what its windows share. */
export interface Run extends Services {
  runId: number
  signal: AbortSignal
  limit: PageLimit
  mentions: MentionMemory
  acceptDeletes: boolean
  /** All configured streams that are read by days, and the first of the days that every run reads again. */
  dayStreams: string[]
  lookbackFrom: Day
  /** From this day on, names are taken for current. */
  recentFrom: Day
}

/** What one window or list did. */
export interface Outcome {
  range: Range | undefined
  rowsRead: number
  rejects: number
  effect: ListEffect
}
