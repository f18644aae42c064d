import { rename, writeFile } from 'node:fs/promises'
import { notifyOutside } from '../core/outside.ts'

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
    text,
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
