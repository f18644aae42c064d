import { isUtf8 } from 'node:buffer'
import { Agent as HttpAgent } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import { promisify } from 'node:util'
import { gunzip } from 'node:zlib'
import { type Got, got, type OptionsInit, type PlainResponse } from 'got'
import {
  codeOf,
  InterruptedError,
  KeyError,
  messageOf,
  ProjectError,
  RefusedError,
  TransientError,
} from '../core/errors.ts'
import { sleep } from '../core/sleep.ts'
import { clip, redact } from '../core/text.ts'
import { Body } from './body.ts'
import type { RequestBudget } from './budget.ts'
import { type Intake, parseItems } from './parse-items.ts'
import { readRateHeaders } from './rate-headers.ts'
import { LONGEST_WAIT_MS, retryDelayMs } from './retry-delay.ts'

const unzip = promisify(gunzip)

export interface HttpOptions {
  baseUrl: string
  timeoutMs: number
  maxAttempts: number
  maxResponseBytes: number
  compress: boolean
}

export interface HttpRequest {
  method: 'GET' | 'POST'
  path: string
  query?: Record<string, string | number | undefined>
  json?: unknown
  /** Only what changes nothing in the service may be sent twice. */
  repeatable: boolean
}

/** What goes with a call besides its contents. */
export interface CallContext {
  signal?: AbortSignal | undefined
  /** Told of each attempt: the HTTP status, or undefined where there was no response. */
  onAttempt?: ((status: number | undefined) => void) | undefined
  /** Told before each wait: for the request budget, or before a request is tried again. */
  onWait?: ((ms: number) => void) | undefined
  /** Takes the items of a page; the page then comes without them. */
  intake?: Intake | undefined
}

export interface HttpAnswer {
  status: number
  body: unknown
  /** How many items the intake took. */
  count: number
  /** True where a text of the body may hold what Postgres cannot store; almost never, so rows need no check otherwise. */
  suspectText: boolean
}

export interface HttpClient {
  send(request: HttpRequest, key: string, budget: RequestBudget, context?: CallContext): Promise<HttpAnswer>
  close(): void
}

const RETRIED = new Set([408, 425, 429])
// A 429 is an answer, not a fault: it is waited out for longer than a fault is, but not for ever.
const MOST_REFUSALS = 40
const WRONG_KEY =
  /api[ _-]?key|(?:invalid|wrong|missing|bad|unknown) key\b|key (?:is )?(?:invalid|missing|wrong)|unauthori[sz]ed|authenticat/i
const NUL_OR_SURROGATE = /\\u(0000|[dD][89a-fA-F])/

