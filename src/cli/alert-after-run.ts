import type { Open } from '../app/open-services.ts'
import { TransientError } from '../core/errors.ts'
import { readHeld, readUnreconciled } from '../ledger/status.ts'
import { Alerts } from '../observe/alerts.ts'
import { channelsOf } from '../observe/channels.ts'
import { findingOfHeld, findingOfUnreconciled, findingsOfRun } from '../observe/findings.ts'
import type { RunReport } from '../sync/run/report.ts'
import { createSidePool } from '../warehouse/side-pool.ts'
import { readProjectNames } from './project-names.ts'
import type { Session } from './session.ts'

const MOST_HELD = 1000
const LEDGER = { name: 'visibility-sync alerts', connections: 1, waiting: 4, patienceMs: 3000, limitMs: 3000 }

/**
 * Sends alerts about a run of a command that ends, and about what is held or not reconciled now. It comes after the result and cannot change it.
 * Without a database, each command that fails sends its alerts anew: nothing remembers what was sent before.
 */
export async function alertAfterRun(
  session: Session,
  open: Open | undefined,
  report: RunReport,
  { coversEverything, late }: { coversEverything: boolean; late: AbortSignal },
): Promise<void> {
  const { config, log, clock, signal } = session
  const channels = channelsOf(config, open?.database.shown ?? '')
  if (channels.length === 0) return
  const pool = open === undefined ? undefined : createSidePool(open.warehouse, LEDGER)
  const names =
    open === undefined
      ? new Map<string, string>()
      : await readProjectNames(open.warehouse).catch(() => new Map<string, string>())
  const alerts = new Alerts({
    channels,
    quietMs: config.alerts.quiet_minutes * 60_000,
    pageUrl: config.alerts.page_url,
    nameOf: (id) => names.get(id) ?? id,
    log,
    redactor: config.redactor,
    clock,
    signal: AbortSignal.any([signal, late]),
    ledger: (work) => pool?.write(work) ?? Promise.reject(new TransientError('there is no database')),
  })
  try {
    await alerts.update(findingsOfRun(report, { coversEverything }))
    if (open === undefined) return
    const { warehouse } = open
    await alerts.update({
      held: findingOfHeld((await readHeld(warehouse, MOST_HELD)).ranges),
      unreconciled: findingOfUnreconciled(await readUnreconciled(warehouse)),
    })
  } finally {
    pool?.close()
  }
}
