import { got } from 'got'
import { codeOf } from './errors.ts'

/* Requests to services that are notified of runs. A slow one must not hold up the command. */

export interface OutsideRequest {
  method?: 'GET' | 'POST' | 'PUT'
  json?: unknown
  text?: string
  headers?: Record<string, string>
  signal: AbortSignal
}

const REQUEST_MS = 3000

/** Sends one request; a failure that may pass is tried once more. Redirects are not followed: the address is a secret. */
export async function notifyOutside(url: string, request: OutsideRequest): Promise<void> {
  const { method = 'POST', json, text, headers = {}, signal } = request
  await got(url, {
    method,
    headers,
    ...(json === undefined ? {} : { json }),
    ...(text === undefined ? {} : { body: text }),
    timeout: { request: REQUEST_MS },
    retry: { limit: 1, methods: [method], backoffLimit: 1000 },
    followRedirect: false,
    signal,
  })
}

/** Why it failed, without the error's own words: they hold the address, which is a secret. */
export function outsideFailure(error: unknown): string {
  const status = (error as { response?: { statusCode?: number } }).response?.statusCode
  return status === undefined ? (codeOf(error) ?? 'no answer') : `HTTP ${status}`
}
