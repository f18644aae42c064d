/** Hands out work, one piece after the other. */
export interface WorkSupplier {
  /** The next piece, or undefined if there is none now; finishing another may make one. */
  next(): (() => Promise<unknown>) | undefined
}

/** Runs the work of all suppliers side by side, at most so many at once, taking turns between suppliers. Work does not throw. */
export async function runConcurrently(suppliers: readonly WorkSupplier[], concurrency: number): Promise<void> {
  const running = new Set<Promise<unknown>>()
  let turn = 0
  for (;;) {
    while (running.size < concurrency) {
      const work = nextWork()
      if (work === undefined) break
      const promise: Promise<unknown> = work().finally(() => running.delete(promise))
      running.add(promise)
    }
    if (running.size === 0) return
    await Promise.race(running)
  }

  function nextWork(): (() => Promise<unknown>) | undefined {
    for (let step = 0; step < suppliers.length; step++) {
      const index = (turn + step) % suppliers.length
      const work = suppliers[index]!.next()
      if (work === undefined) continue
      turn = index + 1
      return work
    }
    return undefined
  }
}
