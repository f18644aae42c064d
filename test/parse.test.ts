import { setImmediate } from 'node:timers/promises'
import { describe, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { RefusedError } from '../src/core/errors.ts'
import { TemplateCaches } from '../src/rows/fast-path/template-cache.ts'
import { NumberReader, TemplateParser } from '../src/rows/fast-path/template-parser.ts'
import { KeyIndex } from '../src/rows/key-index.ts'
import { PackedRows } from '../src/rows/packed-rows.ts'
import {
  CONTRADICTION,
  refuseBadPage,
  type Sifted,
  type SiftOptions,
  sift,
  sift as siftInto,
  siftingSink,
} from '../src/rows/sift.ts'
import { Body, BodyMemory } from '../src/source/body.ts'
import { JsonScanner } from '../src/source/json-scanner.ts'
import { type Bounds, type ItemSink, parseItems } from '../src/source/parse-items.ts'
import { brandReport } from '../src/streams/brand-report.ts'
import { chats } from '../src/streams/chats.ts'
import { projectProfile } from '../src/streams/extra-lists.ts'
import { prompts } from '../src/streams/prompts.ts'
import { type Row, RowList, type Stream, type TemplatePaths, type Value } from '../src/streams/stream.ts'
import { PageLimit } from '../src/sync/plan/density.ts'
import { readByOffset } from '../src/sync/read/read-pages.ts'
import { RowHashes } from '../src/warehouse/load/row-digest.ts'
import { sized } from './support/long.ts'

describe('the grammar of answers', () => {
  /*
   * An answer is accepted if and only if JSON.parse accepts all of it, whichever way its rows are read. The seams between
   * rows are where a reader of parts can go wrong, so documents are damaged there. GRAMMAR_RUNS asks for more of them.
   */

  const RUNS = Number(process.env.GRAMMAR_RUNS ?? sized(40, 4000))
  const SEED = Number(process.env.GRAMMAR_SEED ?? 20_260_331)

  const report = brandReport({ name: 'r', dimensions: ['date', 'prompt_id', 'model_id'], filters: [] })
  const range = { from: '2026-01-01', to: '2026-01-09' }
  const templates = new TemplateCaches()
  const rowsOf = () => new PackedRows(report.columns, 'or_1')

  /** Two brands for each of some prompts: about half of the rows are read by template. */
  const row = (index: number) =>
    `{"brand":{"id":"kw_${index % 2}","name":"B},{${index % 2}"},"mention_count":${index},"visibility":0.5,"visibility_count":1,` +
    `"visibility_total":2,"prompt":{"id":"pr_${Math.floor(index / 2)}"},"date":"2026-01-01"}`

  type Outcome = { rows: string; rejects: unknown; count: number } | 'mangled'

  function summary({ rows, rejects }: Sifted<PackedRows>, count: number): Outcome {
    return { rows: Buffer.concat([...rows.chunks()]).toString('latin1'), rejects, count }
  }

  /** What the service's rows are, read by JSON.parse. */
  function expected(text: string): Outcome {
    let body: { data?: unknown } | null
    try {
      body = JSON.parse(text)
    } catch {
      return 'mangled'
    }
    if (membersOf(text) > 1) return 'mangled'
    const items = Array.isArray(body?.data) ? body.data : []
    return summary(sift(report, items, { range, needsTextCheck: false }, rowsOf()), items.length)
  }

  /** How many members of the name `data` a valid document has. */
  function membersOf(text: string): number {
    let found = 0
    let depth = 0
    for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"\s*:?|[[\]{}]/g)) {
      if (token === '{' || token === '[') depth++
      else if (token === '}' || token === ']') depth--
      else if (depth === 1 && token.endsWith(':') && JSON.parse(token.slice(0, -1)) === 'data') found++
    }
    return text.trimStart().startsWith('{') ? found : 0
  }

  function withoutTemplates({ begin, addItems }: ItemSink): ItemSink {
    return { begin, addItems }
  }

  const WAYS: Record<string, (sink: ItemSink) => [ItemSink, Bounds]> = {
    'row by row': (sink) => [sink, { limit: 100 }],
    'in small batches': (sink) => [withoutTemplates(sink), { limit: 100, batchBytes: 150 }],
    'in one batch': (sink) => [withoutTemplates(sink), { limit: 100 }],
    'with each end looked for': (sink) => [withoutTemplates(sink), { limit: 100, values: 1e6, batchBytes: 150 }],
  }

  async function read(text: string, way: keyof typeof WAYS): Promise<Outcome> {
    const sifting = siftingSink(report, { range, templates }, rowsOf)
    const [sink, bounds] = WAYS[way]!(sifting)
    try {
      const { count } = await parseItems(Buffer.from(text), false, sink, bounds)
      return summary(sifting.finish(), count)
    } catch (error) {
      if (error instanceof SyntaxError) return 'mangled'
      throw error
    }
  }

  async function compare(text: string): Promise<Outcome> {
    const wanted = expected(text)
    for (const way of Object.keys(WAYS)) {
      const outcome = await read(text, way)
      // Thousands of comparisons: only one that fails needs to be shown.
      if (JSON.stringify(outcome) !== JSON.stringify(wanted)) expect([way, text, outcome]).toEqual([way, text, wanted])
    }
    return wanted
  }

  const document = (rows: string[], head = '{"data":[', tail = ']}') => `${head}${rows.join(',')}${tail}`
  const twelve = Array.from({ length: 12 }, (_, index) => row(index))

  test('a comma without a row, and rows without a comma, make an answer malformed anywhere', async () => {
    expect(await compare(document(twelve))).toMatchObject({ count: 12 })
    for (let at = 0; at <= 12; at++) {
      expect(await compare(document([...twelve.slice(0, at), '', ...twelve.slice(at)]))).toBe('mangled')
      const [before, after] = [twelve.slice(0, at), twelve.slice(at)]
      if (at > 0 && at < 12) expect(await compare(`{"data":[${before.join(',')}${after.join(',')}]}`)).toBe('mangled')
    }
  })

  test('a list that was truncated between two rows is malformed, with its comma or without', async () => {
    for (const lost of [1, 2, 6]) {
      const kept = twelve.slice(0, -lost)
      expect(await compare(`{"data":[${kept.join(',')},]}`)).toBe('mangled')
      expect(await compare(`{"data":[${kept.join(',')},`)).toBe('mangled')
      expect(await compare(`{"data":[${kept.join(',')}`)).toBe('mangled')
    }
  })

  test('ambiguous members and trailing data make an answer malformed', async () => {
    const rows = twelve.join(',')
    for (const text of [
      `{"data":[${rows}],"data":[]}`,
      `{"data":[],"data":[${rows}]}`,
      `{"data":[${rows}],"d\\u0061ta":[${rows}]}`,
      `{"data":null,"data":[${rows}]}`,
      `{"data":[${rows}],"data":7}`,
      `{"data":[${rows}]}x`,
      `{"data":[${rows}]}}`,
      `{"data":[${rows}]}{}`,
      `{"data":[${rows}]}\0`,
      `\ufeff{"data":[${rows}]}`,
      `{"data":[${rows}]}\u00a0`,
      `{"data":[\u00a0${rows}]}`,
      `{"data":[${rows}],}`,
      `{,"data":[${rows}]}`,
      `{"data":[${rows}]"more":1}`,
      `{"data":[${rows}],"more":01}`,
      `{"more":[1,],"data":[${rows}]}`,
      '',
      '{',
      '{"data"',
      '{"data":[',
    ]) {
      expect(await compare(text)).toBe('mangled')
    }
  })

  test('white space, other members and lists within lists are no reason to refuse an answer', async () => {
    const rows = twelve.join(' ,\n')
    for (const text of [
      `\r\n\t {"data" :\n[ ${rows}\t]\r}\n`,
      `{"data":[${rows}],"more":[{"data":[{"a":[]},{}]}],"":null}`,
      `{"more":{"data":[1,2]},"totalCount":1e3,"data":[${rows}]}`,
      `{"data":[${twelve.join(',')},{"list":[{"a":1},{"b":[{"c":2},{"d":3}]}]},7,null,"},{",[[]],${row(12)}]}`,
    ]) {
      expect(await compare(text)).not.toBe('mangled')
    }
    expect(await compare('{"data":{"0":1}}')).toMatchObject({ count: 0 })
    expect(await compare('[]')).toMatchObject({ count: 0 })
    expect(await compare('{}')).toMatchObject({ count: 0 })
  })

  test('every byte around the border of two rows may be lost or changed', async () => {
    const text = document(twelve.slice(0, 6))
    // The fourth row is read by template, the fifth is not.
    for (const border of [3, 4, 5, 6].map((count) => document(twelve.slice(0, count)).length - 2)) {
      for (let at = border - 6; at < border + 6; at++) {
        const around = [text.slice(0, at), text.slice(at + 1)]
        for (const byte of ['', ' ', ',', '{', '}', '[', ']', '"', '0', '-', 'e', ':', '\\', '\n', '\x01', 'é']) {
          await compare(around.join(byte))
          await compare(`${text.slice(0, at)}${byte}${text.slice(at)}`)
        }
      }
    }
  })

  /* Documents made of parts, of which some are lost, doubled, moved or put in between. */

  const filler = fc.constantFrom(
    ...[
      ' ',
      '\n',
      ',',
      ',,',
      '[',
      ']',
      '{',
      '}',
      ':',
      '"',
      '0',
      '-1.5e3',
      '01',
      '1.',
      '.5',
      '+1',
      'null',
      'nul',
      'true',
      'NaN',
    ],
    ...[
      '{}',
      '[]',
      '[[],{}]',
      '{"a":1}',
      '{"a":1,}',
      '{"a"}',
      '[1,]',
      '"},{"',
      '"\\u00e9"',
      '"\\x"',
      '"\\u12"',
      '"a\nb"',
      '\ufeff',
    ],
    ...['"data":[]', ',"data":[{}]', ',"totalCount":3', ',"more":[{"a":1},{"b":2}]', 'é', '\0', '//', '\\'],
  )
  const item = fc.oneof(
    { weight: 60, arbitrary: fc.integer({ min: 0, max: 15 }).map(row) },
    { weight: 8, arbitrary: fc.jsonValue({ maxDepth: 4 }).map((value) => JSON.stringify(value)) },
    { weight: 1, arbitrary: filler },
  )
  const spaced = fc.oneof(
    { weight: 20, arbitrary: fc.constant('') },
    fc.constantFrom(' ', '\n  ', '\t\r\n', '\u00a0', '\v'),
  )
  const parts = fc
    .record({
      head: fc.constantFrom(
        '{"data":[',
        ' { "data" : [',
        '{"totalCount":3,"data":[',
        '{"m":[{"x":1},{}],"data":[',
        '{"d\\u0061ta":[',
      ),
      items: fc.array(item, { maxLength: 14 }),
      space: spaced,
      tail: fc.oneof(
        { weight: 4, arbitrary: fc.constantFrom(']}', '],"totalCount":3}', ']}\n', '],"m":[{"x":1},{"y":"]}"}]}') },
        fc.constantFrom(']}]', '],"data":[]}', ']'),
      ),
    })
    .map(({ head, items, space, tail }) => [
      head,
      ...items.flatMap((text, index) => (index === 0 ? [text] : [`${space},${space}`, text])),
      tail,
    ])
  const change = fc.record({
    kind: fc.constantFrom('none', 'none', 'none', 'drop', 'double', 'swap', 'insert', 'cut', 'byte'),
    at: fc.nat(),
    near: fc.integer({ min: -12, max: 12 }),
    filler,
  })

  function damage(
    all: string[],
    { kind, at, near, filler: text }: typeof change extends fc.Arbitrary<infer T> ? T : never,
  ) {
    const list = [...all]
    const index = at % list.length
    if (kind === 'drop') list.splice(index, 1)
    if (kind === 'double') list.splice(index, 0, list[index]!)
    if (kind === 'swap') [list[index], list[0]] = [list[0]!, list[index]!]
    if (kind === 'insert') list.splice(index, 0, text)
    if (kind !== 'cut' && kind !== 'byte') return list
    const whole = list.join('')
    const place = Math.max(0, Math.min(whole.length, list.slice(0, index + 1).join('').length + near))
    return [kind === 'cut' ? whole.slice(0, place) : whole.slice(0, place) + text + whole.slice(place + 1)]
  }

  test('any damaged answer is refused, or read, as JSON.parse does', async () => {
    const seen = { mangled: 0, read: 0 }
    await fc.assert(
      fc.asyncProperty(parts, fc.array(change, { minLength: 1, maxLength: 2 }), async (whole, changes) => {
        const text = changes.reduce((list, each) => damage(list, each), whole).join('')
        // Halves of surrogate pairs cannot be written as UTF-8.
        if (!text.isWellFormed()) return
        seen[(await compare(text)) === 'mangled' ? 'mangled' : 'read']++
      }),
      { numRuns: RUNS, seed: SEED },
    )
    // Both happen often, or nothing is compared.
    expect(Math.min(seen.mangled, seen.read)).toBeGreaterThan(RUNS / 6)
  })

  test('the scanner accepts what JSON.parse accepts, and finds its end', () => {
    const accepts = (text: string) => {
      const scanner = new JsonScanner(Buffer.from(text))
      try {
        return scanner.skipSpace(scanner.endOfValue(0)) === Buffer.byteLength(text)
      } catch (error) {
        if (error instanceof SyntaxError) return false
        throw error
      }
    }
    const parses = (text: string) => {
      try {
        JSON.parse(text)
        return true
      } catch {
        return false
      }
    }
    const pieces = fc.array(
      fc.oneof(
        filler,
        fc.jsonValue({ maxDepth: 3 }).map((value) => JSON.stringify(value)),
      ),
      { maxLength: 6 },
    )
    const text = fc.oneof(
      fc.jsonValue().map((value) => JSON.stringify(value, null, 1)),
      pieces.map((all) => all.join('')),
      pieces.map((all) => `[${all.join(',')}]`),
      fc.string({ unit: fc.constantFrom(...'{}[]",:\\u0123456789abcdefE+-. \n\tntrulfs') }),
      fc.tuple(fc.jsonValue(), fc.nat(), fc.nat(255)).map(([value, at, byte]) => {
        const whole = JSON.stringify(value)
        const place = at % whole.length
        return `${whole.slice(0, place)}${String.fromCharCode(byte)}${whole.slice(place + 1)}`
      }),
    )
    fc.assert(
      fc.property(text, (given) => {
        if (given.isWellFormed()) expect([given, accepts(given)]).toEqual([given, parses(given)])
      }),
      { numRuns: RUNS * 10, seed: SEED },
    )
  })

  test('a page with more items than requested is reported, and one with far more is refused early', async () => {
    const many = (count: number) => `{"data":[${Array.from({ length: count }, () => '{}').join(',')}]}`
    for (const bounds of [{ limit: 50 }, { limit: 50, values: 1e6 }]) {
      let taken = 0
      const sink = {
        begin: () => void (taken = 0),
        addItems: (items: unknown[]) => void (taken += items.length),
      }
      expect(await parseItems(Buffer.from(many(60)), false, sink, bounds)).toMatchObject({ count: 60 })
      const refused = parseItems(Buffer.from(many(500_000)), false, sink, bounds)
      await expect(refused).rejects.toBeInstanceOf(RefusedError)
      await expect(refused).rejects.toThrow('asked for at most 50 items and got more than 20,000 items')
      expect(taken).toBeLessThan(100_000)
    }
  })

  test('an answer with more values than may be kept is refused', async () => {
    const values = `{"data":[${Array.from({ length: 100 }, () => `[${'{},'.repeat(999)}{}]`).join(',')}]}`
    const sink = { begin() {}, addItems() {} }
    await expect(parseItems(Buffer.from(values), false, sink, { limit: 100, values: 50_000 })).rejects.toThrow(
      'the answer holds more than 50,000 values',
    )
    expect(await parseItems(Buffer.from(values), false, sink, { limit: 100 })).toMatchObject({ count: 100 })
  })

  test('an item that is too large is rejected alone, whichever way it is read', async () => {
    const large = [
      `{"x":"${'é'.repeat(200_000)}"}`,
      `{"x":${'['.repeat(140_000)}${']'.repeat(140_000)}}`,
      `"${'y'.repeat(300_000)}"`,
    ]
    for (const [index, one] of large.entries()) {
      for (const space of ['', '\n ']) {
        const items = [...twelve.slice(0, 3), one, ...twelve.slice(3)]
        for (const way of Object.keys(WAYS)) {
          const outcome = await read(document(items.map((text) => space + text)), way)
          expect(outcome).toMatchObject({
            count: 13,
            rejects: [{ index: 3, reason: expect.stringMatching(/^row: has \d+ bytes; allowed: up to 262144$/) }],
          })
          expect((outcome as { rejects: { raw: string }[] }).rejects[0]!.raw.length).toBeLessThan(
            2100 * (index === 0 ? 1 : 2),
          )
          expect(() => JSON.parse((outcome as { rejects: { raw: string }[] }).rejects[0]!.raw)).not.toThrow()
        }
      }
      // Not parsed is not the same as not checked.
      for (const way of Object.keys(WAYS)) {
        expect(await read(document([twelve[0]!, `${one.slice(0, -1)},`, twelve[1]!]), way)).toBe('mangled')
        expect(await read(document([twelve[0]!, one.replace(/(\]|é|y)(?=[^\]éy]*$)/, '\\x'), twelve[1]!]), way)).toBe(
          'mangled',
        )
      }
    }
  })
})

