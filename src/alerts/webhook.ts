import { got } from 'got'
import { codeOf } from '../core/errors.ts'

// Whoever is told must not hold up those who tell.
const REQUEST_MS = 4000

export interface Message {
  /** As Slack and its like want it. */
  text: string
  event: 'raised' | 'cleared'
  condition: string
  detail: string
  since?: string
}

/** Sends one message; a failure that may pass is tried once more. */
export async function postMessage(url: string, message: Message, signal: AbortSignal): Promise<void> {
  await got.post(url, {
    json: message,
    timeout: { request: REQUEST_MS },
    retry: { limit: 1, methods: ['POST'], backoffLimit: 1000 },
    followRedirect: false,
    signal,
  })
}

/** Why it failed, without the error's own words: they hold the address, which is a secret. */
export function webhookFailure(error: unknown): string {
  const status = (error as { response?: { statusCode?: number } }).response?.statusCode
  return status === undefined ? (codeOf(error) ?? 'no answer') : `HTTP ${status}`
}
