import { isUtf8 } from 'node:buffer'
import { Agent as HttpAgent } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import { type Got, got, type OptionsInit, type PlainResponse } from 'got'
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
import { type Account, Gate, type GateOptions } from './gate.ts'
import { listEnvelope } from './items.ts'
import { type Answer, parseAnswer } from './parse-answer.ts'
import { readRateHeaders } from './rate-headers.ts'
import { failureOf, isTriedAgain, LONGEST_WAIT_MS, RATE_LIMITED, RetryPolicy, UnsentError } from './retry-policy.ts'
import { withoutKey } from './without-key.ts'

export interface HttpOptions {
  baseUrl: string
  timeoutMs: number
  maxAttempts: number
  maxResponseBytes: number
  compress: boolean
  patienceMs: number
  clock: Clock
  onOutage?: GateOptions['onOutage']
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

/** The context of a call. */
export interface CallContext {
  signal?: AbortSignal | undefined
  /** Called for each attempt: the HTTP status, or undefined if there was no response. */
  onAttempt?: ((status: number | undefined) => void) | undefined
  /** Called before each wait: for the request budget, or before a request is tried again. */
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

interface HttpClient {
  send<T>(request: HttpRequest<T>, account: Account, context?: CallContext): Promise<HttpAnswer<T>>
  resetOutages(accounts: readonly Account[]): void
  close(): void
}

const SMALL_MS = 15_000
const WHOLE = 200
// Of the body of an error, more than its message needs.
const ERROR_BYTES = 65_536
const BYTE_ORDER_MARK = Buffer.from('\uFEFF')

/** HTTP with the key only in its header, time limits for each phase, retries with jitter and no redirects. */
export function createHttp(options: HttpOptions): HttpClient {
  const agents = { http: new HttpAgent({ keepAlive: true }), https: new HttpsAgent({ keepAlive: true }) }
  const turns = new Turns()
  const connectMs = Math.min(10_000, options.timeoutMs)
  const client: Got = got.extend({
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

  const { patienceMs, onOutage } = options
  const gate = new Gate({ host: new URL(options.baseUrl).host, patienceMs, onOutage })

  async function attempt<T>(
    request: HttpRequest<T>,
    { key }: Account,
    permit: Permit,
    context: CallContext,
  ): Promise<HttpAnswer<T>> {
    const operation = operationOf(request)
    let endTurn = () => {}
    const takeTurn = async () => {
      endTurn = await turns.begin(context.signal)
    }
    try {
      let head: PlainResponse
      let bytes: Buffer
      try {
        ;({ head, bytes } = await fetchWhole(request, key, context.signal, takeTurn))
      } catch (error) {
        permit.drop()
        // Asked to stop: that is neither an error nor an attempt that failed.
        if (context.signal?.aborted) throw new InterruptedError(`${operation}: asked to stop`)
        context.onAttempt?.(undefined)
        const connection = connectionFailure(error)
        if (connection !== undefined) throw new UnsentError(`${operation}: ${connection.cause}`, connection)
        // got's errors carry the request's headers, so only the code and a clean message go on.
        const code = codeOf(error) ?? 'no answer'
        const message = `${operation}: ${code} (${clip(messageOf(error))})`
        throw new TransientError(message, { timedOut: code === 'ETIMEDOUT' })
      }
      const status = head.statusCode
      const now = options.clock()
      const rate = readRateHeaders(head.headers, now.getTime())
      permit.learn(rate, status === RATE_LIMITED || (isTriedAgain(status) && rate.retryAfterMs !== undefined))
      try {
        refuseOtherTime(head, now)
        if (!isSuccess(head)) throw failureOf(status, clip(errorMessage(errorText(bytes, key))), operation, rate)
        const answer = usableAnswer(request, key, { head, bytes })
        context.onAttempt?.(status)
        return answer
      } catch (error) {
        // An answer that cannot be used is asked for again, though its status is that of success.
        const isUnusable = error instanceof TransientError && isSuccess(head)
        context.onAttempt?.(isUnusable ? undefined : status)
        throw error
      }
    } catch (error) {
      // A service may repeat the key anywhere: in a header, in its words, in an address.
      throw cleanError(error, createRedactor([key]))
    } finally {
      endTurn()
    }
  }

  function usableAnswer<T>(request: HttpRequest<T>, key: string, { head, bytes }: Response): HttpAnswer<T> {
    const operation = operationOf(request)
    const status = head.statusCode
    // 206 is a part of the answer, and 202 a promise of one.
    if (request.repeatable && status !== WHOLE)
      throw new TransientError(`${operation}: HTTP ${status} instead of 200`, { status })
    if (bytes.length > options.maxResponseBytes) {
      throw new RefusedError(
        `${operation}: the response is larger than ${options.maxResponseBytes / 1_048_576} MB (source.max_response_mb); it was refused`,
      )
    }
    const encoding = head.headers['content-encoding']
    if (encoding !== undefined && encoding !== 'identity') {
      throw new RefusedError(`${operation}: the body is encoded as ${clip(encoding, 40)}, which was not asked for`)
    }
    if (!isUtf8(bytes)) throw new TransientError(`${operation}: the body is not UTF-8`)
    refuseOtherType(head, operation)
    const text = bytes.subarray(bytes.indexOf(BYTE_ORDER_MARK) === 0 ? BYTE_ORDER_MARK.length : 0)
    const answer = parseAnswer(text, { operation, limit: request.limit, key })
    // Answers to creations are read by their own schemas: a retry could create twice.
    if (request.repeatable) refuseFailure(answer.body, operation)
    return { ...answer, status, body: shaped(request.schema, answer.body, operation) }
  }

  /** Whether anything answers. */
  async function probe(account: Account, { signal, onAttempt }: CallContext): Promise<TransientError | undefined> {
    const permit = await account.budget.acquire(signal)
    try {
      await attempt(smallRequest(account.projectId), account, permit, { signal, onAttempt })
      return undefined
    } catch (error) {
      if (signal?.aborted) throw error
      return error instanceof TransientError && error.status !== RATE_LIMITED ? error : undefined
    }
  }

  /** Reports a failed attempt to the gate, for all other requests. */
  function report(
    account: Account,
    operation: string,
    error: TransientError,
    sent: { at: number; isTooLong: boolean },
  ) {
    if (error.status === RATE_LIMITED) gate.rateLimited(account, error, sent.at)
    else gate.failed(account, operation, error, sent)
    const askedMs = error.retryAfterMs ?? 0
    if (askedMs > LONGEST_WAIT_MS) gate.pause(account, askedMs, error.message)
  }

  async function fetchWhole(
    request: HttpRequest,
    key: string,
    signal: AbortSignal | undefined,
    takeTurn: () => Promise<void>,
  ): Promise<Response> {
    const timeoutMs = Math.min(request.timeoutMs ?? options.timeoutMs, options.timeoutMs)
    const answer = client.stream(`${options.baseUrl}/${request.path}`, {
      method: request.method,
      timeout: { send: timeoutMs, response: timeoutMs, request: timeoutMs },
      headers: { 'x-api-key': key },
      searchParams: request.query,
      json: request.json,
      signal,
      isStream: true,
    } as OptionsInit & { isStream: true })
    // One that came after the end would find no listener, and be printed with the request's headers.
    answer.on('error', () => {})
    const isError = () => answer.response !== undefined && !isSuccess(answer.response)
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

  return {
    async send(request, account, given = {}) {
      const signal = ownSignal(given.signal)
      const context = { ...given, signal }
      const operation = operationOf(request)
      const { repeatable: isRepeatable } = request
      const { isDivisible = false } = context
      const retries = new RetryPolicy({ maxAttempts: options.maxAttempts, isRepeatable, isDivisible })
      for (;;) {
        await gate.enter(account, operation, (other) => probe(other, context), context)
        const permit = await gate.takePermit(account, context)
        if (permit === undefined) continue
        const sentAt = monotonic()
        try {
          const answer = await inSpan('request', spanOf(request), async (span) => {
            const onAttempt = (status: number | undefined) => {
              if (status !== undefined) span.setAttribute('http.response.status_code', status)
              context.onAttempt?.(status)
            }
            return attempt(request, account, permit, { ...context, onAttempt })
          })
          gate.answered(account, operation)
          return answer
        } catch (error) {
          if (error instanceof InterruptedError) throw error
          if (!(error instanceof TransientError)) {
            gate.answered(account, operation)
            throw error
          }
          const isTooLong = isDivisible && (error.timedOut || [408, 504].includes(error.status ?? 0))
          report(account, operation, error, { at: sentAt, isTooLong })
          const waitMs = retries.delayAfter(error)
          const isLast = waitMs === undefined
          if (error.timedOut && (isLast || retries.ranOutOfTime)) {
            // A timeout is the request's fault only if the service answers others.
            if (await gate.isAnswering(account, sentAt, (other) => probe(other, context))) throw error
            if (isLast) throw new TransientError(error.message)
          }
          if (isLast) throw error
          if (waitMs === 0) continue
          context.onWait?.(waitMs)
          await sleep(waitMs, signal)
        }
      }
    },
    resetOutages: (accounts) => gate.resetOutages(accounts),
    close() {
      agents.http.destroy()
      agents.https.destroy()
    },
  }
}

function isSuccess({ statusCode }: PlainResponse): boolean {
  return statusCode >= 200 && statusCode < 300
}

/** The beginning of the body of an error. */
function errorText(bytes: Buffer, key: string): string {
  const start = bytes.subarray(0, ERROR_BYTES)
  return (withoutKey(start, key) ?? start).toString('utf8')
}

/** The smallest request that there is, for when its answer matters less than that there is one. */
export function smallRequest(projectId: string | undefined): HttpRequest {
  const query = { limit: 1, project_id: projectId }
  return { method: 'GET', path: 'prompts', query, repeatable: false, timeoutMs: SMALL_MS, schema: listEnvelope }
}

function operationOf({ method, path, template = path }: HttpRequest): string {
  return `${method} /${template}`
}

function spanOf({ method, path, template = path }: HttpRequest): Record<string, string> {
  return { 'http.request.method': method, 'url.path': `/${template}` }
}

/** Which days are due depends on the clock: with a wrong one, days are skipped or read before they are over. */
function refuseOtherTime({ headers }: PlainResponse, now: Date): void {
  const served = Date.parse(headers.date ?? '') + Number(headers.age ?? 0) * 1000
  if (Number.isNaN(served) || Math.abs(served - now.getTime()) <= DAY_MS) return
  const times = `${now.toISOString()} here, ${new Date(served).toISOString()} at the service`
  throw new ClockError(`the clocks differ by more than a day: ${times}; set the clock of this machine`)
}

function refuseOtherType({ headers }: PlainResponse, operation: string): void {
  const type = headers['content-type']
  if (type !== undefined && !/^[\w.-]+\/(?:[\w.-]+\+)?json\b/i.test(type.trim())) {
    throw new TransientError(`${operation}: the answer is ${clip(type, 60)}, not JSON`)
  }
}

function shaped<T>(schema: z.ZodType<T>, body: unknown, operation: string): T {
  const result = schema.safeParse(body)
  if (result.success) return result.data
  const [issue] = result.error.issues
  throw new TransientError(
    `${operation}: the answer lacks ${issue?.path.join('.') || 'its object'} (${clip(issue?.message ?? '', 80)})`,
  )
}

/** The service's own words, from the shapes of error bodies that are known or likely. */
function errorMessage(text: string): string {
  try {
    const body = JSON.parse(text.replace(/^\uFEFF/, '')) as { message?: unknown; error?: unknown }
    const message = body.message ?? body.error
    return typeof message === 'string' ? message : JSON.stringify(message ?? body)
  } catch {
    return text.trim() === '' ? 'no explanation' : text.replaceAll(/\s+/g, ' ')
  }
}
