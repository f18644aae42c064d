import { isIPv6 } from 'node:net'
import type { Monotonic } from '../core/monotonic.ts'

const WINDOW_MS = 60_000
const MOST_OF_ONE = 5
const MOST_OF_ALL = 60
const MOST_ADDRESSES = 1000

/**
 * Failed attempts to show the token, of the last minute. Who failed too often waits, and does not learn whether the next
 * guess is right. All addresses together have a limit, too, since one guesser may have many.
 */
export class Attempts {
  private readonly failures = new Map<string, number[]>()
  private all: number[] = []

  constructor(private readonly monotonic: Monotonic) {}

  /** The seconds to wait before another attempt; 0 if one may be made. */
  waitSeconds(address: string): number {
    const now = this.monotonic()
    const recent = (times: readonly number[]) => times.filter((at) => now - at < WINDOW_MS)
    const own = recent(this.failures.get(groupOf(address)) ?? [])
    this.all = recent(this.all)
    const ends = [
      ...(own.length >= MOST_OF_ONE ? [own.at(-MOST_OF_ONE)! + WINDOW_MS] : []),
      ...(this.all.length >= MOST_OF_ALL ? [this.all.at(-MOST_OF_ALL)! + WINDOW_MS] : []),
    ]
    return ends.length === 0 ? 0 : Math.max(1, Math.ceil((Math.max(...ends) - now) / 1000))
  }

  failed(address: string): void {
    const group = groupOf(address)
    const times = [...(this.failures.get(group) ?? []), this.monotonic()].slice(-MOST_OF_ONE)
    this.failures.delete(group)
    this.failures.set(group, times)
    this.all.push(this.monotonic())
    for (const oldest of this.failures.keys()) {
      if (this.failures.size <= MOST_ADDRESSES) break
      this.failures.delete(oldest)
    }
  }
}

/** Who has one address of IPv6 has all of its network, of 64 bits. */
function groupOf(address: string): string {
  if (!isIPv6(address) || address.includes('.')) return address
  const [head = '', tail = ''] = address.split('::')
  const first = head.split(':').filter((part) => part !== '')
  const last = tail.split(':').filter((part) => part !== '')
  const zeros = address.includes('::') ? Array.from({ length: 8 - first.length - last.length }, () => '0') : []
  return [...first, ...zeros, ...last].slice(0, 4).join(':')
}
