import { Alerts } from '../alerts/alerts.ts'
import { type Findings, findingOfHeld, findingsOfRun } from '../alerts/findings.ts'
import { readHeld } from '../ledger/status.ts'
import type { Open } from '../session/open-services.ts'
import type { RunReport } from '../sync/run/report.ts'
import type { Session } from './session.ts'

const MOST_HELD = 1000

/** Tells people how a run of a command that ends went, and what is held now. It comes after the result and cannot change it. */
export async function tellOfRun(session: Session, open: Open, report: RunReport): Promise<void> {
  const { config, log, clock, signal } = session
  if (config.alerts.webhook_url === undefined) return
  const alerts = new Alerts({
    webhookUrl: config.alerts.webhook_url,
    log,
    redactor: config.redactor,
    clock,
    signal,
    ledger: (work) => work(open.warehouse),
  })
  await alerts.tell(findingsOfRun(report))
  await alerts.tell(await heldNow(open, report))
}

/** What the ledger says; where it cannot be asked, what the run held itself. */
async function heldNow({ warehouse }: Open, report: RunReport): Promise<Findings> {
  try {
    return { held: findingOfHeld((await readHeld(warehouse, MOST_HELD)).ranges) }
  } catch {
    const held = findingOfHeld(report.streams.filter((stream) => stream.held.length > 0))
    return held === undefined ? {} : { held }
  }
}
