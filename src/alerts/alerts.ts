import { setTimeout as delay } from 'node:timers/promises'
import type { Clock } from '../core/day.ts'
import { messageOf, TransientError } from '../core/errors.ts'
import type { Log } from '../core/logger.ts'
import type { Redactor } from '../core/redactor.ts'
import { forgetAlert, type OpenAlert, openAlerts, raiseAlert } from '../ledger/alerts.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { Condition, Finding, Findings } from './findings.ts'
import { type Message, postMessage, webhookFailure } from './webhook.ts'

export interface AlertOptions {
  /** Without one nobody is told, and nothing is remembered. */
  webhookUrl: string | undefined
  /** Runs work with the ledger. It may fail or hang: people are told all the same. */
  ledger: <T>(work: (warehouse: Warehouse) => Promise<T>) => Promise<T>
  log: Log
  redactor: Redactor
  clock: Clock
  /** Aborted when the program is to end: nobody is told any more. */
  signal?: AbortSignal
}

/** What people were told and is not over yet. */
interface Told extends OpenAlert {
  /** False where the ledger does not know of it yet. */
  saved: boolean
}

// The most that telling takes, whatever webhook and database do.
const TELL_MS = 10_000
const LEDGER_MS = 3000

/**
 * Tells people through a webhook, once when something goes wrong and once when it is over. The ledger remembers what they
 * were told, so that of several processes one tells; while the database is away, this process remembers alone and makes
 * the ledger agree later. It never throws, and who does not wait for it is not held up.
 */
export class Alerts {
  private readonly told = new Map<string, Told>()
  /** Over, though the ledger does not know it yet. */
  private readonly over = new Set<string>()
  /** What the webhook did not take. */
  private readonly unsent = new Map<Condition, Finding | undefined>()
  private last: Promise<void> = Promise.resolve()
  private ledgerIsAway = false

  constructor(private readonly options: AlertOptions) {}

  /** Oldest first. */
  get open(): OpenAlert[] {
    return [...this.told.values()]
      .map(({ condition, text, members, raised_at }) => ({ condition, text, members, raised_at }))
      .sort((a, b) => a.raised_at.getTime() - b.raised_at.getTime())
  }

  /** Compares with what people were told, and tells them what is new and what is over. */
  tell(findings: Findings): Promise<void> {
    return this.inTurn(async (signal) => {
      for (const [condition, finding] of Object.entries(findings) as [Condition, Finding | undefined][]) {
        await this.tellOne(condition, finding, signal)
      }
    })
  }

  /** Tries again what the webhook did not take. */
  tellUnsent(): Promise<void> {
    return this.unsent.size === 0 ? Promise.resolve() : this.tell(Object.fromEntries(this.unsent))
  }

  /** Makes the ledger agree with what people were told while it was away, and learns what others told them. */
  reconcile(): Promise<void> {
    return this.inTurn(async () => {
      const rows = await this.inLedger(async (warehouse) => {
        for (const condition of this.over) await forgetAlert(warehouse, condition)
        for (const { condition, text, members, raised_at, saved } of this.told.values())
          if (!saved) await raiseAlert(warehouse, condition, text, members, raised_at)
        return openAlerts(warehouse)
      }).catch(() => undefined)
      if (rows === undefined) return
      this.over.clear()
      this.told.clear()
      for (const row of rows) this.told.set(row.condition, { ...row, saved: true })
    })
  }

  /** Once everything that was begun is told. */
  settled(): Promise<void> {
    return this.last
  }

  /** One after the other: two that notice the same at once would both tell. */
  private inTurn(work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    const { signal, log } = this.options
    const turn = async () => {
      const limit = AbortSignal.timeout(TELL_MS)
      this.ledgerIsAway = false
      await work(signal === undefined ? limit : AbortSignal.any([limit, signal]))
    }
    this.last = this.last.then(turn).catch((error: unknown) => {
      log.warn({ reason: messageOf(error) }, 'people could not be told')
    })
    return this.last
  }

  private async tellOne(condition: Condition, finding: Finding | undefined, signal: AbortSignal): Promise<void> {
    if (this.options.webhookUrl === undefined) return
    try {
      if (finding === undefined) await this.clear(condition, signal)
      else await this.raise(condition, finding, signal)
      this.unsent.delete(condition)
    } catch (error) {
      this.unsent.set(condition, finding)
      this.options.log.warn({ condition, reason: webhookFailure(error) }, 'the webhook failed')
    }
  }

  private async raise(condition: Condition, { text, members }: Finding, signal: AbortSignal): Promise<void> {
    const known = this.told.get(condition)
    const isKnown = known !== undefined && members.every((member) => known.members.includes(member))
    let saved = true
    const news = await this.inLedger(async (warehouse) => {
      if (this.over.has(condition)) await forgetAlert(warehouse, condition)
      return raiseAlert(warehouse, condition, text, members)
    }).catch(() => {
      saved = false
      return !isKnown
    })
    // People were told while the ledger was away.
    const wasTold = isKnown && !known.saved
    if (news && !wasTold) {
      try {
        await this.send({ text: `visibility-sync: ${text}`, event: 'raised', condition, detail: text }, signal)
      } catch (error) {
        // Told again at the next look, where it is still so.
        this.told.delete(condition)
        if (saved) await this.inLedger((warehouse) => forgetAlert(warehouse, condition)).catch(() => {})
        throw error
      }
      this.options.log.info({ condition }, 'alert sent')
    }
    this.over.delete(condition)
    this.told.set(condition, {
      condition,
      text: news || known === undefined ? text : known.text,
      members: [...new Set([...(known?.members ?? []), ...members])],
      raised_at: known?.raised_at ?? this.options.clock(),
      saved,
    })
  }

  private async clear(condition: Condition, signal: AbortSignal): Promise<void> {
    const known = this.told.get(condition)
    const found = await this.inLedger(openAlerts).then(
      (rows) => ({ there: true, alert: rows.find((row) => row.condition === condition) }),
      () => ({ there: false, alert: known }),
    )
    // What the ledger once knew and does not know any more, another process has told.
    const alert = found.alert ?? (known?.saved === false ? known : undefined)
    if (alert === undefined || this.over.has(condition)) {
      this.told.delete(condition)
      return
    }
    const { text: detail, raised_at } = alert
    const since = raised_at.toISOString()
    await this.send({ text: `visibility-sync: over: ${detail}`, event: 'cleared', condition, detail, since }, signal)
    this.told.delete(condition)
    this.over.add(condition)
    this.options.log.info({ condition }, 'alert cleared')
    if (!found.there) return
    await this.inLedger((warehouse) => forgetAlert(warehouse, condition)).then(
      () => this.over.delete(condition),
      () => {},
    )
  }

  private send(message: Message, signal: AbortSignal): Promise<void> {
    return postMessage(this.options.webhookUrl!, this.options.redactor.value(message), signal)
  }

  /** With a limit, because a database that is lost in the network does not even say no; and once in a turn. */
  private async inLedger<T>(work: (warehouse: Warehouse) => Promise<T>): Promise<T> {
    if (this.ledgerIsAway) throw new TransientError('the ledger does not answer')
    const waiting = new AbortController()
    const limit = delay(LEDGER_MS, undefined, waiting).then(() => {
      throw new TransientError('the ledger does not answer')
    })
    try {
      return await Promise.race([this.options.ledger(work), limit])
    } catch (error) {
      this.ledgerIsAway = true
      throw error
    } finally {
      waiting.abort()
    }
  }
}
