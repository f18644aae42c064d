import { describe, expect, test } from '@jest/globals'
import { type AlertState, afterEnd, afterQuiet, afterTrouble, merged, wasSent } from '../src/ledger/alert-policy.ts'

const QUIET_MS = 10 * 60_000
/** So many minutes after the first alert. */
const at = (minutes: number) => new Date(Date.UTC(2026, 3, 1) + minutes * 60_000)

const trouble = (known: AlertState | undefined, minutes: number, members: string[], over: string[] = []) =>
  afterTrouble(known, { condition: 'held', text: `at ${minutes}`, members, over }, at(minutes), QUIET_MS)

/** An alert that was sent at once. */
const sent = (changes: Partial<AlertState> = {}): AlertState => ({
  ...{ condition: 'held', text: 'at 0', members: ['a'], raised_at: at(0), told_at: at(0), is_told: true },
  ...{ cleared_at: null, ...changes },
})

describe('trouble', () => {
  test('is sent at once', () => {
    expect(trouble(undefined, 0, ['a'])).toEqual({ send: true, state: sent() })
  })

  test('that is known already is not sent again, and keeps the text that was sent', () => {
    expect(trouble(sent(), 60, ['a'])).toEqual({ send: false, state: sent() })
    expect(trouble(sent({ members: ['a', 'b'] }), 60, ['b'])).toEqual({
      send: false,
      state: sent({ members: ['a', 'b'] }),
    })
  })

  test('of a new member is sent after the quiet period, with all members since the first alert', () => {
    expect(trouble(sent(), 10, ['b'])).toEqual({
      send: true,
      state: sent({ text: 'at 10', members: ['a', 'b'], told_at: at(10) }),
    })
  })

  test('of a new member in the quiet period is collected, and sent at its end', () => {
    const collected = sent({ text: 'at 9', members: ['a', 'b'], is_told: false })
    expect(trouble(sent(), 9, ['a', 'b'])).toEqual({ send: false, state: collected })
    expect(afterQuiet(collected, at(9), QUIET_MS)).toEqual({ send: false, state: collected })
    const told = { ...collected, told_at: at(10), is_told: true }
    expect(afterQuiet(collected, at(10), QUIET_MS)).toEqual({ send: true, state: told })
    expect(afterQuiet(told, at(30), QUIET_MS)).toEqual({ send: false, state: told })
    expect(trouble(collected, 11, ['a'])).toMatchObject({ send: true, state: { text: 'at 11', is_told: true } })
  })

  test('that was not sent, because the channel refused it, is sent again', () => {
    const refused = sent({ told_at: null, is_told: false })
    expect(trouble(refused, 1, ['a'])).toMatchObject({ send: true, state: { raised_at: at(0), told_at: at(1) } })
    expect(afterQuiet(refused, at(1), QUIET_MS)).toMatchObject({ send: true, state: { told_at: at(1) } })
  })

  test('forgets members that are over, and is news if they come back', () => {
    const { state, send } = trouble(sent({ members: ['a', 'b'] }), 20, ['b'], ['a'])
    expect([send, state!.members]).toEqual([false, ['b']])
    expect(trouble(state, 30, ['a'])).toMatchObject({ send: true, state: { members: ['b', 'a'] } })
  })

  test('after the end is a new alert, which waits for the end of the quiet period', () => {
    const ended = sent({ members: ['a'], told_at: at(20), cleared_at: at(20) })
    expect(trouble(ended, 25, ['b'])).toEqual({
      send: false,
      state: sent({ text: 'at 25', members: ['b'], raised_at: at(25), told_at: at(20), is_told: false }),
    })
    expect(trouble(ended, 30, ['a'])).toMatchObject({ send: true, state: { raised_at: at(30), cleared_at: null } })
  })
})

test('nothing is sent at the end of a quiet period for what is unknown or over', () => {
  expect(afterQuiet(undefined, at(60), QUIET_MS)).toEqual({ send: false, state: undefined })
  const over = sent({ is_told: false, cleared_at: at(5) })
  expect(afterQuiet(over, at(60), QUIET_MS)).toEqual({ send: false, state: over })
})

describe('the end', () => {
  test('is sent once no member is left', () => {
    const two = sent({ members: ['a', 'b'] })
    expect(afterEnd(two, ['a', 'c'], at(5))).toEqual({ send: false, state: sent({ members: ['b'] }) })
    expect(afterEnd(two, ['b', 'a'], at(5))).toEqual({
      send: true,
      state: { ...two, told_at: at(5), cleared_at: at(5) },
    })
    expect(afterEnd(two, 'all', at(5))).toMatchObject({ send: true, state: { cleared_at: at(5) } })
  })

  test('is not sent twice, nor of what is unknown', () => {
    const over = sent({ cleared_at: at(5) })
    expect(afterEnd(over, 'all', at(9))).toEqual({ send: false, state: over })
    expect(afterEnd(undefined, 'all', at(9))).toEqual({ send: false, state: undefined })
  })

  test('is not sent if the beginning was not, and leaves the quiet period as it was', () => {
    const collected = sent({ raised_at: at(5), told_at: at(2), is_told: false })
    expect(wasSent(collected)).toBe(false)
    expect(afterEnd(collected, 'all', at(6))).toEqual({ send: false, state: { ...collected, cleared_at: at(6) } })
    expect(wasSent(sent({ told_at: null }))).toBe(false)
    // Sent, but not with all its members.
    expect(afterEnd(sent({ is_told: false }), 'all', at(6)).send).toBe(true)
  })
})

describe('what this process knows and what the ledger knows', () => {
  test('are one alert with all members since the earlier one, if both are open', () => {
    const ledger = sent({ members: ['a', 'b'], raised_at: at(0), is_told: false })
    const own = sent({ text: 'own', members: ['b', 'c'], raised_at: at(3), told_at: at(3) })
    const both = { ...own, members: ['a', 'b', 'c'], raised_at: at(0), is_told: true }
    expect(merged(ledger, own)).toEqual(both)
    expect(merged({ ...ledger, raised_at: at(4), is_told: true }, { ...own, is_told: false })).toEqual({
      ...both,
      raised_at: at(3),
    })
    expect(merged({ ...ledger, is_told: false }, { ...own, is_told: false }).is_told).toBe(false)
  })

  test('are what this process knows, if either is over', () => {
    const own = sent({ members: ['own'] })
    expect(merged(undefined, own)).toBe(own)
    expect(merged(sent({ cleared_at: at(1) }), own)).toBe(own)
    const over = sent({ cleared_at: at(1) })
    expect(merged(sent(), over)).toBe(over)
  })
})
