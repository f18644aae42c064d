/** What the headers of a response say about the request budget. Absent parts are undefined. */
export interface RateHeaders {
  limit?: number
  remaining?: number
  resetMs?: number
  retryAfterMs?: number
}

type Headers = Record<string, string | string[] | undefined>

/** Reads `X-RateLimit-*`, `RateLimit-*`, the one-line `RateLimit: …;r=…;t=…` and `Retry-After`, whichever are there. */
export function readRateHeaders(headers: Headers, nowMs: number): RateHeaders {
  const result: RateHeaders = {}
  const oneLine = one(headers, 'ratelimit') ?? ''
  const limit = number(one(headers, 'x-ratelimit-limit') ?? one(headers, 'ratelimit-limit'))
  const remaining = number(
    one(headers, 'x-ratelimit-remaining') ?? one(headers, 'ratelimit-remaining') ?? part(oneLine, 'r'),
  )
  const resetText = one(headers, 'x-ratelimit-reset') ?? one(headers, 'ratelimit-reset') ?? part(oneLine, 't')
  const reset = number(resetText)
  const resetAt = reset === undefined ? Date.parse(resetText ?? '') : Number.NaN
  const retryAfter = retryAfterMs(one(headers, 'retry-after'), nowMs)
  if (limit !== undefined && limit > 0) result.limit = limit
  if (remaining !== undefined) result.remaining = remaining
  if (reset !== undefined) result.resetMs = secondsLeft(reset, nowMs) * 1000
  if (!Number.isNaN(resetAt)) result.resetMs = Math.max(0, resetAt - nowMs)
  if (retryAfter !== undefined) result.retryAfterMs = retryAfter
  return result
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

function retryAfterMs(text: string | undefined, nowMs: number): number | undefined {
  if (text === undefined) return undefined
  const seconds = number(text)
  if (seconds !== undefined) return seconds * 1000
  const moment = Date.parse(text)
  return Number.isNaN(moment) ? undefined : Math.max(0, moment - nowMs)
}
