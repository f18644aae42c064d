import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Monotonic } from '../core/waiting.ts'
import type { OpenAlert } from '../ledger/alert-policy.ts'
import type { Metrics } from '../observe/metrics.ts'
import type { Live } from '../schedule/live.ts'
import type { View } from './view.ts'

/** A run that failed before the ledger knew of it. */
export interface FailedStart {
  command: string
  at: Date
  reason: string
}

/** Lets those who may ask pass; throws for others. */
export type Guard = (request: FastifyRequest, reply: FastifyReply) => Promise<void>

export interface BackfillRequest {
  from: string
  to: string
  streams: string[]
  projects: string[]
  missing: boolean
  /** Lets deletions through that were held for review. */
  acceptDeletes?: boolean
}

export interface ServerOptions {
  view: View
  live: Live
  metrics: Metrics
  monotonic: Monotonic
  version: string
  /** For people: where the rows go, without a password. */
  warehouse: string
  maxStalenessMs: number
  /** The names that requests may carry besides localhost and addresses. */
  hosts: readonly string[]
  next: () => { sync: Date | undefined; audit: Date | undefined }
  alerts: () => OpenAlert[]
  /** A run that failed before the ledger knew of it, until one of the same kind begins. */
  failedToStart: () => FailedStart | undefined
  /** Opens the routes that start work; without one they do not exist. */
  token: string | undefined
  /** Routes of another folder for those who have the token. */
  routes?: ((app: FastifyInstance, guard: Guard) => void) | undefined
  /** Starts a sync, or returns why not, or after what. */
  sync: () => { begun: true } | { after: string } | { busy: string }
  /** Starts a backfill and returns its run, or why it cannot start now. */
  backfill: (request: BackfillRequest) => Promise<{ runId: number } | { busy: string }>
}
