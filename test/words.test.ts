import { afterEach, describe, expect, jest, test } from '@jest/globals'
import { lineProgress } from '../src/cli/progress.ts'
import { BACKFILL_REST, problemsOf } from '../src/web/health.ts'
import { pointsInterval } from '../src/web/insights/format.ts'
import { changeOf } from '../src/web/insights/measure-words.ts'

afterEach(() => {
  jest.useRealTimers()
})

describe('numbers in words', () => {
  test('an end of an interval that is near zero keeps its sign', () => {
    expect(pointsInterval(0.00027, 0.068)).toBe('+0.027 to +6.8')
    expect(pointsInterval(-0.0004, 0)).toBe('−0.04 to 0')
    expect(pointsInterval(-0.023, 0.041)).toBe('−2.3 to +4.1')
  })

  test('only a share is a part of its sample', () => {
    const row = { value: 1.5, sample: 40, previous_value: 1.69, previous_sample: 2013, verdict: 'no_interval' }
    expect(changeOf('position', row)).toContain('Before: 1.69 (2,013 ')
    expect(changeOf('visibility', { ...row, previous_value: 0.5 })).toContain('Before: 50 % of 2,013 answers')
  })
})

test('a backfill that did not end well is to be repeated, and a sync by a sync', () => {
  const lists = { streams: [], held: [], unreconciled: [], not_additive: [], quarantine: [], drift: [] }
  const totals = { streams: 0, held: 0, quarantine: 0, drift: 0 }
  const remedyOf = (command: string) => {
    const runs = [{ command, outcome: 'interrupted', summary: [], error: null }]
    return problemsOf({ status: { ...lists, runs, totals } as never, queue: undefined }, []).map(({ remedy }) => remedy)
  }
  expect([remedyOf('backfill'), remedyOf('sync')]).toEqual([[BACKFILL_REST], [undefined]])
})

test('a run that only asks, and loads nothing, prints how many requests it sent', () => {
  const lines: string[] = []
  jest.useFakeTimers()
  const { observer, stop } = lineProgress((line) => lines.push(line.slice(9).trim()))
  observer.planned!({ days: 7, lists: 0 })
  observer.onRequest!(200)
  observer.onRequest!(200)
  jest.advanceTimersByTime(14_000)
  expect(lines).toEqual(['to read: 7 stream-days'])
  jest.advanceTimersByTime(16_000)
  expect(lines.slice(1)).toEqual(['2 requests so far, 0 rows', '2 requests so far, 0 rows'])
  stop()
  jest.advanceTimersByTime(60_000)
  expect(lines).toHaveLength(3)
})
