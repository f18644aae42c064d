import { notifyOutside } from '../core/outside.ts'
import { clip } from '../core/text.ts'

export type Signal = 'start' | 'success' | 'fail'

const LONGEST_REASON = 500

/** As healthchecks services have it: …/start, the address itself, …/fail. Parameters of the address stay. */
export function pingAddress(url: string, what: Signal): string {
  const address = new URL(url)
  if (what !== 'success') address.pathname = `${address.pathname.replace(/\/+$/, '')}/${what}`
  return address.href
}

/** Tells a dead man's switch. A run that never says how it ended is noticed there. */
export async function ping(url: string, what: Signal, signal: AbortSignal, reason?: string): Promise<void> {
  const address = pingAddress(url, what)
  if (what === 'fail') await notifyOutside(address, { text: clip(reason ?? '', LONGEST_REASON), signal })
  else await notifyOutside(address, { method: 'GET', signal })
}
