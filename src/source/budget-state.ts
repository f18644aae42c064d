import type { RateHeaders } from './rate-headers.ts'
import { LONGEST_WAIT_MS } from './retry-policy.ts'

/*
 * The request budget of one project as a state machine: plain data and functions of the data and the time, without a
 * clock and without I/O. Where it is kept (budget.ts: in this process, or in the warehouse) is no concern of it.
 * All times are milliseconds of the keeper's clock.
 */

export interface BudgetState {
  /** The limit that the service sent last, and when. */
  limit: number | null
  limitAt: number
  /** Answers in a row that said nothing of a limit. */
  answersWithoutLimit: number
  /** The remaining requests of the period that the service reported, less those sent since; null if unknown. */
  remaining: number | null
  /** `remaining` as the last answer of the period said it, and when it came. */
  reported: number
  reportedAt: number
  /** The period ends between these two: services send it in whole seconds, rounded up. */
  resetFrom: number
  resetBy: number
  /** Nobody sends before this time. */
  pausedUntil: number
  /** Refusals without a wait time. Each adds one; the first answer after a pause removes one. */
  refusals: number
  refusedAt: number
  /** True until a request was answered that was sent after the last of these refusals. */
  isRefused: boolean
  /** How many requests may be under way at once after such a refusal; null if any number may. */
  mostInFlight: number | null
  /** The same while no limit is known: one more with each answer. */
  slowStart: number
  /** Requests of the last minute: the second, and how many were sent in it. */
  sent: [second: number, requests: number][]
  /** Requests under way, by owner. An owner that is not heard of does not count: its process may be dead. */
  underWay: Record<string, { requests: number; heardAt: number }>
}

const MINUTE_MS = 60_000
const SILENT_MS = 10_000
// The next answer of a service that sends headers says how much is left.
const NEXT_ANSWER_MS = 25
const FIRST_PAUSE_MS = 400
const LONGEST_PAUSE_MS = 20_000
const MOST_IN_FLIGHT = 16
const SLOW_START = 4
// One or two may come from something before the service.
const FORGOTTEN_AFTER = 3

export function newBudgetState(): BudgetState {
  return {
    limit: null,
    limitAt: 0,
    answersWithoutLimit: 0,
    remaining: null,
    reported: 0,
    reportedAt: 0,
    resetFrom: 0,
    resetBy: 0,
    pausedUntil: 0,
    refusals: 0,
    refusedAt: 0,
    isRefused: false,
    mostInFlight: null,
    slowStart: SLOW_START,
    sent: [],
    underWay: {},
  }
}

/** Zero if one more request was granted to the owner, or how long to wait before asking again. */
export function requestPermit(state: BudgetState, now: number, owner: string, perMinute: number): number {
  forgetSilent(state, now)
  const waitMs = advanceAndWait(state, now, perMinute)
  const own = state.underWay[owner]
  if (waitMs > 0) {
    if (own !== undefined && now - own.heardAt > SILENT_MS / 4) own.heardAt = now
    return waitMs
  }
  if (state.remaining !== null) state.remaining--
  countSent(state, now)
  state.underWay[owner] = { requests: (own?.requests ?? 0) + 1, heardAt: now }
  return 0
}

/** A block takes no more than this share of what is left, so that others get some, too. */
const BLOCK_SHARE = 0.1

/** Requests that were granted together. */
export interface Block {
  requests: number
  grantedAt: number
  /** The end of the period in which they count. */
  resetBy: number
}

/**
 * Grants a request, and while plenty are left a block of up to `most`, so that the owner need not ask for each. Without a request,
 * `waitMs` says when to ask again.
 */
export function requestBlock(
  state: BudgetState,
  now: number,
  owner: string,
  { perMinute, most }: { perMinute: number; most: number },
): { block: Block; waitMs: number } {
  const waitMs = requestPermit(state, now, owner, perMinute)
  const left = state.remaining ?? limitOf(state, now, perMinute) - countSentOf(state)
  const isCareful = state.mostInFlight !== null || isLimitUnknown(state)
  const share = isCareful ? 1 : Math.min(most, Math.floor(left * BLOCK_SHARE))
  let requests = waitMs > 0 ? 0 : 1
  while (requests > 0 && requests < share && requestPermit(state, now, owner, perMinute) === 0) requests++
  return { block: { requests, grantedAt: now, resetBy: state.resetBy }, waitMs }
}