/** HTTP with the key only in its header, time limits for each phase, retries with jitter and no redirects. */
export function createHttp(options: HttpOptions): HttpClient {
  const agents = { http: new HttpAgent({ keepAlive: true }), https: new HttpsAgent({ keepAlive: true }) }
  const connectMs = Math.min(10_000, options.timeoutMs)
  const client: Got = got.extend({
    agent: agents,
    retry: { limit: 0 },
    // A redirect could carry the key to another host.
    followRedirect: false,
    throwHttpErrors: false,
    // Measured: unpacking here costs two thirds of what got's own decompression costs.
    decompress: false,
    timeout: {
      lookup: connectMs,
      connect: connectMs,
      secureConnect: connectMs,
      send: options.timeoutMs,
      response: options.timeoutMs,
      request: options.timeoutMs,
    },
    headers: {
      'user-agent': 'visibility-sync',
      accept: 'application/json',
      'accept-encoding': options.compress ? 'gzip' : 'identity',
    },
  })

  async function attempt(
    request: HttpRequest,
    key: string,
    budget: RequestBudget,
    context: CallContext,
  ): Promise<HttpAnswer> {
    const place = `${request.method} /${request.path}`
    const permit = await budget.take(context.signal, context.onWait)
    const body = new Body()
    try {
      let head: PlainResponse
      try {
        head = await fetchInto(body, request, key, context.signal)
      } catch (error) {
        permit.drop()
        context.onAttempt?.(undefined)
        if (context.signal?.aborted) throw new InterruptedError(`${place}: told to stop`)
        if (error instanceof RefusedError) throw error
        // got's errors carry the request's headers, so only the code and a clean message go on.
        const code = codeOf(error) ?? 'no answer'
        throw new TransientError(`${place}: ${code} (${clip(redact(messageOf(error), [key]))})`, {
          neverSent: ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN'].includes(code),
        })
      }
      const status = head.statusCode
      const rate = readRateHeaders(head.headers, Date.now())
      permit.learn(rate, status === 429)
      context.onAttempt?.(status)
      if (status >= 200 && status < 300) {
        return { status, ...(await parseBody(head, await unpacked(head, body.bytes, place), place, context.intake)) }
      }
      const told = clip(redact(errorMessage(await errorText(head, body.bytes)), [key]))
      throw failureOf(status, told, place, rate.retryAfterMs)
    } finally {
      body.release()
    }
  }

  async function fetchInto(
    body: Body,
    request: HttpRequest,
    key: string,
    signal: AbortSignal | undefined,
  ): Promise<PlainResponse> {
    const init: OptionsInit = {
      method: request.method,
      headers: { 'x-api-key': key },
      searchParams: Object.fromEntries(Object.entries(request.query ?? {}).filter(([, value]) => value !== undefined)),
    }
    if (request.json !== undefined) init.json = request.json
    if (signal !== undefined) init.signal = signal
    const answer = client.stream(`${options.baseUrl}/${request.path}`, { ...init, isStream: true })
    // One that came after the end would find nobody to tell, and be printed with the request's headers.
    answer.on('error', () => {})
    try {
      for await (const piece of answer) {
        body.add(piece as Buffer)
        if (body.length > options.maxResponseBytes) throw tooLargeError(`${request.method} /${request.path}`)
      }
      if (answer.response === undefined) throw new TransientError('no answer')
      return answer.response
    } finally {
      answer.destroy()
    }
  }

  function tooLargeError(place: string): RefusedError {
    return new RefusedError(
      `${place}: the response is larger than ${options.maxResponseBytes / 1_048_576} MB (source.max_response_mb); it was refused`,
    )
  }

  async function unpacked({ headers }: PlainResponse, packed: Buffer, place: string): Promise<Buffer> {
    let bytes = packed
    const encoding = headers['content-encoding']
    if (encoding === 'gzip' && bytes.length > 0) {
      try {
        bytes = await unzip(bytes, { maxOutputLength: options.maxResponseBytes })
      } catch (error) {
        if (codeOf(error) === 'ERR_BUFFER_TOO_LARGE') throw tooLargeError(place)
        throw new TransientError(`${place}: the compressed body is broken`)
      }
    } else if (encoding !== undefined && encoding !== 'gzip' && encoding !== 'identity') {
      throw new RefusedError(`${place}: the body is encoded as ${clip(encoding, 40)}, which was not asked for`)
    }
    if (!isUtf8(bytes)) throw new TransientError(`${place}: the body is not UTF-8`)
    return bytes
  }

  return {
    async send(request, key, budget, context = {}) {
      let refusals = 0
      for (let tried = 1; ; ) {
        try {
          return await attempt(request, key, budget, context)
        } catch (error) {
          if (!(error instanceof TransientError) || !request.repeatable) throw error
          if ((error.retryAfterMs ?? 0) > LONGEST_WAIT_MS) {
            throw new TransientError(
              `${error.message} (asks to wait for ${Math.round(error.retryAfterMs! / 1000)} s, which is too long)`,
            )
          }
          const refused = error instanceof BusyError
          if (refused ? ++refusals >= MOST_REFUSALS : tried++ >= options.maxAttempts) throw error
          // The budget holds everyone back after a refusal; a wait of its own would only add to that.
          if (refused) continue
          const waitMs = retryDelayMs(tried - 1, error.retryAfterMs)
          context.onWait?.(waitMs)
          await sleep(waitMs, context.signal)
        }
      }
    },
    close() {
      agents.http.destroy()
      agents.https.destroy()
    },
  }
}

/** The body of an error, read as well as it can be: its status alone decides what happens. */
async function errorText({ headers }: PlainResponse, bytes: Buffer): Promise<string> {
  if (headers['content-encoding'] !== 'gzip') return bytes.toString('utf8')
  return unzip(bytes, { maxOutputLength: 1_048_576 }).then(String, () => '')
}

/** A 429: the budget is spent for now. */
class BusyError extends TransientError {}

async function parseBody(
  { headers }: PlainResponse,
  bytes: Buffer,
  place: string,
  intake: Intake | undefined,
): Promise<Omit<HttpAnswer, 'status'>> {
  const type = headers['content-type']
  if (type !== undefined && !/^[\w.-]+\/(?:[\w.-]+\+)?json\b/i.test(type.trim())) {
    throw new TransientError(`${place}: the answer is ${clip(type, 60)}, not JSON`)
  }
  // Most answers hold no escaped character at all, which bytes tell faster than a pattern.
  const suspectText = bytes.includes('\\u') && NUL_OR_SURROGATE.test(bytes.toString('utf8'))
  try {
    if (intake !== undefined) return { suspectText, ...(await parseItems(bytes, suspectText, intake)) }
    return { suspectText, body: JSON.parse(bytes.toString('utf8')), count: 0 }
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
    throw new TransientError(`${place}: the answer is not whole JSON (${bytes.length} bytes)`)
  }
}

/** The service's own words, from the shapes of error bodies that are known or likely. */
function errorMessage(text: string): string {
  try {
    const body = JSON.parse(text) as { message?: unknown; error?: unknown }
    const told = body.message ?? body.error
    return typeof told === 'string' ? told : JSON.stringify(told ?? body)
  } catch {
    return text.trim() === '' ? 'no explanation' : text.replaceAll(/\s+/g, ' ')
  }
}

function failureOf(status: number, message: string, place: string, retryAfterMs: number | undefined): Error {
  const told = `${place}: HTTP ${status}: ${message}`
  if (status === 429) return new BusyError(told, { retryAfterMs, status })
  if (RETRIED.has(status) || status >= 500) return new TransientError(told, { retryAfterMs, status })
  if (status === 401 || (status === 400 && WRONG_KEY.test(message))) {
    return new KeyError(`${told} (check VISIBILITY_API_KEY)`, { status })
  }
  if (status === 403) return new ProjectError(told, { status })
  if (status >= 300 && status < 400) return new RefusedError(`${told} (redirects are not followed)`, { status })
  return new RefusedError(told, { status })
}
