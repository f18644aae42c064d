import { isUtf8 } from 'node:buffer'
import { Agent as HttpAgent } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import { got, type OptionsInit, type PlainResponse } from 'got'
import type * as z from 'zod'
import { connectionFailure } from '../core/connection-failure.ts'
import { type Clock, DAY_MS } from '../core/day.ts'
import {
  ClockError,
  cleanError,
  codeOf,
  InterruptedError,
  messageOf,
  RefusedError,
  TransientError,
} from '../core/errors.ts'
import { inSpan } from '../core/logger.ts'
import { createRedactor } from '../core/redactor.ts'
import { clip } from '../core/text.ts'
import { monotonic, ownSignal, sleep } from '../core/waiting.ts'
import { collect, Turns } from './body.ts'
import type { Permit } from './budget.ts'
import { refuseFailure } from './envelope.ts'
import { type Account, type Caller, Gate, type GateOptions } from './gate.ts'
import { listEnvelope } from './items.ts'
import { type Answer, parseAnswer } from './parse-answer.ts'
import { readRateHeaders } from './rate-headers.ts'
import { createRetries, failureOf, isTriedAgain, RATE_LIMITED, UnsentError } from './retry-policy.ts'
import { withoutKey } from './without-key.ts'

export interface HttpOptions extends GateOptions {
  baseUrl: string
  timeoutMs: number
  maxAttempts: number
  maxResponseBytes: number
  compress: boolean
  clock: Clock
}

export interface HttpRequest<T = unknown> {
  method: 'GET' | 'POST'
  path: string
  /** The path with the names of its parts, if it differs from request to request. */
  template?: string
  query?: Record<string, string | number | undefined>
  json?: unknown
  /** Only what changes nothing in the service may be sent twice. */
  repeatable: boolean
  /** Set if a page is asked for: how many items it may have. */
  limit?: number
  /** Less than what is set for all. */
  timeoutMs?: number
  /** The schema of the body. An answer of another shape is damaged, and the next one may be right. */
  schema: z.ZodType<T>
}

export interface CallContext {
  signal?: AbortSignal | undefined
  /** Called for each attempt: the HTTP status, or undefined if there was no response, or none that can be used. */
  onAttempt?: ((status: number | undefined) => void) | undefined
  /** Called before each wait: for the service, for the request budget, or before a request is tried again. */
  onWait?: ((ms: number) => void) | undefined
  /** True if less could be asked for instead, which is better than running out of time again and again. */
  isDivisible?: boolean
}

export interface HttpAnswer<T = unknown> extends Answer {
  status: number
  body: T
}

interface Response {
  head: PlainResponse
  bytes: Buffer
}

// Then less is asked for instead.
const MOST_TIMEOUTS = 2
const SMALL_MS = 15_000
const WHOLE = 200
// Of the body of an error, more than its message needs.
const ERROR_BYTES = 65_536
const JSON_TYPE = /^[\w.-]+\/(?:[\w.-]+\+)?json\b/i
const BYTE_ORDER_MARK = Buffer.from('\uFEFF')

