import type { Monotonic } from '../core/monotonic.ts'

export interface CachedOptions {
  monotonic: Monotonic
  /** How long a value is good for, from when it was there. */
  freshMs: number
  /** How many keys are kept; the one that was asked for longest ago makes room. */
  most: number
}

interface Entry<T> {
  value: Promise<T>
  /** Undefined while it is being worked out. */
  doneAt: number | undefined
  failed: boolean
}

// Those who ask for what just failed get the same answer, so that many who ask do not make it worse.
const FAILED_MS = 500

/** What many look at is worked out once: those who ask meanwhile, or soon after, get the same value. */
export class Cached<T> {
  private readonly entries = new Map<string, Entry<T>>()

  constructor(private readonly options: CachedOptions) {}

  get(key: string, read: () => Promise<T>): Promise<T> {
    const known = this.entries.get(key)
    this.entries.delete(key)
    const entry = known !== undefined && this.isGood(known) ? known : this.begin(read)
    this.entries.set(key, entry)
    for (const oldest of this.entries.keys()) {
      if (this.entries.size <= this.options.most) break
      this.entries.delete(oldest)
    }
    return entry.value
  }

  get size(): number {
    return this.entries.size
  }

  private isGood({ doneAt, failed }: Entry<T>): boolean {
    const { monotonic, freshMs } = this.options
    return doneAt === undefined || monotonic() - doneAt < (failed ? FAILED_MS : freshMs)
  }

  private begin(read: () => Promise<T>): Entry<T> {
    const entry: Entry<T> = { value: read(), doneAt: undefined, failed: false }
    const done = (failed: boolean) => () => {
      entry.doneAt = this.options.monotonic()
      entry.failed = failed
    }
    entry.value.then(done(false), done(true))
    return entry
  }
}
