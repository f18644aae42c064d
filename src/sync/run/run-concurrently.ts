/** Where jobs come from. */
export interface WorkSource {
  /** The next job, or undefined if there is none now; finishing other jobs may make one. */
  next(): (() => Promise<unknown>) | undefined
}

/** Runs the jobs of all sources side by side, at most so many at once, taking turns between sources. Jobs do not throw. */
export async function runConcurrently(sources: readonly WorkSource[], concurrency: number): Promise<void> {
  const running = new Set<Promise<unknown>>()
  let turn = 0
  for (;;) {
    while (running.size < concurrency) {
      const job = nextWork()
      if (job === undefined) break
      const promise: Promise<unknown> = job().finally(() => running.delete(promise))
      running.add(promise)
    }
    if (running.size === 0) return
    await Promise.race(running)
  }

  function nextWork(): (() => Promise<unknown>) | undefined {
    for (let step = 0; step < sources.length; step++) {
      const index = (turn + step) % sources.length
      const job = sources[index]!.next()
      if (job === undefined) continue
      turn = index + 1
      return job
    }
    return undefined
  }
}
