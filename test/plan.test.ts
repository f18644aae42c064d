import { describe, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { addDays, countDays, type Day, dayFromNumber, dayNumber, daysIn, isDay, type Range } from '../src/core/day.ts'
import type { FailureCode } from '../src/core/failure-code.ts'
import type { DaysByMonth, KnownDay } from '../src/ledger/days.ts'
import { endOfFailure } from '../src/queue/end-of-failure.ts'
import { Density } from '../src/sync/plan/density.ts'
import { dueDays } from '../src/sync/plan/due-days.ts'
import { planWindows, WindowFeed } from '../src/sync/plan/window-feed.ts'

const day = fc.integer({ min: dayNumber('2019-12-01'), max: dayNumber('2028-03-31') }).map(dayFromNumber)
const covered = (
  date: string,
  rows = 10,
  state: KnownDay['state'] = 'settled',
  readAt = '2030-01-01T00:00:00Z',
): KnownDay => ({ date, rows, state, readAt: new Date(readAt) })

const known = (days: KnownDay[], completeMonths: string[] = []): DaysByMonth => ({
  days,
  completeMonths: new Set(completeMonths),
})

test('leap days and year ends are days, and impossible dates are not', () => {
  expect([isDay('2024-02-29'), isDay('2000-02-29'), isDay('2025-12-31')]).toEqual([true, true, true])
  expect([
    isDay('2026-02-29'),
    isDay('1900-02-29'),
    isDay('2026-02-30'),
    isDay('2026-13-01'),
    isDay('2026-1-1'),
    isDay('2026-01-01T00:00'),
  ]).toEqual(Array(6).fill(false))
  expect(addDays('2024-02-28', 1)).toBe('2024-02-29')
  expect(addDays('2025-12-31', 1)).toBe('2026-01-01')
  expect(countDays({ from: '2024-01-01', to: '2024-12-31' })).toBe(366)
})

test('every due day lies in exactly one window, and no window leaves the range', () => {
  fc.assert(
    fc.property(
      fc.uniqueArray(day, { maxLength: 400 }),
      fc.array(fc.integer({ min: 0, max: 4000 }), { maxLength: 40 }),
      fc.integer({ min: 2, max: 10_000 }),
      (due, rows, limit) => {
        const coverage = rows.map((count, index) => covered(addDays('2019-01-01', index), count))
        const windows = planWindows(due, new Density(coverage, '2028-04-01'), {
          page_limit: limit,
          max_window_days: 100_000,
        })
        const days = windows.flatMap(daysIn)
        expect(days.sort()).toEqual([...due].sort())
        expect(windows.every(({ from, to }) => from <= to)).toBe(true)
      },
    ),
  )
})

test('due are missing days, the lookback, and days that are in review, have rejects, changed or are open', () => {
  const interest = { from: '2026-01-01', to: '2026-01-20' }
  const coverage = daysIn({ from: '2026-01-01', to: '2026-01-20' })
    .filter((date) => date !== '2026-01-03')
    .map((date) =>
      covered(
        date,
        5,
        (
          { '2026-01-05': 'vanishing', '2026-01-06': 'rejects', '2026-01-07': 'changed', '2026-01-08': 'open' } as const
        )[date] ?? 'settled',
      ),
    )
  expect(dueDays({ interest, today: '2026-02-01', lookbackDays: 2 })(known(coverage))).toEqual([
    '2026-01-03',
    '2026-01-05',
    '2026-01-06',
    '2026-01-07',
    '2026-01-08',
    '2026-01-19',
    '2026-01-20',
  ])
  expect(dueDays({ interest, today: '2026-02-01', lookbackDays: 0 })(known(coverage))).toEqual([
    '2026-01-03',
    '2026-01-05',
    '2026-01-06',
    '2026-01-07',
    '2026-01-08',
  ])
})

test('unsettled days outside of the range are due, unless they are to come', () => {
  const interest = { from: '2026-01-10', to: '2026-01-20' }
  const states = ['settled', 'open', 'changed', 'rejects', 'differs', 'vanishing'] as const
  const before = states.map((state, at) => covered(addDays('2026-01-01', at), 5, state))
  const inside = daysIn(interest).map((date) => covered(date))
  const after = [covered('2026-01-21', 5, 'changed'), covered('2026-02-01'), covered('2026-02-02', 5, 'changed')]
  const due = (today: Day) => dueDays({ interest, today, lookbackDays: 0 })(known([...before, ...inside, ...after]))
  const beforeAll = ['2026-01-02', '2026-01-03', '2026-01-04', '2026-01-05', '2026-01-06']
  expect(due('2026-03-01')).toEqual([...beforeAll, '2026-01-21', '2026-02-02'])
  expect(due('2026-02-02')).toContain('2026-02-02')
  expect(due('2026-02-01')).toEqual([...beforeAll, '2026-01-21'])
})

test('a complete month has no due day but those of the lookback', () => {
  const interest = { from: '2026-01-30', to: '2026-02-02' }
  const due = (complete: string[], lookbackDays: number) =>
    dueDays({ interest, today: '2026-02-02', lookbackDays })(known([], complete))
  expect(due([], 0)).toEqual(daysIn(interest))
  expect(due(['2026-01'], 1)).toEqual(['2026-02-01', '2026-02-02'])
  expect(due(['2026-01', '2026-02'], 3)).toEqual(['2026-01-31', '2026-02-01', '2026-02-02'])
})

test('a day that was read before it was over, or while it was young, is read once more', () => {
  const interest = { from: '2026-01-01', to: '2026-01-20' }
  const at = (readAt: string) => [covered('2026-01-01', 5, 'settled', readAt)]
  const due = (readAt: string, lookbackDays: number) =>
    dueDays({ interest: { ...interest, to: '2026-01-01' }, today: '2026-03-01', lookbackDays })(known(at(readAt)))
      .length
  expect(due('2026-01-01T23:00:00Z', 0)).toBe(1)
  expect(due('2026-01-02T00:00:01Z', 0)).toBe(0)
  const later = (readAt: string) =>
    dueDays({ interest, today: '2026-01-20', lookbackDays: 7 })(known(at(readAt))).includes('2026-01-01')
  expect(later('2026-01-05T10:00:00Z')).toBe(true)
  expect(later('2026-01-08T00:00:01Z')).toBe(false)
})

test('windows grow until an answer is nearly full, and never beyond it where days are even', () => {
  const coverage = daysIn({ from: '2026-01-01', to: '2026-01-30' }).map((date) => covered(date, 123))
  const due = daysIn({ from: '2025-01-01', to: '2025-12-31' })
  const windows = planWindows(due, new Density(coverage, '2026-02-01'), {
    page_limit: 10_000,
    max_window_days: 100_000,
  })
  expect(Math.max(...windows.map(countDays)) * 123).toBeLessThan(10_000)
  expect(windows.length).toBe(Math.ceil(365 / Math.floor(9999 / (123 * 1.01))))
})

test('one day that is known says how many more fit', () => {
  const density = new Density([covered('2026-01-01', 100)], '2026-02-01')
  expect(density.fit(daysIn({ from: '2026-01-02', to: '2026-01-10' }), 250)).toBe(2)
})

test('days that vary leave room for two standard deviations', () => {
  const density = new Density([covered('2026-01-01', 100), covered('2026-01-02', 140)], '2026-02-01')
  // 120 a day, and 28 more or less: so many days need 121.2 of each and 56.6 times the root of their number.
  const daysFor = (limit: number) => density.fit(daysIn({ from: '2026-01-03', to: '2026-01-31' }), limit)
  expect([daysFor(178), daysFor(179), daysFor(323), daysFor(324), daysFor(462), daysFor(463)]).toEqual([
    1, 1, 1, 2, 2, 3,
  ])
})

test('scattered due days share a window with the days between them, where these are no more than the due days', () => {
  const days = daysIn({ from: '2026-03-01', to: '2026-03-31' })
  const density = () =>
    new Density(
      days.map((date) => covered(date, 1)),
      '2026-04-01',
    )
  const windows = (due: Day[], bridgesGaps: boolean, limit = 10_000) => {
    const feed = new WindowFeed(due, density(), () => limit, 100, bridgesGaps)
    const found: string[] = []
    for (let window = feed.next(); window !== undefined; window = feed.next())
      found.push(`${window.from}..${window.to}`)
    return found
  }
  const due = ['2026-03-31', '2026-03-30', '2026-03-27', '2026-03-01']
  expect(windows(due, true)).toEqual(['2026-03-27..2026-03-31', '2026-03-01..2026-03-01'])
  expect(windows(due, false)).toEqual(['2026-03-30..2026-03-31', '2026-03-27..2026-03-27', '2026-03-01..2026-03-01'])
  // A page of three rows has room for two days and the days between them, but no window ends with days that are not due.
  expect(windows(due, true, 4)[0]).toBe('2026-03-30..2026-03-31')
})

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

test('days that were not handed out are returned exactly once', () => {
  fc.assert(
    fc.property(fc.uniqueArray(fc.integer({ min: 0, max: 170 })), fc.integer({ min: 0, max: 5 }), (offsets, taken) => {
      const due = offsets.map((offset) => addDays(FIRST, offset))
      const known = due.map((date) => ({ date, rows: 10, state: 'settled' as const, readAt: new Date(0) }))
      const feed = new WindowFeed(due, new Density(known, TODAY), () => 100)
      const handedOut: Day[] = []
      for (let step = 0; step < taken; step++) {
        const range = feed.next()
        if (range !== undefined) handedOut.push(...daysIn(range))
      }
      const left = feed.removeRest().flatMap(daysIn)
      expect([...handedOut, ...left].sort()).toEqual([...due].sort())
      expect(feed.next()).toBeUndefined()
    }),
    { numRuns: 200, seed: 12 },
  )
})

describe('a window that fails in a queue', () => {
  const ANSWERED = { failures: 0, statuses: { 200: 1 } as Record<string, number>, isRevoked: false }
  const SILENT = { none: 3 }

  test.each<[FailureCode, ReturnType<typeof endOfFailure>['end'], boolean]>([
    ['run-over', 'discard', false],
    ['project', 'return', true],
    ['project-down', 'return', false],
    ['service-down', 'release', true],
    ['database-away', 'release', true],
    ['refused', 'report', false],
    ['superseded', 'report', false],
    ['incomplete', 'retry', false],
    ['error', 'retry', false],
  ])('a window that fails as %s: %s', (code, end, backsOff) => {
    expect(endOfFailure(code, ANSWERED)).toEqual({ end, backsOff })
  })

  test.each<[string, FailureCode, Partial<typeof ANSWERED>, ReturnType<typeof endOfFailure>]>([
    ['at the second failure', 'transient', { failures: 1 }, { end: 'retry', backsOff: false }],
    ['at the third failure', 'transient', { failures: 2 }, { end: 'report', backsOff: false }],
    ['without any answer', 'transient', { failures: 2, statuses: SILENT }, { end: 'release', backsOff: true }],
    ['because it was taken from its worker', 'interrupted', { isRevoked: true }, { end: 'lose', backsOff: false }],
  ])('a window that fails %s', (_, code, attempt, end) => {
    expect(endOfFailure(code, { ...ANSWERED, ...attempt })).toEqual(end)
  })
})