/** HTTP with the key only in its header, time limits for each phase, retries with jitter and no redirects. */
export function createHttp(options: HttpOptions) {
  const agents = { http: new HttpAgent({ keepAlive: true }), https: new HttpsAgent({ keepAlive: true }) }
  const gate = new Gate(new URL(options.baseUrl).host, options)
  const turns = new Turns()
  const connectMs = Math.min(10_000, options.timeoutMs)
  const client = got.extend({
    agent: agents,
    retry: { limit: 0 },
    // A redirect could carry the key to another host.
    followRedirect: false,
    throwHttpErrors: false,
    timeout: { lookup: connectMs, connect: connectMs, secureConnect: connectMs },
    headers: {
      'user-agent': 'visibility-sync',
      accept: 'application/json',
      'accept-encoding': options.compress ? 'gzip' : 'identity',
    },
  })

  async function send<T>(caller: Caller, request: HttpRequest<T>, given: CallContext = {}): Promise<HttpAnswer<T>> {
    const context = { ...given, signal: ownSignal(given.signal) }
    const { signal, onWait, isDivisible = false } = context
    const account = gate.accountOf(caller)
    const probe = (other: Account) => probeOnce(other, context)
    const asked = { account, operation: operationOf(request), isDivisible, signal, onWait, probe }
    const retryAfter = createRetries(options.maxAttempts, request.repeatable)
    for (;;) {
      const permit = await account.budget.acquire({ signal, onWait, ready: () => gate.ready(asked) })
      const sentAt = monotonic()
      try {
        const answer = await inSpan('request', spanOf(request), (span) => {
          const onAttempt = (status: number | undefined) => {
            if (status !== undefined) span.setAttribute('http.response.status_code', status)
            context.onAttempt?.(status)
          }
          return attempt(request, account, permit, { ...context, onAttempt })
        })
        gate.ended(asked, sentAt)
        return answer
      } catch (error) {
        gate.ended(asked, sentAt, error)
        if (!(error instanceof TransientError)) throw error
        const { delayMs, timeouts } = retryAfter(error)
        if (error.timedOut && (delayMs === undefined || (isDivisible && timeouts >= MOST_TIMEOUTS))) {
          // A timeout is the request's fault only if the service answers others.
          if (await gate.isAnswering(asked, sentAt)) throw error
          if (delayMs === undefined) throw new TransientError(error.message)
        }
        if (delayMs === undefined) throw error
        if (delayMs === 0) continue
        onWait?.(delayMs)
        await sleep(delayMs, signal)
      }
    }
  }

  /** Whether anything answers: gives the failure if not. */
  async function probeOnce(account: Account, { signal, onAttempt }: CallContext): Promise<TransientError | undefined> {
    const permit = await account.budget.acquire({ signal })
    try {
      await attempt(smallRequest(account.projectId), account, permit, { signal, onAttempt })
    } catch (error) {
      if (signal?.aborted) throw error
      if (error instanceof TransientError && error.status !== RATE_LIMITED) return error
    }
    return undefined
  }

  async function attempt<T>(
    request: HttpRequest<T>,
    { key }: Account,
    permit: Permit,
    { signal, onAttempt }: CallContext,
  ): Promise<HttpAnswer<T>> {
    const operation = operationOf(request)
    let status: number | undefined
    let endTurn = () => {}
    try {
      const takeTurn = async () => {
        endTurn = await turns.begin(signal)
      }
      const { head, bytes } = await fetchWhole(request, key, signal, takeTurn).catch((error: unknown) => {
        permit.drop()
        throw signal?.aborted ? new InterruptedError(`${operation}: asked to stop`) : unansweredError(operation, error)
      })
      status = head.statusCode
      const now = options.clock()
      const rate = readRateHeaders(head.headers, now.getTime())
      permit.learn(rate, status === RATE_LIMITED || (isTriedAgain(status) && rate.retryAfterMs !== undefined))
      refuseOtherTime(head, now)
      if (!isSuccess(status)) throw failureOf(status, clip(errorMessage(bytes, key)), operation, rate)
      const answer = parse(request, key, { head, bytes })
      onAttempt?.(status)
      return { ...answer, status }
    } catch (error) {
      // An answer that cannot be used is asked for again, though its status is that of success.
      const isUnusable = error instanceof TransientError && isSuccess(status)
      if (!(error instanceof InterruptedError)) onAttempt?.(isUnusable ? undefined : status)
      // A service may repeat the key anywhere: in a header, in its words, in an address.
      throw cleanError(error, createRedactor([key]))
    } finally {
      endTurn()
    }
  }

  async function fetchWhole(
    { method, path, query, json, timeoutMs = options.timeoutMs }: HttpRequest,
    key: string,
    signal: AbortSignal | undefined,
    takeTurn: () => Promise<void>,
  ): Promise<Response> {
    const ms = Math.min(timeoutMs, options.timeoutMs)
    const answer = client.stream(`${options.baseUrl}/${path}`, {
      method,
      timeout: { send: ms, response: ms, request: ms },
      headers: { 'x-api-key': key },
      searchParams: query,
      json,
      signal,
      isStream: true,
    } as OptionsInit & { isStream: true })
    // One that came after the end would find no listener, and be printed with the request's headers.
    answer.on('error', () => {})
    const isError = () => answer.response !== undefined && !isSuccess(answer.response.statusCode)
    try {
      const mostBytes = () => (isError() ? ERROR_BYTES : options.maxResponseBytes)
      const bytes = await collect(answer as AsyncIterable<Buffer>, mostBytes, takeTurn).catch((error: unknown) => {
        // Only the status decides what becomes of an error.
        if (!isError() || signal?.aborted) throw error
        return Buffer.alloc(0)
      })
      if (answer.response === undefined) throw new TransientError('no answer')
      return { head: answer.response, bytes }
    } finally {
      answer.destroy()
    }
  }

  function parse<T>(
    { repeatable, limit, schema, ...request }: HttpRequest<T>,
    key: string,
    { head, bytes }: Response,
  ): Answer & { body: T } {
    const operation = operationOf(request)
    const { statusCode: status, headers } = head
    // 206 is a part of the answer, and 202 a promise of one.
    if (repeatable && status !== WHOLE)
      throw new TransientError(`${operation}: HTTP ${status} instead of 200`, { status })
    if (bytes.length > options.maxResponseBytes) {
      const most = `${options.maxResponseBytes / 1_048_576} MB (source.max_response_mb)`
      throw new RefusedError(`${operation}: the response is larger than ${most}; it was refused`)
    }
    const { 'content-encoding': encoding = 'identity', 'content-type': type = 'application/json' } = headers
    if (encoding !== 'identity')
      throw new RefusedError(`${operation}: the body is encoded as ${clip(encoding, 40)}, which was not asked for`)
    if (!isUtf8(bytes)) throw new TransientError(`${operation}: the body is not UTF-8`)
    if (!JSON_TYPE.test(type.trim()))
      throw new TransientError(`${operation}: the answer is ${clip(type, 60)}, not JSON`)
    const text = bytes.subarray(bytes.indexOf(BYTE_ORDER_MARK) === 0 ? BYTE_ORDER_MARK.length : 0)
    const answer = parseAnswer(text, { operation, limit, key })
    // Answers to creations are read by their own schemas: a retry could create twice.
    if (repeatable) refuseFailure(answer.body, operation)
    const { data, error } = schema.safeParse(answer.body)
    if (error === undefined) return { ...answer, body: data }
    const [{ path, message } = { path: [], message: '' }] = error.issues
    throw new TransientError(`${operation}: the answer lacks ${path.join('.') || 'its object'} (${clip(message, 80)})`)
  }

  return {
    send,
    resetOutages: (callers: readonly Caller[]) => gate.resetOutages(callers),
    budgetView: (caller: Caller) => gate.accountOf(caller).budget.view(),
    close() {
      agents.http.destroy()
      agents.https.destroy()
    },
  }
}

