import { appendFile, rename, rm, stat, truncate, writeFile } from 'node:fs/promises'
import { got, type OptionsInit } from 'got'
import type { Config } from '../core/config/load.ts'
import { codeOf } from '../core/errors.ts'
import type { Log } from '../core/logger.ts'
import { clip } from '../core/text.ts'
import type { LineageEvent } from './lineage-event.ts'

/* How each receiver outside is addressed: a dead man's switch, Prometheus, a lineage catalogue. A slow one must not hold up the command. */

type OutsideRequest = Pick<OptionsInit, 'json' | 'body' | 'headers'> & {
  method?: 'GET' | 'POST' | 'PUT'
  signal: AbortSignal
}

const REQUEST_MS = 3000

/** Sends one request; a failure that may pass is tried once more. Redirects are not followed: the address is a secret. */
export async function notifyOutside(url: string, request: OutsideRequest): Promise<void> {
  const { method = 'POST' } = request
  await got(url, {
    ...request,
    method,
    timeout: { request: REQUEST_MS },
    retry: { limit: 1, methods: [method], backoffLimit: 1000 },
    followRedirect: false,
  })
}

/** Why it failed, without the error's own words: they hold the address, which is a secret. */
export function outsideFailure(error: unknown): string {
  const status = (error as { response?: { statusCode?: number } }).response?.statusCode
  return status === undefined ? (codeOf(error) ?? 'no answer') : `HTTP ${status}`
}

/** Waits for something outside to be sent. A failure is logged; with a signal, only if it was not given up. */
export async function orWarn(work: Promise<void>, log: Log, message: string, signal?: AbortSignal): Promise<void> {
  await work.catch((error: unknown) => {
    if (!signal?.aborted) log.warn({ reason: outsideFailure(error) }, message)
  })
}

export type PingSignal = 'start' | 'success' | 'fail'

const LONGEST_REASON = 500

/** Parameters of the address stay. */
function below(url: string, path: string): string {
  const address = new URL(url)
  address.pathname = `${address.pathname.replace(/\/+$/, '')}${path}`
  return address.href
}

/** As healthchecks services have it: …/start, the address itself, …/fail. */
export async function ping(url: string, what: PingSignal, signal: AbortSignal, reason = ''): Promise<void> {
  const request = what === 'fail' ? { body: clip(reason, LONGEST_REASON) } : { method: 'GET' as const }
  await notifyOutside(what === 'success' ? url : below(url, `/${what}`), { ...request, signal })
}

/**
 * Leaves the metrics of a process that ends at a Pushgateway. A text that holds everything replaces the group, so that
 * projects which are gone do not stay for ever; one that does not replaces only the metrics in it.
 */
export async function pushMetrics(url: string, text: string, isWhole: boolean, signal: AbortSignal): Promise<void> {
  const headers = { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' }
  // The address names its group itself, or it is that of the Pushgateway alone.
  const address = new URL(url).pathname.includes('/metrics/job') ? url : below(url, '/metrics/job/visibility_sync')
  await notifyOutside(address, { method: isWhole ? 'PUT' : 'POST', body: text, headers, signal })
}

/** For the textfile collector of node_exporter, which may read at any moment: the file is whole or the one before. */
export async function writeTextfile(path: string, text: string): Promise<void> {
  const unfinished = `${path}.${process.pid}`
  try {
    await writeFile(unfinished, text, { mode: 0o644 })
    await rename(unfinished, path)
  } finally {
    await rm(unfinished, { force: true })
  }
}

// A file that is full becomes the one before, which retention.logs_days removes.
const MOST_LINEAGE_BYTES = 5 * 1024 * 1024

/** Of a host alone, events are posted to the usual place. */
export async function sendLineage(
  { url, api_key, file }: Config['lineage'],
  event: LineageEvent,
  signal: AbortSignal,
): Promise<void> {
  const sent: Promise<void>[] = []
  if (url !== undefined) {
    const headers = api_key === undefined ? {} : { authorization: `Bearer ${api_key}` }
    const address = new URL(url).pathname === '/' ? below(url, '/api/v1/lineage') : url
    sent.push(notifyOutside(address, { json: event, headers, signal }))
  }
  if (file !== undefined) sent.push(appendEvent(file, event))
  await Promise.all(sent)
}

async function appendEvent(file: string, event: LineageEvent): Promise<void> {
  let { size } = await stat(file).catch(() => ({ size: 0 }))
  if (size > MOST_LINEAGE_BYTES) {
    await rename(file, `${file}.1`)
    size = 0
  }
  const line = Buffer.from(`${JSON.stringify(event)}\n`)
  try {
    await appendFile(file, line)
  } catch (error) {
    // On a full disk, a part of the line may be there. The next event must not be appended to it.
    const now = await stat(file).catch(() => ({ size: 0 }))
    if (now.size > size && now.size < size + line.length) await truncate(file, size).catch(() => {})
    throw error
  }
}
