import { appendFile, rename, stat } from 'node:fs/promises'
import type { Config } from '../../core/config/load.ts'
import { notifyOutside } from '../../core/outside.ts'
import type { LineageEvent } from './lineage-event.ts'

const ENDPOINT = '/api/v1/lineage'
// A file that is full becomes the one before, which retention.logs_days removes.
const MOST_BYTES = 5 * 1024 * 1024

/** Where events are posted: the address as it is, or, of a host alone, the usual place. */
export function lineageAddress(url: string): string {
  const address = new URL(url)
  if (address.pathname === '/') address.pathname = ENDPOINT
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

/** One event a line. */
async function appendEvent(file: string, event: LineageEvent): Promise<void> {
  const size = await stat(file).then(
    (found) => found.size,
    () => 0,
  )
  if (size > MOST_BYTES) await rename(file, `${file}.1`)
  await appendFile(file, `${JSON.stringify(event)}\n`)
}
