import { expect, test } from '@jest/globals'
import fc from 'fast-check'
import { addDays, countDays, type Day, daysIn, type Range } from '../src/core/day.ts'
import { Density } from '../src/sync/plan/density.ts'
import { WindowFeed } from '../src/sync/plan/window-feed.ts'

/* The feed of windows against any service: every due day is read once to its end, whatever happens on the way. */

const TODAY = '2026-06-30'
const FIRST = '2026-01-01'

/** What a simulated service does with a window. */
type Step = 'answer' | 'refuse' | 'fail'

test('every due day ends up read or failed exactly once, however windows split, shorten or fail', () => {
  fc.assert(
    fc.property(
      fc.uniqueArray(fc.integer({ min: 0, max: 170 }), { maxLength: 120 }),
      fc.array(fc.integer({ min: 0, max: 400 }), { minLength: 171, maxLength: 171 }),
      fc.integer({ min: 50, max: 1000 }),
      fc.option(fc.integer({ min: 1, max: 60 }), { nil: undefined }),
      fc.infiniteStream(fc.constantFrom<Step>('answer', 'answer', 'answer', 'answer', 'fail')),
      fc.integer({ min: 1, max: 6 }),
      (offsets, rows, pageLimit, longest, steps, concurrency) => {
        const due = offsets.map((offset) => addDays(FIRST, offset))
        const rowsOf = (day: Day) => rows[countDays({ from: FIRST, to: day }) - 1]!
        const feed = new WindowFeed(due, new Density([], TODAY), () => pageLimit)
        const ended = new Map<Day, number>()
        const end = (range: Range) => {
          for (const day of daysIn(range)) ended.set(day, (ended.get(day) ?? 0) + 1)
        }
        const inFlight: Range[] = []
        for (let guard = 0; guard < 10_000; guard++) {
          while (inFlight.length < concurrency) {
            const range = feed.next()
            if (range === undefined) break
            inFlight.push(range)
          }
          const range = inFlight.shift()
          if (range === undefined) break
          const days = daysIn(range)
          const count = days.reduce((sum, day) => sum + rowsOf(day), 0)
          if (longest !== undefined && days.length > longest) feed.shorten(range)
          else if (steps.next().value === 'fail') {
            feed.fail(range, false)
            end(range)
          } else if (count >= pageLimit && days.length > 1) {
            feed.split(range)
          } else {
            feed.density.learn(range, new Map(days.map((day) => [day, rowsOf(day)])))
            feed.markLoaded()
            end(range)
          }
        }
        expect(feed.isExhausted).toBe(true)
        expect([...ended.keys()].sort()).toEqual([...due].sort())
        expect([...ended.values()].every((times) => times === 1)).toBe(true)
      },
    ),
    { numRuns: 300, seed: 11 },
  )
})

test('what was not handed out is given back whole, and nothing more', () => {
  fc.assert(
    fc.property(fc.uniqueArray(fc.integer({ min: 0, max: 170 })), fc.integer({ min: 0, max: 5 }), (offsets, taken) => {
      const due = offsets.map((offset) => addDays(FIRST, offset))
      const known = due.map((date) => ({ date, rows: 10, state: 'read' as const, readAt: new Date(0) }))
      const feed = new WindowFeed(due, new Density(known, TODAY), () => 100)
      const handedOut: Day[] = []
      for (let step = 0; step < taken; step++) {
        const range = feed.next()
        if (range !== undefined) handedOut.push(...daysIn(range))
      }
      const left = feed.takeRest().flatMap(daysIn)
      expect([...handedOut, ...left].sort()).toEqual([...due].sort())
      expect(feed.next()).toBeUndefined()
    }),
    { numRuns: 200, seed: 12 },
  )
})
