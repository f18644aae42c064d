import { describe, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { KeyIndex } from '../src/rows/key-index.ts'
import { PackedRows } from '../src/rows/packed-rows.ts'
import { CONTRADICTION, refuseBadPage, type SiftOptions, sift as siftInto } from '../src/rows/sift.ts'
import { brandReport } from '../src/streams/brand-report.ts'
import { chats } from '../src/streams/chats.ts'
import { projectProfile } from '../src/streams/extra-lists.ts'
import { prompts } from '../src/streams/prompts.ts'
import { type Row, RowList, type Stream, type Value } from '../src/streams/stream.ts'
import { RowHashes } from '../src/warehouse/load/row-digest.ts'

const report = brandReport({ name: 'r', dimensions: ['date', 'topic_id'], filters: [] })
const range = { from: '2026-01-01', to: '2026-01-31' }
const good = (over: Record<string, unknown> = {}) => ({
  brand: { id: 'kw_1', name: 'One' },
  mention_count: 3,
  visibility: 0.5,
  visibility_count: 1,
  visibility_total: 2,
  date: '2026-01-02',
  topic: { id: 'to_1' },
  ...over,
})
const sift = (stream: Stream, items: unknown[], options: SiftOptions) => {
  const sifted = siftInto(stream, items, options, new RowList())
  return { ...sifted, rows: sifted.rows.values }
}
const siftReport = (items: unknown[], needsTextCheck = false) => sift(report, items, { range, needsTextCheck })

test('a good row becomes the columns of its table, with nulls for what the service left out', () => {
  expect(siftReport([good()]).rows).toEqual([
    ['2026-01-02', 'kw_1', 'to_1', 3, 0.5, 1, 2, null, null, null, null, null, null, null],
  ])
  expect(siftReport([good({ topic: null })]).rows[0]![2]).toBeNull()
  expect(siftReport([good({ topic: undefined })]).rows[0]![2]).toBeNull()
})

test('each bad row is rejected with its reason, and the rest of the page is not', () => {
  const bad = [
    good({ mention_count: '3' }),
    good({ brand: null }),
    good({ visibility: null }),
    good({ date: '2026-01-32' }),
    good({ date: '2026-02-01' }),
    good({ date: undefined }),
    'text',
    null,
    7,
    [],
    good({ brand: { id: '' } }),
    good({ brand: { id: 'x'.repeat(300) } }),
  ]
  const { rows, rejects } = siftReport([good(), ...bad])
  expect(rows.length).toBe(1)
  expect(rejects.length).toBe(bad.length)
  expect(rejects.every(({ reason }) => reason.length > 3)).toBe(true)
  expect(rejects[0]!.reason).toContain('mention_count')
})

test('whatever an answer holds, every item is either a row, a reject or a repetition of a row', () => {
  fc.assert(
    fc.property(
      fc.array(
        fc.oneof(
          fc.anything(),
          fc.record({ ...Object.fromEntries(Object.keys(good()).map((key) => [key, fc.anything()])) }),
          fc.integer({ min: 0, max: 50 }).map((n) => good({ brand: { id: `kw_${n}` } })),
        ),
      ),
      (items) => {
        const { rows, rejects } = siftReport(items, true)
        const soundKeys = new Set(
          items
            .filter((item: any) => typeof item?.brand?.id === 'string' && item.brand.id.startsWith('kw_'))
            .map((item: any) => item.brand.id),
        )
        expect(rows.length).toBe(soundKeys.size)
        expect(rejects.length).toBe(
          items.filter((item: any) => !(typeof item?.brand?.id === 'string' && item.brand.id.startsWith('kw_'))).length,
        )
      },
    ),
  )
})

test('a row that stands twice counts once and is noted', () => {
  const { rows, rejects, drift } = siftReport([good(), good()])
  expect([rows.length, rejects.length]).toEqual([1, 0])
  expect(drift).toEqual([expect.objectContaining({ kind: 'duplicate' })])
})

test('two rows with one key and different values are both rejected, since nothing tells which is true', () => {
  const { rows, rejects } = siftReport([good(), good({ mention_count: 4 }), good({ brand: { id: 'kw_2' } })])
  expect(rows.map((row) => row[1])).toEqual(['kw_2'])
  expect(rejects.map(({ reason }) => reason)).toEqual([CONTRADICTION, CONTRADICTION])
})

test('unknown fields and countries are noted once with an example and are no error', () => {
  const items = [
    good({ novelty: { deep: 1 } }),
    good({ brand: { id: 'kw_2' }, novelty: 2, model: { id: 'famQ-9' }, country_code: 'XK' }),
  ]
  const fine = brandReport({ name: 'f', dimensions: ['date', 'model_id', 'country_code'], filters: [] })
  const { rows, drift } = sift(fine, items, { range, needsTextCheck: false })
  expect(rows.length).toBe(2)
  expect(drift.map(({ kind, name }) => [kind, name])).toEqual([
    ['field', 'novelty'],
    ['country', 'XK'],
  ])
  expect(drift[0]!.example).toBe('{"deep":1}')
})

test('texts that Postgres cannot store are rejected, and texts that only look like it are not', () => {
  const names = ['nul \0 inside', 'half \ud800 a pair', 'a literal \\u0000', 'an emoji 🏃']
  const { rows, rejects } = siftReport(
    names.map((name, index) => good({ brand: { id: `kw_${index}`, name } })),
    true,
  )
  expect(rows.map((row) => row[1])).toEqual(['kw_2', 'kw_3'])
  expect(rejects.length).toBe(2)
})

test('a page with a few bad rows passes and one with many is refused as a whole', () => {
  const page = (bad: number, all: number) =>
    siftReport(
      Array.from({ length: all }, (_, index) => (index < bad ? 'bad' : good({ brand: { id: `kw_${index}` } }))),
    )
  const judge = (bad: number, all: number) => () => refuseBadPage('r', page(bad, all), 0.05)
  expect(judge(0, 0)).not.toThrow()
  expect(judge(5, 100)).not.toThrow()
  expect(judge(1, 5)).not.toThrow()
  expect(judge(6, 100)).toThrow('6 of 100 rows are bad')
  expect(judge(1, 1)).toThrow('1 of 1 rows are bad')
  expect(judge(10, 10)).toThrow()
})

test('a prompt is read whatever its location, volume, topic and tags look like', () => {
  const prompt = (over: object) =>
    sift(prompts, [{ id: 'pr_1', messages: [{ content: 'Hi' }, { content: 'there' }], ...over }], {
      needsTextCheck: false,
    }).rows[0]
  expect(prompt({})).toEqual(['pr_1', 'Hi\nthere', '[{"content":"Hi"},{"content":"there"}]', null, null, null, null])
  expect(prompt({ user_location: {}, volume: 'very low', topic: { id: 'to_1' } })).toEqual([
    'pr_1',
    'Hi\nthere',
    expect.any(String),
    'to_1',
    '{}',
    null,
    'very low',
  ])
  expect(prompt({ user_location: { country: 'DE' }, volume: 1200.5, topic: null, tags: null })).toEqual([
    'pr_1',
    'Hi\nthere',
    expect.any(String),
    null,
    '{"country":"DE"}',
    'DE',
    '1200.5',
  ])
  const twice = sift(prompts, [{ id: 'pr_1', messages: [], tags: [{ id: 'tg_1' }, { id: 'tg_1' }, { id: 'tg_2' }] }], {
    needsTextCheck: false,
  })
  expect(twice.children.get('prompt_tags')).toEqual([
    ['pr_1', 'tg_1'],
    ['pr_1', 'tg_2'],
  ])
})

test('a row that is nested without end is rejected alone', () => {
  const deep = JSON.parse(`${'{"a":'.repeat(5000)}1${'}'.repeat(5000)}`)
  const { rows, rejects } = sift(
    prompts,
    [
      { id: 'pr_1', messages: [], user_location: deep },
      { id: 'pr_2', messages: [] },
    ],
    { needsTextCheck: true },
  )
  expect([rows.length, rejects.length]).toEqual([1, 1])
})

test('a profile may write its markets either way, and chats may lack a channel', () => {
  const markets = [{ location: 'Berlin', osmId: '1' }]
  const profile = (over: object) => sift(projectProfile, [over], { needsTextCheck: false }).rows[0]![5]
  expect(profile({ targetMarkets: markets })).toBe(JSON.stringify(markets))
  expect(profile({ target_markets: markets })).toBe(JSON.stringify(markets))
  const { rows } = sift(
    chats,
    [{ id: 'ch_1', prompt: { id: 'pr_1' }, model: { id: 'famA-scraper' }, date: '2026-01-02' }],
    { range, needsTextCheck: false },
  )
  expect(rows).toEqual([['ch_1', 'pr_1', 'famA-scraper', null, '2026-01-02']])
})

describe('the index of keys', () => {
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
    const sifted = siftInto(report, items, { range, needsTextCheck: false }, packed)
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
})
