import { readFileSync } from 'node:fs'
import { describe, expect, test } from '@jest/globals'
import { type Comparison, DAY_RULES, type DayFacts, judgeDay } from '../src/sync/reconcile/judge-day.ts'

const COMPARISONS: Comparison[] = ['adds up', 'differs', 'agreed', 'unknown', 'none']
const FLAGS = [
  'isForeign',
  'exceedsTotals',
  'vanishes',
  'acceptsDeletes',
  'isOpen',
  'hasRejects',
  'hasRows',
] as const satisfies (keyof DayFacts)[]

/** Every combination of facts. */
const ALL: DayFacts[] = COMPARISONS.flatMap((comparison) =>
  Array.from({ length: 2 ** FLAGS.length }, (_, bits) => {
    const flags = Object.fromEntries(FLAGS.map((name, at) => [name, (bits & (1 << at)) !== 0]))
    return { comparison, ...flags } as unknown as DayFacts
  }),
)

/** The combinations of which something is not true. */
const violations = (isTrue: (facts: DayFacts, verdict: ReturnType<typeof judgeDay>) => boolean) =>
  ALL.filter((facts) => !isTrue(facts, judgeDay(facts)))

describe('a day', () => {
  test('loses rows only to an answer that adds up or was proven whole, has no rejects, and is not of another project, unless somebody accepts that', () => {
    const mayDelete = ({ comparison, hasRejects, isForeign, acceptsDeletes }: DayFacts) =>
      ['adds up', 'agreed', 'none'].includes(comparison) && !hasRejects && (!isForeign || acceptsDeletes)
    expect(violations((facts, { action }) => action !== 'replace' || mayDelete(facts))).toEqual([])
  })

  test('is settled only if it was replaced, so it never differs and never has rejects', () => {
    expect(violations((_, { action, state }) => (state === 'settled') === (action === 'replace'))).toEqual([])
  })

  test('keeps its rows while most of it would vanish, until somebody accepts it', () => {
    expect(
      violations(({ vanishes, acceptsDeletes }, { action }) => !vanishes || acceptsDeletes || action === 'keep'),
    ).toEqual([])
    expect(violations(({ acceptsDeletes }, { state }) => !acceptsDeletes || state !== 'vanishing')).toEqual([])
  })

  test('leaves every state by a right answer alone, or by accepting what vanishes', () => {
    const right: DayFacts = {
      ...{ comparison: 'adds up', isForeign: false, exceedsTotals: false, vanishes: false },
      ...{ acceptsDeletes: false, isOpen: false, hasRejects: false, hasRows: true },
    }
    expect(judgeDay(right)).toEqual({ action: 'replace', state: 'settled' })
    expect(judgeDay({ ...right, vanishes: true, acceptsDeletes: true })).toEqual({
      action: 'replace',
      state: 'settled',
    })
  })

  test('that differs is stored only if nothing is stored yet and it is within the totals, or the service may still write it', () => {
    const mayStore = ({ hasRows, exceedsTotals, isOpen }: DayFacts) => isOpen || !(hasRows || exceedsTotals)
    expect(
      violations((facts, { action }) => facts.comparison !== 'differs' || action === 'keep' || mayStore(facts)),
    ).toEqual([])
  })

  test('is judged by rules each of which applies to some facts before any other does', () => {
    const first = new Set(ALL.map((facts) => DAY_RULES.findIndex(({ applies }) => applies(facts))))
    expect([...first].sort()).toEqual(DAY_RULES.map((_, index) => index))
  })
})

test('the documentation shows the rules as they are', () => {
  const page = readFileSync(new URL('../docs/explanation/completeness.md', import.meta.url), 'utf8')
  const shown = [...page.matchAll(/^\| (.+?) \| (replace|add|keep) \| (\w+) \|$/gm)].map(([, when, action, state]) => {
    return { when, action, state }
  })
  // People know such a day as held.
  const named = DAY_RULES.map(({ when, action, state }) => ({
    when,
    action,
    state: state.replace('vanishing', 'held'),
  }))
  expect(shown).toEqual(named)
})
