import { describe, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { TemplateCaches } from '../src/rows/fast-path/template-cache.ts'
import { NumberReader } from '../src/rows/fast-path/template-parser.ts'
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
import { type Bounds, type ItemSink, parseItems } from '../src/source/parse-items.ts'
import { REPEATED_KEY, withoutKey } from '../src/source/without-key.ts'
import { brandReport } from '../src/streams/brand-report.ts'
import { prompts } from '../src/streams/prompts.ts'
import { RowList, type Stream } from '../src/streams/stream.ts'
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

  test('ambiguous members and trailing data make an answer malformed', async () => {
    const rows = twelve.join(',')
    for (const text of [
      `{"data":[${rows}],"data":[]}`,
      `{"data":[],"data":[${rows}]}`,
      `{"data":[${rows}]}x`,
      `{"data":[${rows}]}}`,
      `{"data":[${rows}]}\u00a0`,
      `{"data":[\u00a0${rows}]}`,
      `{"data":[${rows}],"more":01}`,
      `{"more":[1,],"data":[${rows}]}`,
      '',
      '{',
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
    for (const border of [4, 5].map((count) => document(twelve.slice(0, count)).length - 2)) {
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
    ...[' ', '\n', ',', ',,', '[', ']', '{', '}', ':', '"', '0', '-1.5e3', '01', '.5', 'nul', 'NaN', '{}', '[]'],
    ...[
      '{"a":1,}',
      '{"a"}',
      '[1,]',
      '"},{"',
      '"\\u00e9"',
      '"\\x"',
      '"a\nb"',
      '\ufeff',
      '"data":[]',
      ',"data":[{}]',
      '\0',
    ],
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
    ['visibility_count', '3', 'visibility_count: 3 is more than the visibility_total of 2'],
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

  test('two rows with one key and different values are both rejected, since either may be true', () => {
    const { rows, rejects } = siftReport([good(), good({ mention_count: 4 }), good({ brand: { id: 'kw_2' } })])
    expect(rows.map((row) => row[1])).toEqual(['kw_2'])
    expect(rejects.map(({ reason }) => reason)).toEqual([CONTRADICTION, CONTRADICTION])
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
})

test('the key is found in every spelling of JSON, and nothing else changes', () => {
  const ODD = ['"', '\\', '/', '\n', 'u', 'n', '0', 'é', '😀']
  const character = fc.oneof(fc.constantFrom(...ODD), fc.string({ minLength: 1, maxLength: 1 }))
  const text = fc.array(character, { maxLength: 12 }).map((parts) => parts.join(''))
  // A digit of each number says how the next character is written.
  const choices = fc.array(fc.nat(2), { minLength: 1, maxLength: 20 })
  const escapedUnits = (part: string) =>
    Array.from({ length: part.length }, (_, index) => part.charCodeAt(index).toString(16).padStart(4, '0'))
  const spell = (words: string, ways: readonly number[]) =>
    Array.from(words, (part, index) => {
      const way = ways[index % ways.length]
      if (way === 0)
        return escapedUnits(part)
          .map((hex) => `\\u${hex}`)
          .join('')
      if (way === 1)
        return escapedUnits(part)
          .map((hex) => `\\u${hex.toUpperCase()}`)
          .join('')
      return part === '/' ? '\\/' : JSON.stringify(part).slice(1, -1)
    }).join('')
  fc.assert(
    fc.property(text, text, text, choices, (start, before, after, ways) => {
      const key = `${start}Key-${start}`.padEnd(8, '_')
      const words = `${before}${key}${after}`
      const given = Buffer.from(`{"a":"${spell(words, ways)}","b":[1,"${spell(before, ways)}"]}`)
      expect(JSON.parse(given.toString())).toEqual({ a: words, b: [1, before] })
      const clean = withoutKey(given, key)!
      expect(JSON.parse(clean.toString())).toEqual({
        a: words.replaceAll(key, () => REPEATED_KEY),
        b: [1, before.replaceAll(key, () => REPEATED_KEY)],
      })
      const other = Buffer.from(`["${spell(before, ways)}"]`)
      if (!before.includes(key)) expect(withoutKey(other, key)).toBeUndefined()
    }),
    { numRuns: sized(300, 20_000) },
  )
})
