import { setImmediate } from 'node:timers/promises'
import { expect, test } from '@jest/globals'
import { TemplateCaches } from '../src/rows/fast-path/template-cache.ts'
import { PackedRows } from '../src/rows/packed-rows.ts'
import { CONTRADICTION, siftingSink } from '../src/rows/sift.ts'
import { Body, BodyMemory } from '../src/source/body.ts'
import { type Bounds, parseItems } from '../src/source/parse-items.ts'
import { brandReport } from '../src/streams/brand-report.ts'
import { PageLimit } from '../src/sync/plan/density.ts'
import { readByOffset } from '../src/sync/read/read-pages.ts'

/** Parses a text and collects what the sink was given since it last began. */
async function parse(text: string, bounds: Partial<Bounds> = {}) {
  let items: unknown[] = []
  let batches = 0
  const sink = {
    begin() {
      items = []
      batches = 0
    },
    addItems(batch: unknown[]) {
      items = items.concat(batch)
      batches++
    },
  }
  const { body, count } = await parseItems(Buffer.from(text), false, sink, { limit: 10_000, ...bounds })
  return { body, count, items, batches }
}

const long = (item: (index: number) => unknown, count = 4000) =>
  Array.from({ length: count }, (_, index) => item(index))

test('a long answer comes in batches that together are its items', async () => {
  const data = long((index) => ({
    brand: { id: `kw_${index}`, name: 'Müller 🏃' },
    n: index / 3,
    pad: 'x'.repeat(100),
  }))
  for (const [text, rest] of [
    [JSON.stringify({ data }), {}],
    [JSON.stringify({ data, totalCount: 4000 }), { totalCount: 4000 }],
    [`\n { "totalCount" : 7 , "data" : ${JSON.stringify(data)} }\n`, { totalCount: 7 }],
  ] as const) {
    const parsed = await parse(text)
    expect(parsed.items).toEqual(data)
    expect(parsed.count).toBe(4000)
    expect(parsed.batches).toBeGreaterThan(2)
    expect(parsed.body).toEqual({ ...rest, data: [] })
  }
})

test('an answer without a list is given as it is', async () => {
  expect(await parse('{"data":null}')).toMatchObject({ body: { data: null }, count: 0 })
  expect(await parse('[]')).toMatchObject({ body: [], count: 0 })
  expect(await parse('null')).toMatchObject({ body: null, count: 0 })
})

test('rows of different batches that contradict each other are both rejected with their raw items', async () => {
  const report = brandReport({ name: 'r', dimensions: ['date'], filters: [] })
  const row = (id: number, mentions: number) => ({
    brand: { id: `kw_${id}` },
    mention_count: mentions,
    visibility: 0.5,
    visibility_count: 1,
    visibility_total: 2,
    date: '2026-01-02',
    share_of_voice: null,
  })
  const range = { from: '2026-01-01', to: '2026-01-31' }
  const templates = new TemplateCaches()
  const data = [...long((index) => row(index, 1)), row(0, 2), row(1, 1)]
  const { acceptByTemplate: _, ...sink } = siftingSink(
    report,
    { range, templates },
    () => new PackedRows(report.columns, 'p'),
  )
  await parseItems(Buffer.from(JSON.stringify({ data })), false, sink, { limit: 10_000 })
  const { rows, rejects, rowsByDay, drift } = sink.finish()
  expect([rows.length, rowsByDay.get('2026-01-02')]).toEqual([3999, 3999])
  expect(rejects).toEqual([
    { raw: JSON.stringify(row(0, 2)), reason: CONTRADICTION, index: 4000, date: '2026-01-02' },
    { raw: JSON.stringify(row(0, 1)), reason: CONTRADICTION, index: 0, date: '2026-01-02' },
  ])
  expect(drift.map(({ kind }) => kind)).toEqual(['duplicate'])
})

test('large answers are read one after the other, and one that is given up does not let the next in early', async () => {
  const memory = new BodyMemory()
  const bodyOf = () => new Body(memory, 1e9)
  const [first, second, third] = [bodyOf(), bodyOf(), bodyOf()]
  const order: string[] = []
  await first.waitForTurn(undefined)
  const stop = new AbortController()
  const givenUp = second.waitForTurn(stop.signal).catch((error: Error) => order.push(error.message))
  const waiting = third.waitForTurn(undefined).then(() => order.push('third'))
  stop.abort()
  await givenUp
  second.release()
  await setImmediate()
  expect(order).toEqual(['asked to stop while waiting'])
  first.release()
  await waiting
  third.release()
  expect(order).toEqual(['asked to stop while waiting', 'third'])
})

const rows = Array.from({ length: 10 }, (_, index) => ({ id: `row ${index}` }))
const keyOf = (raw: unknown) => (raw as { id: string }).id

test('a list that is longer than a page is read by pages that overlap', async () => {
  const read = async ({ limit, offset }: { limit: number; offset: number }) => {
    const items = rows.slice(offset, offset + limit)
    return { items, count: items.length, total: undefined, needsTextCheck: false, unknownFields: [] }
  }
  const page = await readByOffset(read, new PageLimit(4), keyOf, 'prompts')
  expect(page.items).toEqual(rows)
})

test('a service that ignores the offset is not read without end, and nothing of it is taken', async () => {
  let requests = 0
  const read = async ({ limit }: { limit: number; offset: number }) => {
    requests++
    const items = rows.slice(0, limit)
    return { items, count: items.length, total: undefined, needsTextCheck: false, unknownFields: [] }
  }
  await expect(readByOffset(read, new PageLimit(4), keyOf, 'prompts')).rejects.toThrow(
    /prompts: cannot be proven complete: .*nothing was changed/,
  )
  expect(requests).toBeLessThan(20)
})