/** Gives back requests that were granted and not sent. */
export function returnRequests(state: BudgetState, now: number, owner: string, block: Block): void {
  for (let index = 0; index < block.requests; index++) endRequest(state, now, owner)
  if (state.remaining !== null && state.resetBy === block.resetBy) state.remaining += block.requests
  const sent = state.sent.find(([second]) => second === Math.floor(block.grantedAt / 1000))
  if (sent !== undefined) sent[1] = Math.max(0, sent[1] - block.requests)
}

interface BudgetAnswer {
  owner: string
  sentAt: number
  receivedAt: number
  headers: RateHeaders
  /** True for a 429, and for any other answer that says how long to wait. */
  asksToWait: boolean
}

export function learnAnswer(state: BudgetState, answer: BudgetAnswer, perMinute: number): void {
  const { owner, sentAt, receivedAt, headers, asksToWait } = answer
  endRequest(state, receivedAt, owner)
  learnLimit(state, headers.limit, receivedAt)
  learnPeriod(state, answer)
  if (!asksToWait) return recover(state, sentAt)
  if (headers.retryAfterMs !== undefined || headers.remaining === undefined) {
    const pauseMs = headers.retryAfterMs ?? headers.resetMs
    // A longer one is not waited for: the requests of the project fail instead.
    if (pauseMs !== undefined && pauseMs <= LONGEST_WAIT_MS) {
      state.pausedUntil = Math.max(state.pausedUntil, receivedAt + pauseMs)
    }
  }
  // Refused, though by all the headers the next request might go at once: only waiting is left.
  if (advanceAndWait(state, receivedAt, perMinute) === 0) backOff(state, sentAt, receivedAt)
}

/** A limit that the service no longer sends is forgotten: counted by the minute, it might be far too low. */
function learnLimit(state: BudgetState, limit: number | undefined, now: number): void {
  if (limit === undefined) {
    state.answersWithoutLimit++
    if (state.limit === null) state.slowStart++
    else if (state.answersWithoutLimit >= FORGOTTEN_AFTER) forgetLimit(state)
    return
  }
  state.answersWithoutLimit = 0
  state.limit = Math.floor(limit)
  state.limitAt = now
}

function forgetLimit(state: BudgetState): void {
  state.limit = null
  state.slowStart = SLOW_START
}

/** A request ended without a response. */
export function endRequest(state: BudgetState, now: number, owner: string): void {
  const own = state.underWay[owner]
  if (own === undefined) return
  own.requests--
  own.heardAt = now
  if (own.requests <= 0) delete state.underWay[owner]
}

function advance(state: BudgetState, now: number): void {
  if (state.remaining !== null && now >= state.resetBy) beginPeriod(state, now)
  if (state.remaining === null && state.limit !== null && now - state.limitAt >= MINUTE_MS) forgetLimit(state)
  while (state.sent.length > 0 && untilOf(state.sent[0]![0]) <= now) state.sent.shift()
}

/** Brings the state up to the time, and says how long the next request has to wait; zero if it may go at once. */
export function advanceAndWait(state: BudgetState, now: number, perMinute: number): number {
  if (state.pausedUntil > now) return state.pausedUntil - now
  advance(state, now)
  const flying = countUnderWay(state)
  if (state.mostInFlight !== null && flying >= Math.floor(state.mostInFlight)) return NEXT_ANSWER_MS
  if (isLimitUnknown(state) && flying >= state.slowStart) return NEXT_ANSWER_MS * 4
  const isTaught = state.resetBy > 0
  if (state.remaining !== null) {
    if (state.remaining > 0) return 0
    // Requests in flight may be counted already.
    return flying > 0 ? Math.min(state.resetBy - now, NEXT_ANSWER_MS * 4) : state.resetBy - now
  }
  if (countSentOf(state) < limitOf(state, now, perMinute)) return 0
  return isTaught && flying > 0 ? NEXT_ANSWER_MS : untilOf(state.sent[0]![0]) - now
}

function isLimitUnknown({ limit, remaining, slowStart }: BudgetState): boolean {
  return limit === null && remaining === null && slowStart < MOST_IN_FLIGHT
}

