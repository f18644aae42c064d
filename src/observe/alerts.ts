import type { Clock } from '../core/day.ts'
import { messageOf, OverloadedError, TimeLimitError } from '../core/errors.ts'
import type { Log } from '../core/logger.ts'
import type { Redactor } from '../core/redactor.ts'
import { withTimeLimit } from '../core/waiting.ts'
import {
  type AlertState,
  afterEnd,
  afterQuiet,
  afterTrouble,
  changeAlert,
  type Decision,
  merged,
  type OpenAlert,
  readAlerts,
  wasSent,
} from '../ledger/alert-policy.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { type Condition, type End, type Finding, type Findings, isEnd } from './findings.ts'
import { type Channel, type Naming, type Notice, noticeOf, textOf } from './notice.ts'
import { outsideFailure } from './send.ts'

export interface AlertOptions extends Naming {
  /** Without one nothing is sent or remembered. */
  channels: readonly Channel[]
  /** In this time after a message, further findings are collected. */
  quietMs: number
  /** Runs work with the ledger, in one transaction. It may fail or hang: alerts are sent all the same. */
  ledger: <T>(work: (warehouse: Warehouse) => Promise<T>) => Promise<T>
  log: Log
  redactor: Redactor
  clock: Clock
  /** Aborted when the program is to end: nothing is sent any more. */
  signal?: AbortSignal
  ledgerMs?: number
}

type Decide = (known: AlertState | undefined) => Decision

const SEND_MS = 10_000
const LEDGER_MS = 3000

/**
 * Sends an alert once when something goes wrong and once when it is over. The ledger remembers what was sent, so
 * that of several processes only one sends it; while the database is away, this process remembers alone and makes the ledger
 * agree later. It never throws, and callers need not wait for it.
 */
export class Alerts {
  private readonly known = new Map<string, AlertState>()
  /** Conditions whose latest state is not in the ledger yet. */
  private readonly unsaved = new Set<string>()
  /** Messages that were refused, or wait for the end of a quiet period. */
  private readonly unsent = new Map<Condition, Finding | End>()
  private last: Promise<void> = Promise.resolve()
  private ledgerFailure: unknown

  constructor(private readonly options: AlertOptions) {}

  get open(): OpenAlert[] {
    return [...this.known.values()]
      .filter((alert) => alert.cleared_at === null && wasSent(alert))
      .map(({ condition, text, members, raised_at }) => ({ condition, text, members, raised_at }))
      .sort((a, b) => a.raised_at.getTime() - b.raised_at.getTime())
  }

  update(findings: Findings): Promise<void> {
    return this.inTurn(async (signal) => {
      for (const [condition, found] of Object.entries(findings) as [Condition, Finding | End][]) {
        await this.sendOne(condition, found, this.policyOf(condition, found), signal).catch(this.couldNotSend)
      }
    })
  }

  /** Tries again what was not taken, and sends what was gathered once the quiet period is over. */
  sendUnsent(): Promise<void> {
    if (this.unsent.size === 0) return Promise.resolve()
    return this.inTurn(async (signal) => {
      for (const [condition, found] of [...this.unsent]) {
        const { clock, quietMs } = this.options
        const policy: Decide = isEnd(found)
          ? this.policyOf(condition, found)
          : (known) => afterQuiet(known, clock(), quietMs)
        await this.sendOne(condition, found, policy, signal).catch(this.couldNotSend)
      }
    })
  }

  /** Writes down what was sent while the ledger was away, and reads what other processes sent. */
  reconcile(): Promise<void> {
    return this.inTurn(async () => {
      const rows = await this.inLedger(async (warehouse) => {
        for (const condition of this.unsaved) {
          await changeAlert(warehouse, condition, (known) => ({
            state: this.withUnsaved(condition, known),
            send: false,
          }))
        }
        return readAlerts(warehouse)
      }).catch(() => undefined)
      if (rows === undefined) return
      this.unsaved.clear()
      this.known.clear()
      for (const row of rows) this.known.set(row.condition, row)
    })
  }

