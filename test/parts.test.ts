import { describe, expect, test } from '@jest/globals'
import { CONTRADICTION, Sifter } from '../src/rows/sift.ts'
import { brandReport } from '../src/streams/brand-report.ts'
import { definedStream } from '../src/streams/defined-stream.ts'
import { sourceReport } from '../src/streams/source-report.ts'
import { RowList, type Stream } from '../src/streams/stream.ts'

/* An answer that is larger than a page comes in parts, which are sifted one by one. */

const DAY = '2026-01-02'
const range = { from: DAY, to: DAY }

/** Sifts parts, the texts of which are checked or not. */
function siftParts(stream: Stream, parts: unknown[][], checksTexts = parts.map(() => false)) {
  const sifter = new Sifter(stream, range, new RowList())
  for (const [at, items] of parts.entries()) sifter.accept(items, checksTexts[at]!)
  const { rows, rejects, rowsByDay, totals } = sifter.finish()
  return { rows: rows.values, rejects, rowsByDay, totals }
}

describe('parts of a report', () => {
  const report = brandReport({ name: 'r', dimensions: ['date'], filters: [] })
  const row = (brand: string, mentions = 1, name = brand) => ({
    date: DAY,
    brand: { id: brand, name },
    mention_count: mentions,
    visibility: 0.5,
    visibility_count: 1,
    visibility_total: 2,
  })
  const sift = (parts: unknown[][], checksTexts?: boolean[]) => {
    const { rows, rejects, ...rest } = siftParts(report, parts, checksTexts)
    return {
      ...rest,
      brands: rows.map((one) => one[1]),
      rejects: rejects.map(({ raw, reason }) => ({ ...JSON.parse(raw), reason })),
    }
  }

  test('keep their rows, and both rows of a contradiction in any of them are rejected once', () => {
    const { brands, rejects, rowsByDay, totals } = sift([
      [row('a'), row('b')],
      [row('c', 3), row('d'), row('c', 4), row('c', 5)],
      [row('e'), row('f', 6), row('f', 7)],
    ])
    expect(brands).toEqual(['a', 'b', 'd', 'e'])
    expect(
      rejects.map(({ brand, mention_count, reason }) => [brand.id, mention_count, reason === CONTRADICTION]),
    ).toEqual([
      ['c', 3, true],
      ['c', 4, true],
      ['c', 5, true],
      ['f', 6, true],
      ['f', 7, true],
    ])
    expect(Object.fromEntries(rowsByDay)).toEqual({ [DAY]: 4 })
    const mentioned = [...totals!.get(DAY)!].filter(([, [mentions]]) => mentions > 0)
    expect(mentioned.map(([brand]) => brand)).toEqual(['a', 'b', 'd', 'e'])
  })

  test('count a repeated row once, also if it is contradicted later', () => {
    const { brands, rejects } = sift([[row('a')], [row('b'), row('b'), row('c'), row('c'), row('c', 2)]])
    expect(brands).toEqual(['a', 'b'])
    expect(rejects.map(({ brand, mention_count }) => [brand.id, mention_count])).toEqual([
      ['c', 1],
      ['c', 2],
    ])
  })

  test('have their texts checked, each if it needs that', () => {
    const nul = (brand: string) => row(brand, 1, 'nul \0 inside')
    expect(sift([[row('a')], [nul('b')], [row('c')]], [false, true, false]).brands).toEqual(['a', 'c'])
    expect(sift([[nul('a')], [row('b')]], [true, false]).brands).toEqual(['b'])
  })
})

describe('parts of a report of pages', () => {
  const report = definedStream(
    sourceReport({ name: 'u', of: 'urls', dimensions: ['date'], filters: [] } as never, 'urls'),
  )
  const row = (url: string, count: number, title = 'Title') => ({
    ...{ date: DAY, url, classification: 'X', title, mentioned_brands: [] },
    ...{ usage_count: count, citation_count: count, retrievals: count, retrieval_count: count },
  })
  const usage = report.columns.findIndex(({ name }) => name === 'usage_count')

  test('add up rows with equal keys', () => {
    const { rows, rejects, rowsByDay } = siftParts(report, [[row('a', 1), row('b', 5)], [row('a', 2)], [row('a', 3)]])
    expect(rows.map((one) => [one[1], one[usage]])).toEqual([
      ['b', 5],
      ['a', 6],
    ])
    expect([rejects, Object.fromEntries(rowsByDay)]).toEqual([[], { [DAY]: 2 }])
  })

  test('reject a contradiction of a later part with the rows that were added up before it in that part, and those after it', () => {
    const parts = [
      [row('b', 5)],
      [row('a', 1), row('a', 2), row('a', 3, 'Other title'), row('c', 7)],
      [row('a', 4, 'Third title')],
    ]
    const { rows, rejects, rowsByDay } = siftParts(report, parts)
    expect(rows.map((one) => [one[1], one[usage]])).toEqual([
      ['b', 5],
      ['c', 7],
    ])
    expect(rejects.map(({ raw }) => JSON.parse(raw).usage_count).sort()).toEqual([1, 2, 3, 4])
    expect(Object.fromEntries(rowsByDay)).toEqual({ [DAY]: 2 })
  })
})