describe('rows by template', () => {
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

  test.each([
    ['mention_count', '-1', 'mention_count: -1 is negative'],
    ['visibility', '1.2', 'visibility: 1.2 is more than 1'],
    ['visibility_count', '3', 'visibility_count: 3 is more than the visibility_total of 2'],
    ['share_of_voice', '7', 'share_of_voice: 7 is more than 1'],
    ['sentiment', '100.5', 'sentiment: 100.5 is more than 100'],
  ])('a row with an impossible %s is rejected, also among rows that are like it', async (name, value, reason) => {
    const rows = Array.from({ length: 540 }, (_, index) =>
      plain(index, { share_of_voice: '0.25', [name]: index === 400 ? value : '1' }),
    )
    const [fast, slow] = [await read(answer(rows.map(rowText)), true), await read(answer(rows.map(rowText)), false)]
    expect(fast.sifted).toEqual(slow.sifted)
    expect(fast.taken).toBeGreaterThan(500)
    expect(fast.sifted.rejects.map((reject) => reject.reason)).toEqual([reason])
  })

  test('rows that differ from others in one thing are validated as if each were parsed', async () => {
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

  test('a row with other paths is never read by template', () => {
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

  test('any answer with valid rows gives the same rows on both paths', async () => {
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

  test('an answer that is truncated anywhere is refused, however similar its rows are', async () => {
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
})

describe('items', () => {
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

  test('reading ends if the service ignores the offset, and nothing is loaded', async () => {
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
})

describe('sifting', () => {
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

  test('a valid row becomes the columns of its table, with nulls for missing fields', () => {
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
            items.filter((item: any) => !(typeof item?.brand?.id === 'string' && item.brand.id.startsWith('kw_')))
              .length,
          )
        },
      ),
    )
  })

  test('a duplicate row counts once and is noted', () => {
    const { rows, rejects, drift } = siftReport([good(), good()])
    expect([rows.length, rejects.length]).toEqual([1, 0])
    expect(drift).toEqual([expect.objectContaining({ kind: 'duplicate' })])
  })

  test('two rows with one key and different values are both rejected, since either may be true', () => {
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
    const twice = sift(
      prompts,
      [{ id: 'pr_1', messages: [], tags: [{ id: 'tg_1' }, { id: 'tg_1' }, { id: 'tg_2' }] }],
      {
        needsTextCheck: false,
      },
    )
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
        .sort(
          (one, other) => -compare(one[0]!, other[0]!) || compare(one[1]!, other[1]!) || compare(one[2]!, other[2]!),
        )
      const expected = PackedRows.of(report.columns, 'or_1', sorted)
      const digest = new RowHashes(sifted.rows).digest()
      sifted.rows.reorder()
      expect(Buffer.concat([...sifted.rows.chunks()]).equals(Buffer.concat([...expected.chunks()]))).toBe(true)
      expect(new RowHashes(sifted.rows).digest()).toBe(digest)
    })
  })
})