  /** One after the other: two that notice the same at once would both send it. */
  private inTurn(work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    const { signal } = this.options
    const turn = async () => {
      const limit = AbortSignal.timeout(SEND_MS)
      this.ledgerFailure = undefined
      await work(signal === undefined ? limit : AbortSignal.any([limit, signal]))
    }
    this.last = this.last.then(turn).catch(this.couldNotSend)
    return this.last
  }

  private readonly couldNotSend = (error: unknown): void => {
    this.options.log.warn({ reason: messageOf(error) }, 'an alert could not be sent')
  }

  private policyOf(condition: Condition, found: Finding | End): Decide {
    const { clock, quietMs } = this.options
    if (isEnd(found)) return (known) => afterEnd(known, found.over, clock())
    const { members, over = [] } = found
    const trouble = { condition, text: textOf(found, this.options), members, over }
    return (known) => afterTrouble(known, trouble, clock(), quietMs)
  }

  private async sendOne(
    condition: Condition,
    found: Finding | End,
    policy: Decide,
    signal: AbortSignal,
  ): Promise<void> {
    if (this.options.channels.length === 0) return
    let before: AlertState | undefined
    this.unsent.set(condition, found)
    const { state, send } = await this.change(condition, (known) => {
      before = known
      return policy(known)
    })
    this.unsent.delete(condition)
    if (state !== undefined && state.cleared_at === null && !state.is_told) this.unsent.set(condition, found)
    if (state === undefined || !send) return
    const notice = isEnd(found)
      ? noticeOf(condition, undefined, { ...state, members: before?.members ?? [] }, this.options)
      : noticeOf(condition, found, state, this.options)
    if (await this.send(notice, signal)) {
      this.options.log.info({ condition }, isEnd(found) ? 'alert cleared' : 'alert sent')
      return
    }
    // Not sent: sent at the next look, if it is still so.
    this.unsent.set(condition, found)
    const told_at = before?.told_at ?? null
    const undone = isEnd(found) ? before : { ...state, is_told: false, told_at }
    await this.change(condition, () => ({ state: undone, send: false }))
  }

  /**
   * Decides by what the ledger knows; if it is away, by what this process knows. If it is only slow, many may be
   * sending the same just now: this process throws, and looks again later.
   */
  private async change(condition: Condition, policy: Decide): Promise<Decision> {
    let isSaved = true
    const decision = await this.inLedger((warehouse) =>
      changeAlert(warehouse, condition, (known) => policy(this.withUnsaved(condition, known))),
    ).catch((error: unknown) => {
      if (error instanceof TimeLimitError || error instanceof OverloadedError) throw error
      isSaved = false
      return policy(this.known.get(condition))
    })
    if (isSaved) this.unsaved.delete(condition)
    else if (decision.state !== undefined) this.unsaved.add(condition)
    if (decision.state !== undefined) this.known.set(condition, decision.state)
    else this.known.delete(condition)
    return decision
  }

  private withUnsaved(condition: string, known: AlertState | undefined): AlertState | undefined {
    const own = this.unsaved.has(condition) ? this.known.get(condition) : undefined
    return own === undefined ? known : merged(known, own)
  }

  private async send(notice: Notice, signal: AbortSignal): Promise<boolean> {
    const { channels, redactor, log } = this.options
    const clean = redactor.value(notice)
    const sendBy = async (channel: Channel) => {
      try {
        await channel.send(clean, signal)
        return true
      } catch (error) {
        const failed = { condition: notice.condition, channel: channel.name, reason: outsideFailure(error) }
        log.warn(failed, 'the channel did not accept an alert')
        return false
      }
    }
    return (await Promise.all(channels.map(sendBy))).includes(true)
  }

  /** With a time limit, because an unreachable database does not answer; after one failure, not again in this round. */
  private async inLedger<T>(work: (warehouse: Warehouse) => Promise<T>): Promise<T> {
    if (this.ledgerFailure !== undefined) throw this.ledgerFailure
    const late = () => new TimeLimitError('the ledger takes too long')
    try {
      return await withTimeLimit(this.options.ledgerMs ?? LEDGER_MS, this.options.ledger(work), late)
    } catch (error) {
      this.ledgerFailure = error
      throw error
    }
  }
}
