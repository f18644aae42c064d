import { appendFile, rename, stat, writeFile } from 'node:fs/promises'
import { got, type OptionsInit } from 'got'
import type { Config } from '../core/config/load.ts'
import { codeOf } from '../core/errors.ts'
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

export type PingSignal = 'start' | 'success' | 'fail'

const LONGEST_REASON = 500

/** As healthchecks services have it: …/start, the address itself, …/fail. Parameters of the address stay. */
export function pingAddress(url: string, what: PingSignal): string {
  const address = new URL(url)
  if (what !== 'success') address.pathname = `${address.pathname.replace(/\/+$/, '')}/${what}`
  return address.href
}

export async function ping(url: string, what: PingSignal, signal: AbortSignal, reason?: string): Promise<void> {
  const address = pingAddress(url, what)
  if (what === 'fail') await notifyOutside(address, { body: clip(reason ?? '', LONGEST_REASON), signal })
  else await notifyOutside(address, { method: 'GET', signal })
}

const TEXT = 'text/plain; version=0.0.4; charset=utf-8'
const GROUP = '/metrics/job/visibility_sync'

/** Where metrics go: the address names its group itself, or it is that of the Pushgateway alone. */
export function pushAddress(url: string): string {
  const address = new URL(url)
  if (!address.pathname.includes('/metrics/job')) address.pathname = `${address.pathname.replace(/\/+$/, '')}${GROUP}`
  return address.href
}

/**
 * Leaves the metrics of a process that ends at a Pushgateway. A text that holds everything replaces the group, so that
 * projects which are gone do not stay for ever; one that does not replaces only the metrics in it.
 */
export async function pushMetrics(
  url: string,
  text: string,
  { isWhole, signal }: { isWhole: boolean; signal: AbortSignal },
): Promise<void> {
  const { username, password } = new URL(url)
  const address = new URL(pushAddress(url))
  address.username = ''
  address.password = ''
  const login = Buffer.from(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`).toString('base64')
  await notifyOutside(address.href, {
    method: isWhole ? 'PUT' : 'POST',
    body: text,
    headers: { 'content-type': TEXT, ...(username === '' ? {} : { authorization: `Basic ${login}` }) },
    signal,
  })
}

/** For the textfile collector of node_exporter, which may read at any moment: the file is whole or the one before. */
export async function writeTextfile(path: string, text: string): Promise<void> {
  const unfinished = `${path}.${process.pid}`
  await writeFile(unfinished, text, { mode: 0o644 })
  await rename(unfinished, path)
}

const LINEAGE_PATH = '/api/v1/lineage'
// A file that is full becomes the one before, which retention.logs_days removes.
const MOST_LINEAGE_BYTES = 5 * 1024 * 1024

/** Where events are posted: the address as it is, or, of a host alone, the usual place. */
function lineageAddress(url: string): string {
  const address = new URL(url)
  if (address.pathname === '/') address.pathname = LINEAGE_PATH
  return address.href
}

export async function sendLineage(
  { url, api_key, file }: Config['lineage'],
  event: LineageEvent,
  signal: AbortSignal,
): Promise<void> {
  const headers = api_key === undefined ? {} : { authorization: `Bearer ${api_key}` }
  const sent = [
    ...(url === undefined ? [] : [notifyOutside(lineageAddress(url), { json: event, headers, signal })]),
    ...(file === undefined ? [] : [appendEvent(file, event)]),
  ]
  await Promise.all(sent)
}

async function appendEvent(file: string, event: LineageEvent): Promise<void> {
  const size = await stat(file).then(
    (found) => found.size,
    () => 0,
  )
  if (size > MOST_LINEAGE_BYTES) await rename(file, `${file}.1`)
  await appendFile(file, `${JSON.stringify(event)}\n`)
}