/** The limit in force: what the service sent counts while it is fresh, then the configured number. */
export function limitOf(state: BudgetState, now: number, perMinute: number): number {
  return state.limit !== null && now - state.limitAt < MINUTE_MS ? state.limit : perMinute
}

/** A new period began, of whatever length the service keeps: only what is under way may be counted in it. */
function beginPeriod(state: BudgetState, now: number): void {
  state.remaining = null
  state.sent = []
  const flying = countUnderWay(state)
  if (flying > 0) state.sent.push([Math.floor(now / 1000), flying])
}

/**
 * Learns what is left of a period, and when it ends. Answers overtake each other, so first find the period
 * of the answer. The same period has the same end. A new period ends later, or has more requests left. An older period is
 * ignored.
 */
function learnPeriod(state: BudgetState, { sentAt, receivedAt, headers }: BudgetAnswer): void {
  const { remaining, resetMs } = headers
  if (remaining === undefined || resetMs === undefined) return
  const left = Math.floor(remaining)
  const by = receivedAt + Math.min(resetMs, LONGEST_WAIT_MS)
  const from = Math.min(by, sentAt + Math.min(resetMs, LONGEST_WAIT_MS) - 1000)
  // Asked after the last answer came, and yet there is more left: a period ended sooner than announced.
  const isRefilled = sentAt >= state.reportedAt && left > state.reported
  const isKnown = state.remaining !== null
  const isSame = isKnown && !isRefilled && from < state.resetBy && by > state.resetFrom
  const isOlder = !isSame && from < state.resetBy && !(isKnown && isRefilled)
  if (isOlder) return
  if (isSame) {
    state.resetFrom = Math.max(state.resetFrom, from)
    state.resetBy = Math.max(state.resetFrom, Math.min(state.resetBy, by))
    if (left > state.reported) {
      // Counted before the last answer, but under way when that came: it was subtracted once too often.
      state.remaining!++
      return
    }
  } else {
    state.resetFrom = from
    state.resetBy = by
  }
  // Requests under way may not have been counted yet when the service wrote this.
  state.remaining = left - countUnderWay(state)
  state.reported = left
  state.reportedAt = receivedAt
}

/** A refusal without headers pauses everyone, twice as long each time, and lets fewer go at once. */
function backOff(state: BudgetState, sentAt: number, now: number): void {
  // Requests that were under way together are refused together: that is one refusal.
  if (sentAt < state.refusedAt) return
  state.refusals++
  state.refusedAt = now
  state.isRefused = true
  state.pausedUntil = now + Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (state.refusals - 1))
  state.mostInFlight = Math.max(1, Math.floor(countUnderWay(state) / 2))
}

/** The pause shrinks by one step only, so that the next one is about as long as the service needs. */
function recover(state: BudgetState, sentAt: number): void {
  if (sentAt < state.refusedAt) return
  if (state.isRefused) state.refusals = Math.max(0, state.refusals - 1)
  state.isRefused = false
  if (sentAt - state.refusedAt > MINUTE_MS) state.refusals = 0
  // One more at once for each round of answers.
  if (state.mostInFlight !== null)
    state.mostInFlight = state.mostInFlight >= MOST_IN_FLIGHT ? null : state.mostInFlight + 1 / state.mostInFlight
}

function countSent(state: BudgetState, now: number): void {
  const second = Math.floor(now / 1000)
  const last = state.sent.at(-1)
  if (last !== undefined && last[0] >= second) last[1]++
  else state.sent.push([second, 1])
}

function countSentOf({ sent }: BudgetState): number {
  return sent.reduce((sum, [, requests]) => sum + requests, 0)
}

/** When what was sent in a second no longer counts. */
function untilOf(second: number): number {
  return (second + 1) * 1000 + MINUTE_MS
}

function countUnderWay(state: BudgetState): number {
  return Object.values(state.underWay).reduce((sum, { requests }) => sum + requests, 0)
}

function forgetSilent(state: BudgetState, now: number): void {
  for (const [owner, { heardAt }] of Object.entries(state.underWay)) {
    if (now - heardAt > SILENT_MS) delete state.underWay[owner]
  }
}
