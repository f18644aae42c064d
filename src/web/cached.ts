import type { Monotonic } from '../core/monotonic.ts'

export interface CachedOptions {
  monotonic: Monotonic
  /** How long a value is good for, from when it was there. */
  freshMs: number
  /** How many keys are kept; the one that was asked for longest ago makes room. */
  most: number
  /** If a value cannot be refreshed because of such an error, the last one is served up to this age. */
  stale?: { ms: number; on: (error: unknown) => boolean }
}

interface Entry<T> {
  value: Promise<T>
  /** The last value that there was, and since when. */
  good: { value: T; at: number } | undefined
  /** Undefined while it is being worked out. */
  doneAt: number | undefined
  /** How long that took. */
  tookMs: number
  moment: string
  failed: boolean
}

// Those who ask for what just failed get the same answer, so that many who ask do not make it worse.
const FAILED_MS = 500

// A value that is costly to make is kept for so long that making it takes at most this share of the time.
const SHARE = 0.01
// But no longer than this.
const LONGEST_MS = 10_000

/** What many look at is worked out once: those who ask meanwhile, or soon after, get the same value. */
export class Cached<T> {
  private readonly entries = new Map<string, Entry<T>>()

  constructor(private readonly options: CachedOptions) {}

  /** A value of another moment is made anew, but kept for when that fails. */
  get(key: string, read: () => Promise<T>, moment = ''): Promise<T> {
    const known = this.entries.get(key)
    this.entries.delete(key)
    const entry = known !== undefined && this.isGood(known, moment) ? known : this.begin(read, known?.good, moment)
    this.entries.set(key, entry)
    for (const oldest of this.entries.keys()) {
      if (this.entries.size <= this.options.most) break
      this.entries.delete(oldest)
    }
    return entry.value
  }

  /** What is known is read anew. */
  forget(): void {
    this.entries.clear()
  }

  get size(): number {
    return this.entries.size
  }

  private isGood({ doneAt, failed, tookMs, moment: ofMoment }: Entry<T>, moment: string): boolean {
    const { monotonic, freshMs } = this.options
    if (doneAt === undefined) return true
    if (!failed && ofMoment !== moment) return false
    const goodMs = failed ? FAILED_MS : Math.max(freshMs, Math.min(tookMs / SHARE, LONGEST_MS))
    return monotonic() - doneAt < goodMs
  }

  private begin(read: () => Promise<T>, good: Entry<T>['good'], moment: string): Entry<T> {
    const { monotonic, stale } = this.options
    const startedAt = monotonic()
    const done = async () => {
      try {
        const value = await read()
        entry.good = { value, at: monotonic() }
        return value
      } catch (error) {
        entry.failed = true
        if (good === undefined || !stale?.on(error) || monotonic() - good.at > stale.ms) throw error
        return good.value
      } finally {
        entry.doneAt = monotonic()
        entry.tookMs = entry.doneAt - startedAt
      }
    }
    const entry: Entry<T> = {
      value: Promise.resolve(undefined as T),
      good,
      doneAt: undefined,
      tookMs: 0,
      moment,
      failed: false,
    }
    entry.value = done()
    entry.value.catch(() => {})
    return entry
  }
}
