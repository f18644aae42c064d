import type { DayState } from '../../ledger/days.ts'
import type { Action } from '../../warehouse/load/window-effect.ts'

/*
 * The decision on one day of one stream. It depends on the facts below and on nothing else: not on other days, not on earlier runs.
 */

/** How the rows that an answer has of a day compare with the control totals of the day. */
export type Comparison =
  | 'adds up'
  /** Or its control totals are in review. */
  | 'differs'
  /** Three proven readings of chats have the same number, which is not that of the service's own count. */
  | 'agreed'
  /** The control totals of the day were not read, or changed after the comparison. */
  | 'unknown'
  /** Nothing can be compared: the page was proven instead. */
  | 'none'

export interface DayFacts {
  comparison: Comparison
  /** Most rows name prompts that the project does not have. */
  isForeign: boolean
  /** The day has more than the totals allow, in a report whose rows overlap. */
  exceedsTotals: boolean
  /** Most of the day would vanish: of its control totals or, where nothing is compared, of its rows. */
  vanishes: boolean
  acceptsDeletes: boolean
  /** The service may still write the day. */
  isOpen: boolean
  /** Rows of the day were rejected, and not dismissed. */
  hasRejects: boolean
  /** The table has rows of the day. */
  hasRows: boolean
}

export interface Verdict {
  action: Action
  state: DayState
}

export interface DayRule extends Verdict {
  /** The rule in words, as the documentation shows it. */
  when: string
  applies(facts: DayFacts): boolean
}

/** The first rule that applies decides. */
export const DAY_RULES: readonly DayRule[] = [
  {
    when: 'most rows name prompts that the project does not have, and nobody accepted it',
    applies: ({ isForeign, acceptsDeletes }) => isForeign && !acceptsDeletes,
    action: 'keep',
    state: 'differs',
  },
  {
    when: 'most of the day would vanish, and nobody accepted it',
    applies: ({ vanishes, acceptsDeletes }) => vanishes && !acceptsDeletes,
    action: 'keep',
    state: 'vanishing',
  },
  {
    when: 'its control totals are not known',
    applies: ({ comparison }) => comparison === 'unknown',
    action: 'add',
    state: 'changed',
  },
  {
    when: 'it differs, and the service may still write it',
    applies: ({ comparison, isOpen }) => comparison === 'differs' && isOpen,
    action: 'add',
    state: 'open',
  },
  {
    when: 'it differs, and rows of it are stored or it has more than the totals allow',
    applies: ({ comparison, hasRows, exceedsTotals }) => comparison === 'differs' && (hasRows || exceedsTotals),
    action: 'keep',
    state: 'differs',
  },
  { when: 'it differs', applies: ({ comparison }) => comparison === 'differs', action: 'add', state: 'differs' },
  { when: 'rows of it were rejected', applies: ({ hasRejects }) => hasRejects, action: 'add', state: 'rejects' },
  { when: 'otherwise', applies: () => true, action: 'replace', state: 'settled' },
]

export function judgeDay(facts: DayFacts): Verdict {
  const { action, state } = DAY_RULES.find(({ applies }) => applies(facts))!
  return { action, state }
}
