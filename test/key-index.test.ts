import { expect, test } from '@jest/globals'
import fc from 'fast-check'
import { KeyIndex } from '../src/rows/key-index.ts'
import { PackedRows } from '../src/rows/packed-rows.ts'
import { sift } from '../src/rows/sift.ts'
import { brandReport } from '../src/streams/brand-report.ts'
import type { Row, Value } from '../src/streams/stream.ts'
import { RowHashes } from '../src/warehouse/load/row-digest.ts'

const value = fc.oneof(fc.constantFrom<Value>(null, 'a', 'b', 'ab', 'B', ''), fc.string({ maxLength: 2 }))
const rows = fc.array(fc.tuple(value, value, value, fc.integer()) as fc.Arbitrary<Row>, { maxLength: 900 })

function compare(one: Value, other: Value): number {
  if (one === null || other === null) return Number(one === null) - Number(other === null)
  return one < other ? -1 : Number(one > other)
}

test('a row is found by its key, whatever else it holds, and places are counted as they come', () => {
  fc.assert(
    fc.property(rows, (all) => {
      const index = new KeyIndex([2, 0])
      const places = new Map<string, number>()
      for (const row of all) {
        const key = JSON.stringify([row[2], row[0]])
        expect(index.findOrAdd(row)).toBe(places.get(key))
        if (!places.has(key)) places.set(key, places.size)
      }
    }),
  )
})

test('the order of places is that of the keys, one column descending, nulls last', () => {
  fc.assert(
    fc.property(rows, (all) => {
      const index = new KeyIndex([1, 0, 2])
      const kept = all.filter((row) => index.findOrAdd(row) === undefined)
      const sorted = [...kept].sort(
        (one, other) => -compare(one[1]!, other[1]!) || compare(one[0]!, other[0]!) || compare(one[2]!, other[2]!),
      )
      expect(index.inOrder(0)!.map((place) => kept[place])).toEqual(sorted)
    }),
  )
})

test('with more combinations than can be numbered, rows stay as they came', () => {
  const index = new KeyIndex([0, 1, 2, 3, 4, 5])
  for (let row = 0; row < 1000; row++) index.findOrAdd(Array.from({ length: 6 }, (_, column) => `${row} ${column}`))
  expect(index.inOrder(0)).toBeUndefined()
})

test('rows go to the database in the order of the index: newest day first, and each day by its key', () => {
  const report = brandReport({ name: 'r', dimensions: ['date', 'topic_id'], filters: [] })
  const items = Array.from({ length: 400 }, (_, index) => ({
    brand: { id: `kw_${(index * 7) % 5}`, name: 'x' },
    mention_count: index,
    visibility: 0.5,
    visibility_count: 1,
    visibility_total: 2,
    date: `2026-01-0${1 + (Math.floor(index / 5) % 4)}`,
    topic: { id: `to_${(index * 13) % 397}` },
  }))
  const packed = new PackedRows(report.columns, 'or_1')
  const range = { from: '2026-01-01', to: '2026-01-31' }
  const sifted = sift(report, items, { range, needsTextCheck: false }, packed)
  expect(sifted.rows.length).toBe(400)
  const sorted = items
    .map((item) => report.flatten(item as never))
    .sort((one, other) => -compare(one[0]!, other[0]!) || compare(one[1]!, other[1]!) || compare(one[2]!, other[2]!))
  const expected = PackedRows.of(report.columns, 'or_1', sorted)
  const digest = new RowHashes(sifted.rows).digest()
  sifted.rows.reorder()
  expect(Buffer.concat([...sifted.rows.chunks()]).equals(Buffer.concat([...expected.chunks()]))).toBe(true)
  expect(new RowHashes(sifted.rows).digest()).toBe(digest)
})