/** The smallest request that there is, for when its answer matters less than that there is one. */
export function smallRequest(projectId: string | undefined): HttpRequest {
  const query = { limit: 1, project_id: projectId }
  return { method: 'GET', path: 'prompts', query, repeatable: false, timeoutMs: SMALL_MS, schema: listEnvelope }
}

type Named = Pick<HttpRequest, 'method' | 'path' | 'template'>

function operationOf({ method, path, template = path }: Named): string {
  return `${method} /${template}`
}

function spanOf({ method, path, template = path }: Named): Record<string, string> {
  return { 'http.request.method': method, 'url.path': `/${template}` }
}

function isSuccess(status = 0): boolean {
  return status >= 200 && status < 300
}

function unansweredError(operation: string, error: unknown): TransientError {
  const connection = connectionFailure(error)
  if (connection !== undefined) return new UnsentError(`${operation}: ${connection.cause}`, connection)
  // got's errors carry the request's headers, so only the code and a clean message go on.
  const code = codeOf(error) ?? 'no answer'
  return new TransientError(`${operation}: ${code} (${clip(messageOf(error))})`, { timedOut: code === 'ETIMEDOUT' })
}

/** Which days are due depends on the clock: with a wrong one, days are skipped or read before they are over. */
function refuseOtherTime({ headers }: PlainResponse, now: Date): void {
  const served = Date.parse(headers.date ?? '') + Number(headers.age ?? 0) * 1000
  if (Number.isNaN(served) || Math.abs(served - now.getTime()) <= DAY_MS) return
  const times = `${now.toISOString()} here, ${new Date(served).toISOString()} at the service`
  throw new ClockError(`the clocks differ by more than a day: ${times}; set the clock of this machine`)
}

/** The service's own words, from the shapes of error bodies that are known or likely. */
function errorMessage(bytes: Buffer, key: string): string {
  const start = bytes.subarray(0, ERROR_BYTES)
  const text = (withoutKey(start, key) ?? start).toString('utf8')
  try {
    const body = JSON.parse(text.replace(/^\uFEFF/, '')) as { message?: unknown; error?: unknown }
    const message = body.message ?? body.error
    return typeof message === 'string' ? message : JSON.stringify(message ?? body)
  } catch {
    return text.trim() === '' ? 'no explanation' : text.replaceAll(/\s+/g, ' ')
  }
}
