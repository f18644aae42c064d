/** The request budget in the headers of a response. Absent parts are undefined. */
export interface RateHeaders {
  limit?: number | undefined
  remaining?: number | undefined
  resetMs?: number | undefined
  retryAfterMs?: number | undefined
}

type Headers = Record<string, string | string[] | undefined>

/**
 * Reads `X-RateLimit-*`, `RateLimit-*`, the one-line `RateLimit: …;r=…;t=…` and `Retry-After`, whichever are there.
 * Moments are times of the service's clock, so they are compared with its `Date` rather than with our own.
 */
export function readRateHeaders(headers: Headers, ourNowMs: number): RateHeaders {
  const nowMs = httpDate(one(headers, 'date')) ?? ourNowMs
  const oneLine = one(headers, 'ratelimit') ?? ''
  const limit = number(one(headers, 'x-ratelimit-limit') ?? one(headers, 'ratelimit-limit'))
  const remaining = number(
    one(headers, 'x-ratelimit-remaining') ?? one(headers, 'ratelimit-remaining') ?? part(oneLine, 'r'),
  )
  const resetText = one(headers, 'x-ratelimit-reset') ?? one(headers, 'ratelimit-reset') ?? part(oneLine, 't')
  const reset = number(resetText)
  const resetAt = reset === undefined ? httpDate(resetText) : undefined
  return {
    limit: limit === 0 ? undefined : limit,
    remaining,
    resetMs: reset === undefined ? resetAt && Math.max(0, resetAt - nowMs) : secondsLeft(reset, nowMs) * 1000,
    retryAfterMs: retryAfterMs(one(headers, 'retry-after'), nowMs),
  }
}

function one(headers: Headers, name: string): string | undefined {
  const value = headers[name]
  return Array.isArray(value) ? value[0] : value
}

function part(text: string, name: string): string | undefined {
  return new RegExp(`[;,\\s]${name}=(\\d+)`).exec(` ${text}`)?.[1]
}

function number(text: string | undefined): number | undefined {
  const match = /^\s*(\d+(?:\.\d+)?)\s*(?:[;,]|$)/.exec(text ?? '')
  return match === null ? undefined : Number(match[1])
}

/** Most services give seconds left; some give the moment as seconds or milliseconds since 1970. */
function secondsLeft(reset: number, nowMs: number): number {
  if (reset > 1e12) return Math.max(0, (reset - nowMs) / 1000)
  if (reset > 1e9) return Math.max(0, reset - nowMs / 1000)
  return reset
}

/** Undefined for what is negative, past or no time at all: then the usual delay is right. */
function retryAfterMs(text: string | undefined, nowMs: number): number | undefined {
  const seconds = number(text)
  if (seconds !== undefined) return secondsLeft(seconds, nowMs) * 1000
  const moment = httpDate(text)
  return moment === undefined || moment <= nowMs ? undefined : moment - nowMs
}

// `Date.parse` makes a date of almost anything, "-5" included.
const WITH_DAY_NAME = /^(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,? .*\d\d:\d\d:\d\d/i
const ISO = /^\d{4}-\d\d-\d\dT/

/** The three forms of dates in HTTP, and the one of ISO that some services use. */
function httpDate(text: string | undefined): number | undefined {
  const trimmed = text?.trim() ?? ''
  const isNamed = WITH_DAY_NAME.test(trimmed)
  if (!isNamed && !ISO.test(trimmed)) return undefined
  // The oldest form names no zone and means GMT, not the local time.
  const moment = Date.parse(isNamed && !/(?:GMT|UTC|[+-]\d{4})$/i.test(trimmed) ? `${trimmed} GMT` : trimmed)
  return Number.isNaN(moment) ? undefined : moment
}
