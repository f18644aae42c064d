import { type Selectable, sql } from 'kysely'
import type { Warehouse } from '../warehouse/connect.ts'
import type { OpsTables } from '../warehouse/database.ts'

/* Whether an alert is sent now. Pure, since it is asked for the ledger and, while that is away, for memory. */

export type AlertState = Selectable<OpsTables['alerts']>
export type OpenAlert = Pick<AlertState, 'condition' | 'text' | 'members' | 'raised_at'>

export interface Decision {
  /** Undefined if nothing is known and nothing came. */
  state: AlertState | undefined
  send: boolean
}

interface Trouble extends Pick<AlertState, 'condition' | 'text'> {
  members: readonly string[]
  /** Members that resolved while others did not. */
  over: readonly string[]
}

/** An alert is sent for the first finding and for each new one. In the quiet period after a message, new findings are collected. */
export function afterTrouble(known: AlertState | undefined, found: Trouble, now: Date, quietMs: number): Decision {
  const open = known?.cleared_at === null ? known : undefined
  const before = open?.members ?? []
  const isNews = open === undefined || !open.is_told || found.members.some((member) => !before.includes(member))
  const send = isNews && !isQuiet(known, now, quietMs)
  const kept = before.filter((member) => !found.over.includes(member))
  const state = {
    condition: found.condition,
    text: isNews ? found.text : open.text,
    members: [...new Set([...kept, ...found.members])],
    raised_at: open?.raised_at ?? now,
    told_at: send ? now : (known?.told_at ?? null),
    is_told: send || !isNews,
    cleared_at: null,
  }
  return { state, send }
}

/** Collected findings are sent after the quiet period, unless they resolved. */
export function afterQuiet(known: AlertState | undefined, now: Date, quietMs: number): Decision {
  if (known === undefined || known.cleared_at !== null || known.is_told || isQuiet(known, now, quietMs))
    return { state: known, send: false }
  return { state: { ...known, told_at: now, is_told: true }, send: true }
}

/** An alert resolves if no member is left. The end is sent only if the beginning was. */
export function afterEnd(known: AlertState | undefined, over: readonly string[] | 'all', now: Date): Decision {
  if (known === undefined || known.cleared_at !== null) return { state: known, send: false }
  const members = over === 'all' ? [] : known.members.filter((member) => !over.includes(member))
  if (members.length > 0) return { state: { ...known, members }, send: false }
  const send = wasSent(known)
  return { state: { ...known, cleared_at: now, told_at: send ? now : known.told_at }, send }
}

/** True if a message was sent, perhaps without all members. */
export function wasSent({ told_at, raised_at }: AlertState): boolean {
  return told_at !== null && told_at >= raised_at
}

function isQuiet(known: AlertState | undefined, now: Date, quietMs: number): boolean {
  return known?.told_at != null && now.getTime() - known.told_at.getTime() < quietMs
}

/** Merges the ledger's state with that of this process while the ledger was away: ours wins, members are united. */
export function merged(ledger: AlertState | undefined, own: AlertState): AlertState {
  if (ledger === undefined || ledger.cleared_at !== null || own.cleared_at !== null) return own
  return {
    ...own,
    members: [...new Set([...ledger.members, ...own.members])],
    raised_at: ledger.raised_at < own.raised_at ? ledger.raised_at : own.raised_at,
    is_told: ledger.is_told || own.is_told,
  }
}

const COLUMNS = ['condition', 'text', 'members', 'raised_at', 'told_at', 'is_told', 'cleared_at'] as const

/** All that is remembered, what is over included. */
export function readAlerts({ db }: Warehouse): Promise<AlertState[]> {
  return db.selectFrom('ops.alerts').select(COLUMNS).orderBy('raised_at').execute()
}

/**
 * Changes what is known of a condition, by a decision on its present state. Needs a transaction: of many processes that
 * notice the same at once, each decides on the state that the one before it has left, so only one of them sends it.
 */
export async function changeAlert(
  { db, opsSchema, redactor }: Warehouse,
  condition: string,
  decide: (known: AlertState | undefined) => Decision,
): Promise<Decision> {
  await sql`select pg_advisory_xact_lock(hashtextextended(${`${opsSchema} alert ${condition}`}, 0))`.execute(db)
  const known = await db.selectFrom('ops.alerts').select(COLUMNS).where('condition', '=', condition).executeTakeFirst()
  const decision = decide(known)
  const { state } = decision
  if (state === undefined) return decision
  const members = sql<string[]>`${state.members}::text[]`
  const values = { ...state, condition, text: redactor.text(state.text), members }
  const insert = db.insertInto('ops.alerts').values(values)
  await insert.onConflict((conflict) => conflict.column('condition').doUpdateSet(values)).execute()
  return decision
}
