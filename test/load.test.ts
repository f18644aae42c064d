import { beforeAll, describe, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { addDays, type Day, dayFromNumber, dayNumber, daysIn } from '../src/core/day.ts'
import { PackedRows, SegmentMemory } from '../src/rows/packed-rows.ts'
import { brandReport } from '../src/streams/brand-report.ts'
import type { Row } from '../src/streams/stream.ts'
import { replaceWindow, windowSnapshot } from '../src/warehouse/load/replace-window.ts'
import { digestSql, RowHashes, rowHashSql } from '../src/warehouse/load/row-digest.ts'
import { copyRows } from '../src/warehouse/load/stage.ts'
import type { Effect } from '../src/warehouse/load/window-effect.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { inTransaction, runBatch } from '../src/warehouse/transaction.ts'
import { sized } from './support/long.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { configOf } from './support/setup.ts'

describe('replacing a window', () => {
  /* Replacing a window, held against a model of a few lines: any table, any answer, held days and kept rows. */

  const REPORT = { name: 'modelled', dimensions: ['date' as const, 'model_id' as const], filters: [] }
  const stream = brandReport(REPORT)
  const PROJECT = 'or_model'
  const RANGE = { from: '2026-03-01', to: '2026-03-04' }
  const DAYS = daysIn(RANGE)

  let database: TestDatabase
  beforeAll(async () => {
    database = await createDatabase('migrated')
    await migrate(database.warehouse, configOf({ reports: [REPORT], streams: [] }))
  })

  /** The rows of a table or an answer: the number of mentions by day, brand and model. */
  type Content = Map<string, number>
  const keyOf = (day: Day, brand: string, model: string | null) => JSON.stringify([day, brand, model])
  const dayOf = (key: string) => (JSON.parse(key) as [Day])[0]

  function rowsOf(content: Content): Row[] {
    return [...content].map(([key, mentions]) => {
      const [day, brand, model] = JSON.parse(key) as [Day, string, string | null]
      const row: Row = stream.columns.map(() => null)
      row[0] = day
      row[1] = brand
      row[2] = model
      row[3] = mentions
      for (const at of [4, 5, 6]) row[at] = 1
      return row
    })
  }

  interface Load {
    mayDelete: boolean
    acceptDeletes: boolean
    heldBefore: Set<Day>
    proven: Set<Day>
  }

  /** What the window must look like afterwards. */
  function model(before: Content, answer: Content, load: Load) {
    const on = (content: Content, day: Day) => [...content.keys()].filter((key) => dayOf(key) === day)
    const vanishing = (day: Day) => on(before, day).filter((key) => !answer.has(key)).length
    const trusted = DAYS.filter((day) => !load.proven.has(day))
    const sum = (of: (day: Day) => number, days: readonly Day[]) => days.reduce((total, day) => total + of(day), 0)
    const most = sum(vanishing, trusted) * 2 > sum((day) => on(before, day).length, DAYS)
    const held = trusted.filter(
      (day) =>
        !load.acceptDeletes &&
        vanishing(day) > 0 &&
        (most ||
          (load.mayDelete && on(answer, day).length === 0) ||
          (load.heldBefore.has(day) && vanishing(day) * 2 > on(before, day).length)),
    )
    const after: Content = new Map([...before].filter(([key]) => !DAYS.includes(dayOf(key))))
    for (const day of DAYS) {
      const isHeld = held.includes(day)
      if (isHeld || !load.mayDelete) for (const key of on(before, day)) after.set(key, before.get(key)!)
      if (!isHeld) for (const key of on(answer, day)) after.set(key, answer.get(key)!)
    }
    return { held, after }
  }

  async function readTable() {
    const rows = await database.rows<{ date: Day; brand_id: string; model_id: string | null; n: number; ctid: string }>(
      'select date, brand_id, model_id, mention_count as n, ctid::text as ctid from visibility.modelled',
    )
    const content: Content = new Map(rows.map((row) => [keyOf(row.date, row.brand_id, row.model_id), row.n]))
    const places = new Map(rows.map((row) => [keyOf(row.date, row.brand_id, row.model_id), row.ctid]))
    return { content, places }
  }

  async function replace(before: Content, answer: Content, load: Load): Promise<Effect> {
    const { warehouse } = database
    await database.rows('truncate visibility.modelled')
    await inTransaction(warehouse, ({ client }) =>
      copyRows(client, 'visibility.modelled', PackedRows.of(stream.columns, PROJECT, rowsOf(before))),
    )
    return inTransaction(warehouse, async (tx) => {
      const window = { projectId: PROJECT, stream, range: RANGE }
      const [there] = await runBatch(tx.client, windowSnapshot(warehouse, window))
      const rows = PackedRows.of(stream.columns, PROJECT, rowsOf(answer))
      const rowsByDay = new Map<Day, number>()
      for (const key of answer.keys()) rowsByDay.set(dayOf(key), (rowsByDay.get(dayOf(key)) ?? 0) + 1)
      return replaceWindow(tx, there, { ...window, ...load, rows, rowsByDay, fencingToken: 1 })
    })
  }

  const content = (days: readonly Day[], maxLength: number) =>
    fc
      .array(
        fc.tuple(
          fc.constantFrom(...days),
          fc.constantFrom('a', 'b', 'c', 'd'),
          fc.constantFrom('m', 'n', null),
          fc.integer({ min: 0, max: 2 }),
        ),
        { maxLength },
      )
      .map((rows): Content => new Map(rows.map(([day, brand, model_, n]) => [keyOf(day, brand, model_), n])))

  test('any answer leaves the table as the model predicts, touches only rows that differ, and counts its changes', async () => {
    const outside = [...DAYS, addDays(RANGE.from, -1), addDays(RANGE.to, 1)]
    await fc.assert(
      fc.asyncProperty(
        content(outside, 24),
        content(DAYS, 24),
        fc.double({ min: 0, max: 1, noNaN: true }),
        fc.boolean(),
        fc.boolean(),
        fc.subarray(DAYS),
        fc.subarray(DAYS),
        fc.subarray(DAYS, { maxLength: 1 }),
        async (before, random, share, mayDelete, acceptDeletes, held, proven, emptied) => {
          // Most answers are much like what is there.
          const inside = [...before].filter(([key]) => DAYS.includes(dayOf(key)))
          const alike = [...inside.slice(0, Math.ceil(inside.length * share)), ...random]
          const answer: Content = new Map(alike.filter(([key]) => !emptied.includes(dayOf(key))))
          const load = { mayDelete, acceptDeletes, heldBefore: new Set(held), proven: new Set(proven) }
          const expected = model(before, answer, load)
          const effect = await replace(before, answer, load)
          const { content: after } = await readTable()
          expect(Object.fromEntries([...after].sort())).toEqual(Object.fromEntries([...expected.after].sort()))
          expect([...(effect.held?.days ?? [])].sort()).toEqual(expected.held)
          for (const day of DAYS) {
            const rows = [...expected.after.keys()].filter((key) => dayOf(key) === day).length
            expect([day, effect.rowsByDay.get(day) ?? 0]).toEqual([day, rows])
          }
          const added = [...expected.after.keys()].filter((key) => !before.has(key)).length
          const gone = [...before.keys()].filter((key) => !expected.after.has(key)).length
          const changed = [...before].filter(([key, n]) => (expected.after.get(key) ?? n) !== n).length
          expect([effect.inserted, effect.deleted, effect.updated]).toEqual([added, gone, changed])
        },
      ),
      { numRuns: Number(process.env.PROPERTY_RUNS ?? 80), seed: 7 },
    )
  })

  test('the same answer again moves no row', async () => {
    const answer: Content = new Map(DAYS.map((day, index) => [keyOf(day, 'a', 'm'), index]))
    const load = { mayDelete: true, acceptDeletes: false, heldBefore: new Set<Day>(), proven: new Set<Day>() }
    const before: Content = new Map([...answer, [keyOf(DAYS[0]!, 'b', null), 5]])
    await replace(before, answer, load)
    const { places } = await readTable()
    const { warehouse } = database
    await inTransaction(warehouse, async (tx) => {
      const window = { projectId: PROJECT, stream, range: RANGE }
      const [there] = await runBatch(tx.client, windowSnapshot(warehouse, window))
      const rows = PackedRows.of(stream.columns, PROJECT, rowsOf(answer))
      const rowsByDay = new Map(DAYS.map((day) => [day, 1]))
      const effect = await replaceWindow(tx, there, { ...window, ...load, rows, rowsByDay, fencingToken: 2 })
      expect(effect).toMatchObject({ inserted: 0, updated: 0, deleted: 0, unchanged: DAYS.length })
    })
    expect((await readTable()).places).toEqual(places)
  })
})

describe('rows as bytes', () => {
  let database: TestDatabase
  beforeAll(async () => {
    database = await createDatabase()
  })

  describe('digests of rows', () => {
    const columns = [
      { name: 'number', type: 'double' },
      { name: 'words', type: 'text' },
      { name: 'day', type: 'date' },
      { name: 'first', type: 'double' },
      { name: 'second', type: 'double' },
      { name: 'third', type: 'double' },
      { name: 'is_so', type: 'boolean' },
      { name: 'document', type: 'jsonb' },
    ] as const

    beforeAll(async () => {
      await database.rows(
        `create table digested (project_id text, number double precision, words text, day date,
       first double precision, second double precision, third double precision, is_so boolean, document jsonb)`,
      )
    })

    const text = fc
      .oneof(
        fc.string({ unit: 'binary', maxLength: 40 }),
        fc.string({ unit: 'grapheme' }),
        fc.constantFrom('', 'é', 'NULL'),
      )
      .map((value) => value.replaceAll('\0', ''))
    const number = fc.oneof(
      fc.double({ noNaN: true, noDefaultInfinity: true }),
      fc.integer(),
      fc.constantFrom(0, -0, 1, 1, 0.1 + 0.2, 1e308, 5e-324, 2 ** 53 + 2),
    )
    const day = fc.integer({ min: dayNumber('0001-01-01'), max: dayNumber('9999-12-31') }).map(dayFromNumber)
    // JavaScript writes other numbers with an exponent, which Postgres does not.
    const plainNumber = number.filter((value) => !String(value).includes('e'))
    const { document } = fc.letrec<{ document: unknown }>((tie) => ({
      document: fc.oneof(
        { maxDepth: 4 },
        plainNumber,
        text,
        fc.boolean(),
        fc.constant(null),
        fc.array(tie('document'), { maxLength: 4 }),
        fc.dictionary(text, tie('document'), { maxKeys: 6 }),
      ),
    }))
    const row: fc.Arbitrary<Row> = fc.tuple(
      fc.option(number),
      fc.option(text),
      fc.option(day),
      fc.option(number),
      fc.option(number),
      fc.option(number),
      fc.option(fc.boolean()),
      fc.option(document.map((value) => JSON.stringify(value))),
    )

    const packed = (rows: Row[], project = 'p') => PackedRows.of(columns, project, rows)
    const digestOf = (rows: PackedRows) => new RowHashes(rows).digest()

    /** What Postgres says of rows that were copied into a table. */
    async function toldBy(rows: PackedRows): Promise<bigint | undefined> {
      await inTransaction(database.warehouse, async ({ client }) => {
        await client.query('truncate digested')
        await copyRows(client, 'digested', rows)
      })
      const [found] = await database.rows<{ digest: string | null }>(
        `select ${digestSql('t', columns)}::text as digest from digested t`,
      )
      return found!.digest === null ? undefined : BigInt(found!.digest)
    }

    test('Postgres has the same digest of any rows, in any order', async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(row, { maxLength: 30 }), text, async (rows, project) => {
          expect(await toldBy(packed(rows, project))).toBe(digestOf(packed(rows.toReversed(), project)))
        }),
        { numRuns: sized(60, 400) },
      )
    })

    test('rows that lie in more than one piece of memory are all in it', async () => {
      const rows: Row[] = Array.from({ length: 9000 }, (_, index) => [
        index,
        `name ${index}`,
        '2026-03-01',
        index / 7,
        null,
        0,
        index % 2 === 0,
        `{"number":${index}}`,
      ])
      expect(await toldBy(packed(rows))).toBe(digestOf(packed(rows)))
    })

    test('a different value, or a value of another row, changes the digest', () => {
      const base: Row[] = [
        [1, 'a', '2026-03-01', 0, 0, 5, true, '{}'],
        [2, 'b', '2026-03-01', 0, 5, 0, false, '[1]'],
        [3, 'c', '2026-03-02', 5, 0, 0, null, null],
      ]
      const seen = new Set([digestOf(packed(base))])
      const others: [number, number, Row[number]][] = [
        [0, 0, 4],
        [0, 1, 'b'],
        [0, 1, 'a '],
        [0, 1, ''],
        [0, 1, null],
        [0, 2, '2026-03-02'],
        [0, 3, 1],
        [0, 3, null],
        [0, 4, null],
        [1, 4, 5.000000000000001],
        [1, 4, -5],
        [2, 3, 0],
        [2, 5, 5e-324],
        [0, 6, false],
        [0, 6, null],
        [2, 6, false],
        [0, 7, null],
        [1, 7, '[1, 1]'],
        [2, 7, 'null'],
      ]
      for (const [at, column, value] of others) {
        const rows = base.map((values, index) => (index === at ? values.with(column, value) : values))
        seen.add(digestOf(packed(rows)))
      }
      expect(seen.size).toBe(others.length + 1)
    })

    test('numbers swapped between rows, or zeroes between columns, change the digest', () => {
      const metrics = fc.array(fc.constantFrom(0, 1, 2, null), { minLength: 3, maxLength: 3 })
      fc.assert(
        fc.property(metrics, metrics, fc.nat(2), fc.nat(2), (one, other, first, second) => {
          const rows = (a: Row, b: Row): Row[] => [
            [1, 'a', '2026-03-01', ...a, true, '{}'],
            [2, 'b', '2026-03-01', ...b, true, '{}'],
          ]
          const digest = (a: Row, b: Row) => digestOf(packed(rows(a, b)))
          const swapped = digest(one.with(first, other[first]!), other.with(first, one[first]!))
          expect(swapped === digest(one, other)).toBe(one[first] === other[first])
          const moved = one.with(first, one[second]!).with(second, one[first]!)
          expect(digest(moved, other) === digest(one, other)).toBe(one[first] === one[second])
        }),
        { numRuns: sized(300, 2000) },
      )
    })

    test('no rows have no digest', () => {
      expect(digestOf(packed([]))).toBeUndefined()
    })

    test('the formatting of JSON documents does not change the digest, and other values do', () => {
      const digest = (document: string) => digestOf(packed([[1, 'a', '2026-03-01', 0, 0, 5, true, document]]))
      const one = digest('{"a": 1, "bb": [true, null]}')
      expect(digest('{"bb":[true,null],"a":1}')).toBe(one)
      for (const other of ['{"a": 1, "bb": [null, true]}', '{"a": "1", "bb": [true, null]}', '{"a": 1}', 'null', '"a"'])
        expect(digest(other)).not.toBe(one)
    })

    test('a row is found by the hash that Postgres has for it, and another hash is not', async () => {
      const day = (index: number) => dayFromNumber(dayNumber('2026-01-01') + index)
      const rows: Row[] = Array.from({ length: 3000 }, (_, index) => [
        index,
        `w${index % 7}`,
        day(index % 31),
        null,
        0,
        1.5,
        null,
        null,
      ])
      await inTransaction(database.warehouse, async ({ client }) => {
        await client.query('truncate digested')
        await copyRows(client, 'digested', packed(rows))
      })
      const known = await database.rows<{ number: number; hash: string }>(
        `select number, ${rowHashSql('t', columns)}::text as hash from digested t`,
      )
      // Every second row of the table is in the answer.
      const find = new RowHashes(packed(rows.filter((_, index) => index % 2 === 0))).finder()
      const halves = (hash: string): [number, number] => [
        Number(BigInt(hash) >> 32n),
        Number(BigInt.asIntN(32, BigInt(hash))),
      ]
      const expected = (number: number) => (number % 2 === 0 ? number / 2 : -1)
      expect(known).toHaveLength(3000)
      for (const { number, hash } of known) expect([number, find(...halves(hash))]).toEqual([number, expected(number)])
      expect(new RowHashes(packed([])).finder()(0, 0)).toBe(-1)
    })
  })

  describe('encoded rows', () => {
    const columns = [
      { name: 'n', type: 'double' },
      { name: 'words', type: 'text' },
      { name: 'number', type: 'double' },
      { name: 'day', type: 'date' },
      { name: 'flag', type: 'boolean' },
      { name: 'document', type: 'jsonb' },
    ] as const

    beforeAll(async () => {
      await database.rows(
        'create table encoded (project_id text, n double precision, words text, number double precision, day date, flag boolean, document jsonb)',
      )
    })

    // Postgres stores neither NUL nor half a surrogate pair; the sifter rejects rows that hold one.
    const text = fc
      .oneof(
        fc.string({ unit: 'binary' }),
        fc.string({ unit: 'grapheme' }),
        fc.constantFrom('', '\\N', '\t', '\n', '\r\n', '"', "'", '\\', 'NULL', '\u001f'),
      )
      .map((value) => value.replaceAll('\0', ''))
    const number = fc.oneof(
      fc.double({ noNaN: true, noDefaultInfinity: true }),
      fc.integer(),
      fc.constantFrom(0, 0.1 + 0.2, 1e308, 5e-324, 2 ** 53 + 2),
    )
    const date = fc.integer({ min: dayNumber('0001-01-01'), max: dayNumber('9999-12-31') }).map(dayFromNumber)
    const json = fc
      .oneof(fc.record({ a: text, b: fc.option(fc.integer()) }), fc.array(text))
      .map((value) => JSON.stringify(value))
    const row = fc.tuple(fc.option(text), fc.option(number), fc.option(date), fc.option(fc.boolean()), fc.option(json))

    test('any string, number, day, truth value, JSON and null comes back from Postgres as it went in', async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(row, { maxLength: 40 }), text, async (values, project) => {
          const rows: Row[] = values.map((value, index) => [index, ...value])
          await inTransaction(database.warehouse, async ({ client }) => {
            await client.query('truncate encoded')
            await copyRows(client, 'encoded', PackedRows.of(columns, project, rows))
          })
          const found = await database.rows<Record<string, unknown>>(
            'select *, document::text as document from encoded order by n',
          )
          expect(
            found.map((entry) => [
              entry.project_id,
              entry.words,
              Object.is(entry.number, -0) ? 0 : entry.number,
              entry.day,
              entry.flag,
            ]),
          ).toEqual(
            rows.map(([, words, value, day, flag]) => [project, words, Object.is(value, -0) ? 0 : value, day, flag]),
          )
          expect(found.map((entry) => (entry.document === null ? null : JSON.parse(entry.document as string)))).toEqual(
            rows.map((entry) => (entry[5] === null ? null : JSON.parse(entry[5] as string))),
          )
        }),
        { numRuns: 60 },
      )
    })

    test('a page larger than the buffer and one without rows are copied whole', async () => {
      const long = 'ß'.repeat(50_000)
      const rows: Row[] = Array.from({ length: 200 }, (_, index) => [index, long, 1, '2026-01-01', true, '{}'])
      await inTransaction(database.warehouse, async ({ client }) => {
        await client.query('truncate encoded')
        await copyRows(client, 'encoded', PackedRows.of(columns, 'p', rows))
        await copyRows(client, 'encoded', PackedRows.of(columns, 'p', []))
      })
      const [sum] = await database.rows<{ rows: number; length: number }>(
        'select count(*)::int as rows, sum(length(words))::int as length from encoded',
      )
      expect(sum).toEqual({ rows: 200, length: 200 * 50_000 })
    })

    test('rows stay what they are while others use memory that was given back', () => {
      const memory = new SegmentMemory()
      const rowsOf = (name: string): Row[] =>
        Array.from({ length: 8000 }, (_, index) => [index, `${name} ${index}`, index / 3, '2026-01-01', true, null])
      const pack = (name: string) => {
        const packed = new PackedRows(columns, name, memory)
        for (const row of rowsOf(name)) packed.add(row)
        return packed
      }
      const bytesOf = (rows: PackedRows) => Buffer.concat([...rows.chunks()])
      const first = pack('first')
      const second = pack('second')
      second.setOrder(() => Array.from({ length: 8000 }, (_, index) => 7999 - index))
      second.reorder()
      pack('third').release()
      pack('fourth')
      expect(bytesOf(first).equals(bytesOf(PackedRows.of(columns, 'first', rowsOf('first'))))).toBe(true)
      const reversed = PackedRows.of(columns, 'second', rowsOf('second').toReversed())
      expect(bytesOf(second).equals(bytesOf(reversed))).toBe(true)
    })
  })
})
