import type { Config } from '../../core/config/load.ts'
import { addDays, type Clock, type Day, dayOf, OPEN_DAYS, type Range } from '../../core/day.ts'
import type { ProjectError } from '../../core/errors.ts'
import type { FailureCode } from '../../core/failure-code.ts'
import type { Log } from '../../core/logger.ts'
import type { Caller, Client } from '../../source/client.ts'
import type { StreamSet } from '../../streams/registry.ts'
import type { Stream } from '../../streams/stream.ts'
import type { Warehouse } from '../../warehouse/connect.ts'
import type { EntityMemory } from '../../warehouse/load/entities.ts'
import type { ListEffect } from '../../warehouse/load/replace-list.ts'
import { withRetries } from '../../warehouse/retry.ts'
import type { Transaction } from '../../warehouse/transaction.ts'
import { PageLimit } from '../plan/density.ts'

export interface Services {
  config: Config
  streams: StreamSet
  client: Client
  warehouse: Warehouse
  log: Log
  clock: Clock
  version: string
  /** Where the rows come from, for people: an address or "the reference service". */
  source: string
  /** The same for the warehouse, which is filled from one source only: an address, or "reference". */
  sourceAddress: string
}

export interface SyncedProject {
  /** The id in the tables. */
  id: string
  caller: Caller
  /** True if the key is the project's own: if it is wrong, other projects can still be read. */
  ownKey: boolean
}

export interface RunRequest {
  command: string
  projects: SyncedProject[]
  streams: Stream[]
  /** A range to read whatever is known of it; without one, the days that are due are read. */
  range?: Range | undefined
  /** Of the range, only the days that were never read, or not soundly. */
  missingOnly?: boolean
  /** Only these days of each project and stream. */
  only?: (projectId: string, stream: string) => Day[]
  acceptDeletes?: boolean
  /** True if a person waits for the result: it repeats notes that an earlier run gave. */
  isWatched?: boolean
  signal?: AbortSignal | undefined
}

/** The memory that the windows of a run share, in one process. */
export interface RunMemory {
  limit: PageLimit
  entities: EntityMemory
  promptsOf: Map<string, Promise<ReadonlySet<string | null>>>
  /** Whether the service refuses each project as a whole: asked at the first refusal, unless something of it was read before. */
  refusalOf: Map<string, Promise<ProjectError | undefined>>
}

/** One run: its services, and what its windows share. A worker makes one for each window that it takes. */
export interface Run extends Services, RunMemory {
  runId: number
  command: string
  signal: AbortSignal
  /** Does work of the database again while it is away, unless the run is stopped. */
  retry<T>(work: () => Promise<T>): Promise<T>
  acceptDeletes: boolean
  lookbackFrom: Day
  /** Days from this one on may still be written by the service. */
  provisionalFrom: Day
  /** Called last in the transaction that loads: what it writes is committed with the rows or not at all. */
  beforeCommit?: ((tx: Transaction, loaded: Loaded) => Promise<void>) | undefined
}

export interface LoadSummary {
  range: Range | undefined
  rowsRead: number
  rejects: number
  /** How a day differs from the control totals, if it is final and does not add up to them. */
  difference?: string | undefined
  effect: Pick<ListEffect, 'inserted' | 'updated' | 'deleted' | 'unchanged' | 'held'>
}

export interface Loaded {
  kind: 'loaded'
  summary: LoadSummary
  rowsByDay: [Day, number][]
  /** The page limit in force in the end: lower if the service refused a higher one, or truncates answers. */
  pageLimit: number
}

/** The result of one window or list. It is plain data, because another process may send it. */
export type ItemResult =
  | Loaded
  /** More rows than a page: its halves are to be read. */
  | { kind: 'split'; pageLimit: number }
  /** These days do not add up to the control totals: each is to be read alone. Nothing was loaded. */
  | { kind: 'disagreed'; days: Day[] }
  /** The service does not offer the stream, which is an extra. */
  | { kind: 'not-offered'; status: number }
  /** More days than the service can serve at once. */
  | { kind: 'shorten' }
  | FailedItem

export interface FailedItem {
  kind: 'failed'
  reason: string
  code: FailureCode
}

/** The parts of a run besides its services, in any process that performs a part of it. */
export function makeRun(
  services: Services,
  own: Pick<Run, 'runId' | 'command' | 'acceptDeletes' | 'lookbackFrom' | keyof RunMemory>,
  signal: AbortSignal,
): Run {
  const log = services.log.child({ run: own.runId })
  const provisionalFrom = addDays(dayOf(services.clock()), 1 - OPEN_DAYS)
  const retry = <T>(work: () => Promise<T>) => withRetries(services.warehouse, signal, work)
  return { ...services, ...own, log, signal, retry, provisionalFrom }
}

export function newRunMemory(pageLimit: number): RunMemory {
  return { limit: new PageLimit(pageLimit), entities: new Map(), promptsOf: new Map(), refusalOf: new Map() }
}
