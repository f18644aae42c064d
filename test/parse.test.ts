import { describe, expect, test } from '@jest/globals'
import fc from 'fast-check'
import * as z from 'zod'
import { loadConfig } from '../src/core/config/load.ts'
import { daysIn } from '../src/core/day.ts'
import { compiledCheck } from '../src/rows/compiled-check.ts'
import type { Asked } from '../src/rows/item-validator.ts'
import { CONTRADICTION, refuseBadPage, sift as siftInto } from '../src/rows/sift.ts'
import { parseAnswer } from '../src/source/parse-answer.ts'
import { REPEATED_KEY, withoutKey } from '../src/source/without-key.ts'
import { brandReport } from '../src/streams/brand-report.ts'
import { definedStream } from '../src/streams/defined-stream.ts'
import { prompts } from '../src/streams/prompts.ts'
import { StreamSet } from '../src/streams/registry.ts'
import { RowList, type Stream } from '../src/streams/stream.ts'
import { sized } from './support/long.ts'

describe('answers', () => {
  /* An answer is read as JSON.parse reads it, or refused. GRAMMAR_RUNS asks for more damaged documents. */

  const RUNS = Number(process.env.GRAMMAR_RUNS ?? sized(400, 40_000))
  const SEED = Number(process.env.GRAMMAR_SEED ?? 20_260_331)

  const row = (index: number) =>
    `{"brand":{"id":"kw_${index % 2}","name":"B},{${index % 2}"},"mention_count":${index},"prompt":{"data":"pr_${index}"}}`

  type Outcome = { items: unknown[]; unknownFields: string[] } | 'refused'

  const MEMBERS = new Set(['data', 'totalCount', 'total_count', 'message', 'error', 'errors', 'status'])

  function expected(text: string): Outcome {
    let body: { data?: unknown } | null
    try {
      body = JSON.parse(text)
    } catch {
      return 'refused'
    }
    if (!Array.isArray(body?.data)) return { items: [], unknownFields: [] }
    if (membersOf(text) > 1) return 'refused'
    return { items: body.data, unknownFields: Object.keys(body).filter((name) => !MEMBERS.has(name)) }
  }

  /** How many members of the name `data` a valid document has. */
  function membersOf(text: string): number {
    let found = 0
    let depth = 0
    for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"\s*:?|[[\]{}]/g)) {
      if (token === '{' || token === '[') depth++
      else if (token === '}' || token === ']') depth--
      else if (depth === 1 && /^"data"\s*:$/.test(token)) found++
    }
    return text.trimStart().startsWith('{') ? found : 0
  }

  function read(text: string): Outcome {
    try {
      const { items, unknownFields } = parseAnswer(Buffer.from(text), { operation: 'GET x', limit: 100, key: '' })
      return { items, unknownFields }
    } catch (error) {
      expect((error as Error).name).toBe('TransientError')
      return 'refused'
    }
  }

  function compare(text: string): Outcome {
    const wanted = expected(text)
    const outcome = read(text)
    // Thousands of comparisons: only one that fails needs to be shown.
    if (JSON.stringify(outcome) !== JSON.stringify(wanted)) expect([text, outcome]).toEqual([text, wanted])
    return wanted
  }

  const twelve = Array.from({ length: 12 }, (_, index) => row(index))

  test('ambiguous members and trailing data make an answer unusable', () => {
    const rows = twelve.join(',')
    for (const text of [
      `{"data":[${rows}],"data":[]}`,
      `{"data":[],"data":[${rows}]}`,
      `{"data":[${rows}]}x`,
      `{"data":[${rows}]}\u00a0`,
      `{"data":[${rows},]}`,
      '',
      '{',
      '{"data":[',
    ])
      expect(compare(text)).toBe('refused')
    expect(compare(`{"data":[${rows}],"more":[{"data":[{"a":[]},{}]}],"":null}`)).toMatchObject({
      unknownFields: ['more', ''],
    })
    expect(compare('{"data":{"0":1}}')).toEqual({ items: [], unknownFields: [] })
  })

  test('an answer with more values or items than any page has is refused, however short they are', () => {
    const of = (text: string) => () => parseAnswer(Buffer.from(text), { operation: 'GET x', limit: 100, key: '' })
    for (const value of ['0', '{}', '[]', '[[]]', '""'])
      expect(of(`{"data":[${Array(2_100_000).fill(value).join(',')}]}`)).toThrow(
        /more than (1,000,000 values|20,000 items)/,
      )
    expect(of(`{"data":[${Array(20_001).fill('0').join(',')}]}`)).toThrow('more than 20,000 items')
    expect(of(`{"data":[${Array(20_000).fill('0').join(',')}]}`)().items).toHaveLength(20_000)
    // Commas and brackets of texts are no values.
    expect(of(`{"data":["${'a,b{[\\"'.repeat(1_000_000)}"]}`)().items).toHaveLength(1)
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
      head: fc.constantFrom('{"data":[', ' { "data" : [', '{"totalCount":3,"data":[', '{"m":[{"x":1},{}],"data":['),
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

  test('any damaged answer is refused, or read, as JSON.parse does', () => {
    const seen = { refused: 0, read: 0 }
    fc.assert(
      fc.property(parts, fc.array(change, { minLength: 1, maxLength: 2 }), (whole, changes) => {
        const text = changes.reduce((list, each) => damage(list, each), whole).join('')
        // Halves of surrogate pairs cannot be written as UTF-8.
        if (!text.isWellFormed()) return
        seen[compare(text) === 'refused' ? 'refused' : 'read']++
      }),
      { numRuns: RUNS, seed: SEED },
    )
    // Both happen often, or nothing is compared.
    expect(Math.min(seen.refused, seen.read)).toBeGreaterThan(RUNS / 6)
  })
})

describe('the compiled check', () => {
  const range = { from: '2026-01-01', to: '2026-01-09' }
  const custom = definedStream({
    name: 'custom',
    table: 'custom',
    path: 'things',
    method: 'GET',
    by: 'list',
    key: ['id'],
    columns: [
      { name: 'id', path: 'id', type: 'text' },
      { name: 'size', path: 'parts.size', type: 'number' },
      { name: 'parts', path: 'parts', type: 'json' },
      { name: 'made', path: 'made', type: 'date' },
      { name: 'isNew', path: 'flags.new', type: 'boolean' },
    ],
  })
  const config = loadConfig({
    env: { VISIBILITY_API_URL: 'https://x/v1', VISIBILITY_API_KEY: 'k'.repeat(20), DATABASE_URL: 'postgres://x/y' },
  })
  const streams = [...new StreamSet(config).all, custom]

  /** Values that a schema accepts. */
  function valid(schema: z.core.JSONSchema.BaseSchema, name = ''): fc.Arbitrary<unknown> {
    if (schema.anyOf) return fc.oneof(...schema.anyOf.map((one) => valid(one as typeof schema, name)))
    const { type } = schema as { type?: unknown }
    if (Array.isArray(type)) return fc.oneof(...type.map((one) => valid({ ...schema, type: one }, name)))
    if (schema.type === 'null') return fc.constant(null)
    if (schema.type === 'boolean') return fc.boolean()
    if (schema.type === 'number') return fc.constantFrom(...Array(40).fill(0), 1, 0.5, -1, 1e300, 1 / 3)
    if (schema.type === 'string') {
      const ids = fc.nat(1e6).map((number) => `id_${number}`)
      const texts = fc.constantFrom('', 'x'.repeat(255), '😀'.repeat(128), '2026-02-27', '2026-02-30')
      return name === 'date' ? fc.constantFrom(...daysIn(range)) : fc.oneof({ weight: 20, arbitrary: ids }, texts)
    }
    if (schema.type === 'array') return fc.array(valid(schema.items as typeof schema), { maxLength: 3 })
    if (schema.type !== 'object') return fc.jsonValue({ maxDepth: 2 })
    const fields = Object.entries(schema.properties ?? {}).map(([field, of]) => [
      field,
      valid(of as typeof schema, field),
    ])
    return fc.record(Object.fromEntries(fields), { requiredKeys: [...(schema.required ?? [])] as never[] })
  }

  const odd = fc.oneof(
    fc.jsonValue({ maxDepth: 2 }),
    fc.constantFrom(null, '', 'x'.repeat(256), '😀'.repeat(200), Number.POSITIVE_INFINITY, -0, [], {}, { id: null }),
  )

  test.each(streams.map((stream) => [stream.name, stream] as const))(
    'of %s gives the verdicts and rows that zod gives',
    (_, stream) => {
      const sound = valid(z.toJSONSchema(stream.item, { io: 'input' }))
      const known = fc.sample(sound, { numRuns: 50, seed: 1 })
      const isSound = compiledCheck(stream.item)
      expect(known.filter((one) => isSound(one)).length).toBeGreaterThan(10)
      const names = fc.constantFrom(...Object.keys(stream.item.shape), 'id', 'unknown')
      const item = fc.oneof(
        { weight: 4, arbitrary: sound },
        {
          weight: 4,
          arbitrary: fc
            .tuple(sound, names, odd)
            .map(([whole, name, value]) => ({ ...(whole as Record<string, unknown>), [name]: value })),
        },
        { weight: 1, arbitrary: odd },
      )
      let accepted = 0
      fc.assert(
        fc.property(fc.array(item, { minLength: 200, maxLength: 250, size: 'max' }), (items) => {
          const asked = stream.by === 'day' ? range : undefined
          const compiled = siftInto(stream, items, { range: asked, needsTextCheck: false }, new RowList())
          const judged = items.map((one) =>
            siftInto(stream, [one], { range: asked, needsTextCheck: false }, new RowList()),
          )
          const verdicts = judged.map(({ rejects }) => rejects[0]?.reason)
          for (const { index, reason } of compiled.rejects)
            if (reason !== CONTRADICTION) expect([index, reason]).toEqual([index, verdicts[index]])
          const rejected = new Set(compiled.rejects.map(({ index }) => index))
          expect(items.flatMap((_, at) => (verdicts[at] === undefined || rejected.has(at) ? [] : [at]))).toEqual([])
          const rows = new Set(judged.flatMap(({ rows: of }) => of.values.map((one) => JSON.stringify(one))))
          for (const one of compiled.rows.values)
            expect(stream.adds ? '' : rows.has(JSON.stringify(one)) ? '' : one).toBe('')
          accepted += rows.size
        }),
        { numRuns: sized(2, 100), endOnFailure: true },
      )
      expect(accepted).toBeGreaterThan(0)
    },
  )
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
  const sift = (stream: Stream, items: unknown[], options: Asked) => {
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
