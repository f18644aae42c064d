import { expect, test } from '@jest/globals'
import fc from 'fast-check'
import { TemplateCaches } from '../src/rows/fast-path/template-cache.ts'
import { NumberReader, TemplateParser } from '../src/rows/fast-path/template-parser.ts'
import { PackedRows } from '../src/rows/packed-rows.ts'
import { siftingSink } from '../src/rows/sift.ts'
import { parseItems } from '../src/source/parse-items.ts'
import { brandReport } from '../src/streams/brand-report.ts'
import type { TemplatePaths } from '../src/streams/stream.ts'
import { sized } from './support/long.ts'

const report = brandReport({ name: 'r', dimensions: ['date', 'prompt_id', 'model_id'], filters: [] })
const range = { from: '2026-01-01', to: '2026-01-09' }
const templates = new TemplateCaches()

/** Reads an answer as a sync does, with rows that may be read by template or with each of them parsed. */
async function read(text: string, byTemplate: boolean) {
  let taken = 0
  const { acceptByTemplate, ...sink } = siftingSink(
    report,
    { range, templates },
    () => new PackedRows(report.columns, 'or_1'),
  )
  const counting = {
    ...sink,
    acceptByTemplate(bytes: Buffer, start: number) {
      const end = acceptByTemplate!(bytes, start)
      if (end >= 0) taken++
      return end
    },
  }
  const { body, count } = await parseItems(Buffer.from(text), false, byTemplate ? counting : sink, { limit: 10_000 })
  const { rows, rowsByDay, rejects, entities, drift } = sink.finish()
  const chunks = [...rows.chunks()].map((chunk) => Buffer.from(chunk))
  rows.reorder()
  const packed = Buffer.concat([...chunks, ...rows.chunks()]).toString('latin1')
  return { taken, sifted: { body, count, packed, length: rows.length, rowsByDay, rejects, entities, drift } }
}

/** A row as text, so that numbers and texts can be written in any way; without fields for which nothing is written. */
const rowText = (fields: Record<string, string>) =>
  `{${Object.entries(fields)
    .filter(([, value]) => value !== '')
    .map(([name, value]) => `"${name}":${value}`)
    .join(',')}}`

const plain = (index: number, over: Record<string, string> = {}) => ({
  brand: `{"id":"kw_${index % 3}","name":"Brand ${index % 3}"}`,
  mention_count: String(index),
  visibility: String((index % 7) / 7),
  visibility_count: '1',
  visibility_total: '2',
  prompt: `{"id":"pr_${Math.floor(index / 3) % 20}"}`,
  model: `{"id":"m_${Math.floor(index / 60) % 3}"}`,
  date: `"2026-01-0${1 + (Math.floor(index / 180) % 9)}"`,
  sentiment: index % 5 === 0 ? 'null' : '50.25',
  ...over,
})

const answer = (rows: string[]) => `{"data":[${rows.join(',')}]}`

test('most rows of an ordinary report are read by template, and come to the same bytes', async () => {
  const text = answer(Array.from({ length: 1620 }, (_, index) => rowText(plain(index))))
  const [fast, slow] = [await read(text, true), await read(text, false)]
  expect(fast.sifted).toEqual(slow.sifted)
  expect(fast.taken).toBeGreaterThan(1500)
  expect(slow.sifted.length).toBe(1620)
})

test('rows that are like others but for one thing are judged as if each were parsed', async () => {
  const odd: Record<string, string>[] = [
    { brand: '{"id":"kw_1","name":"Another name"}', mention_count: '7' },
    { brand: '{"id":"kw_1","name":null}', prompt: '{"id":"pr_new1"}' },
    { brand: '{"id":"","name":"Brand 1"}' },
    { brand: '{"id":7,"name":"Brand 1"}' },
    { date: '"2026-02-01"' },
    { date: '"2026-01-01T00:00:00Z"' },
    { date: 'null' },
    { mention_count: '"3"' },
    { mention_count: 'null' },
    { mention_count: '1e3' },
    { mention_count: '-0' },
    { mention_count: '12345678901234567890' },
    { visibility: '1e999' },
    { visibility: '0.15384615384615385' },
    { sentiment: 'true' },
    { sentiment: '[1]' },
    { mention_count: '5,"mention_count":6' },
    { sentiment: '' },
    { prompt: 'null' },
    { prompt: '{"id":7}' },
    { prompt: '{"id":null}' },
    { prompt: '{"id":"pr_\\u00e9\\"x"}' },
    { prompt: '{"id":"pr_é"}' },
    { prompt: '{"id":"a},{b"}' },
    { prompt: `{"id":"${'x'.repeat(300)}"}` },
    { extra: '"news"' },
    { extra: '12' },
    { extra: '{"deep":{"er":1}}' },
    { 'brand.id': '"kw_9"' },
    { __proto__x: '1' },
  ]
  // All texts are known before, and every seventh key is left for the odd ones.
  const base = Array.from({ length: 1620 }, (_, index) => plain(index)).filter((_, index) => index % 7 > 0)
  let rejected = 0
  for (const [index, over] of odd.entries()) {
    const [first, second] = [plain(index * 14), plain(index * 14 + 7)]
    // When it is new, as the same row again, and when it may be taken for one like others.
    const changed = rowText({ ...first, ...over })
    const text = answer([...base.map((row) => rowText(row)), changed, changed, rowText({ ...second, ...over })])
    const [fast, slow] = [await read(text, true), await read(text, false)]
    expect({ over, ...fast.sifted }).toEqual({ over, ...slow.sifted })
    rejected += slow.sifted.rejects.length
  }
  expect(rejected).toBeGreaterThan(20)
})

