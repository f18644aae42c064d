import type { Observer } from '../sync/run/run-sync.ts'

/** One observer that passes everything on to several. */
export function observers(...list: readonly Observer[]): Observer {
  const each = (call: (one: Observer) => void) => {
    for (const one of list) call(one)
  }
  return {
    started: (run) => each((one) => one.started?.(run)),
    planned: (totals) => each((one) => one.planned?.(totals)),
    advanced: (step) => each((one) => one.advanced?.(step)),
    asked: (status) => each((one) => one.asked?.(status)),
  }
}