test('a brand is called as on its newest day, though that row is read by template', async () => {
  // All texts are known before a brand has another name, which comes at first with an old day and then with a new one.
  const names = ['"name":"Brand 0"', '"name":"Renamed"', '"name":"Again"']
  const days = [1, 3, 9, 5, 2, 9, 1]
  const rows = days.flatMap((day, at) =>
    names.map((name, index) =>
      rowText(
        plain(0, {
          brand: `{"id":"kw_0",${name}}`,
          prompt: `{"id":"pr_${at * 3 + index}"}`,
          date: `"2026-01-0${day}"`,
        }),
      ),
    ),
  )
  const prompts = rows.map((_, index) => rowText(plain(0, { prompt: `{"id":"pr_${index}"}`, date: '"2026-01-08"' })))
  const text = answer([...prompts, ...rows])
  const [fast, slow] = [await read(text, true), await read(text, false)]
  expect(fast.sifted).toEqual(slow.sifted)
  expect(slow.sifted.entities.brands.get('kw_0')).toEqual({ name: 'Renamed', date: '2026-01-09' })
  expect(fast.taken).toBeGreaterThan(10)
})

test('a row that does not stand at its paths is never read by template', () => {
  const paths: TemplatePaths = { paths: ['a', 'b.c'], combination: ['a', 'b.c', 'd'], collect: () => {} }
  const parser = new TemplateParser(paths, new TemplateCaches().of(paths))
  const bytes = Buffer.from('{"a":"x","b":{"c":2}}')
  const origin = { bytes, start: 0, end: bytes.length }
  parser.learn(origin, ['x', 3])
  expect(parser.read(bytes, 0)).toBe(-1)
  parser.learn(origin, ['x', 2])
  expect([parser.read(bytes, 0), parser.row]).toEqual([bytes.length, ['x', 2]])
})

const number = fc.oneof(
  fc.integer().map(String),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map((value) => JSON.stringify(value)),
  fc.tuple(fc.nat(30), fc.integer({ min: 1, max: 30 })).map(([one, other]) => JSON.stringify(one / other)),
  fc.constantFrom('-0', '0.0', '1.50', '1E2', '1e-7', '9007199254740993', '0.1000000000000000055511151231257827'),
)

test('any answer with valid rows comes to the same rows, whichever way it is read', async () => {
  const row = fc.record(
    {
      brand: fc.constantFrom('{"id":"a","name":"A"}', '{"id":"b","name":"B"}', '{"name":"A","id":"a"}', '{"id":"b"}'),
      mention_count: number,
      visibility: number,
      visibility_count: fc.constant('1'),
      visibility_total: fc.constantFrom('2', '"2"'),
      prompt: fc.constantFrom('{"id":"p"}', '{"id":"q"}', '{ "id" : "p" }', 'null', '{"id":"\\u0070"}'),
      model: fc.constantFrom('{"id":"m"}', '{"id":"n"}', '{}'),
      date: fc.constantFrom('"2026-01-01"', '"2026-01-02"', '"2026-01-03"', '"2025-01-01"'),
      sentiment: fc.oneof(number, fc.constantFrom('null', '""')),
      unknown: fc.constantFrom('1', '"x"', '[]'),
    },
    { requiredKeys: ['brand', 'mention_count', 'visibility', 'visibility_count', 'visibility_total', 'date'] },
  )
  await fc.assert(
    fc.asyncProperty(fc.array(row, { maxLength: 60 }), async (rows) => {
      const text = answer(rows.map((fields) => rowText(fields as Record<string, string>)))
      const [fast, slow] = [await read(text, true), await read(text, false)]
      expect(fast.sifted).toEqual(slow.sifted)
    }),
    { numRuns: sized(100, 400) },
  )
})

test('an answer that is cut anywhere is no answer, however alike its rows are', async () => {
  const text = answer(Array.from({ length: 40 }, (_, index) => rowText(plain(index))))
  for (let length = text.length - 700; length < text.length; length++) {
    await expect(read(text.slice(0, length), true)).rejects.toThrow(SyntaxError)
  }
})

test('numbers are read to the last bit as JSON.parse reads them', () => {
  const reader = new NumberReader()
  fc.assert(
    fc.property(number, (text) => {
      for (let time = 0; time < 2; time++) {
        const value = reader.read(Buffer.from(`${text},`), 0)
        if (/e/i.test(text)) expect(reader.end === text.length).toBe(false)
        else expect([Object.is(value, JSON.parse(text)), reader.end]).toEqual([true, text.length])
      }
    }),
    { numRuns: sized(1000, 5000) },
  )
  for (const text of ['', '-', '01', '-01', '1.', '.5', 'x', '+1']) {
    reader.read(Buffer.from(`${text},`), 0)
    expect(reader.end).toBe(-1)
  }
})
