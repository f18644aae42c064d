import { beforeAll, describe, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { sql } from 'kysely'
import { addDays, type Day, dayFromNumber, dayNumber, daysIn } from '../src/core/day.ts'
import { PackedRows } from '../src/rows/packed-rows.ts'
import { brandReport } from '../src/streams/brand-report.ts'
import type { Row } from '../src/streams/stream.ts'
import { type DayFacts, judgeDay } from '../src/sync/reconcile/judge-day.ts'
import { replaceWindow, windowSnapshot } from '../src/warehouse/load/replace-window.ts'
import { RowHashes, readSnapshot, snapshotOf } from '../src/warehouse/load/row-digest.ts'
import { copyRows } from '../src/warehouse/load/stage.ts'
import type { DayLoss, Effect } from '../src/warehouse/load/window-effect.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { inTransaction } from '../src/warehouse/transaction.ts'
import { sized } from './support/long.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { configOf } from './support/setup.ts'

describe('replacing a window', () => {
  /* Replacing a window, held against a model of a few lines: any table, any answer, any facts on its days. */

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

  /** The facts on each day besides its rows. */
  type Facts = Pick<DayFacts, 'comparison' | 'isOpen' | 'hasRejects' | 'acceptsDeletes' | 'exceedsTotals' | 'isForeign'>

  const verdictOf = (facts: Facts, present: number, vanishing: number) =>
    judgeDay({ ...facts, vanishes: vanishing * 2 > present, hasRows: present > 0 })

  /** What the window must look like afterwards. */
  function model(before: Content, answer: Content, facts: readonly Facts[]) {
    const on = (content: Content, day: Day) => [...content.keys()].filter((key) => dayOf(key) === day)
    const after: Content = new Map([...before].filter(([key]) => !DAYS.includes(dayOf(key))))
    for (const [at, day] of DAYS.entries()) {
      const present = on(before, day)
      const vanishing = present.filter((key) => !answer.has(key))
      const { action } = verdictOf(facts[at]!, present.length, vanishing.length)
      if (action !== 'replace') for (const key of present) after.set(key, before.get(key)!)
      if (action !== 'keep') for (const key of on(answer, day)) after.set(key, answer.get(key)!)
    }
    return after
  }

  async function readTable() {
    const rows = await database.rows<{ date: Day; brand_id: string; model_id: string | null; n: number; ctid: string }>(
      'select date, brand_id, model_id, mention_count as n, ctid::text as ctid from visibility.modelled',
    )
    const content: Content = new Map(rows.map((row) => [keyOf(row.date, row.brand_id, row.model_id), row.n]))
    const places = new Map(rows.map((row) => [keyOf(row.date, row.brand_id, row.model_id), row.ctid]))
    return { content, places }
  }

  async function replace(before: Content, answer: Content, facts: readonly Facts[]): Promise<Effect> {
    const { warehouse } = database
    await database.rows('truncate visibility.modelled')
    await inTransaction(warehouse, (tx) =>
      copyRows(tx, 'data.modelled', PackedRows.of(stream.columns, PROJECT, rowsOf(before))),
    )
    return inTransaction(warehouse, async (tx) => {
      const window = { projectId: PROJECT, stream, range: RANGE }
      const { rows: snapshots } = await windowSnapshot(window).execute(tx.db)
      const rows = PackedRows.of(stream.columns, PROJECT, rowsOf(answer))
      const rowsByDay = new Map<Day, number>()
      for (const key of answer.keys()) rowsByDay.set(dayOf(key), (rowsByDay.get(dayOf(key)) ?? 0) + 1)
      const actionOf = ({ date, present, vanishing }: DayLoss) =>
        verdictOf(facts[DAYS.indexOf(date)]!, present, vanishing).action
      return replaceWindow(tx, readSnapshot(snapshots[0]!), {
        ...window,
        actionOf,
        rows,
        rowsByDay,
        newerDays: sql`select null::date where false`,
      })
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

  const facts: fc.Arbitrary<Facts> = fc.record({
    comparison: fc.constantFrom('adds up', 'adds up', 'none', 'differs', 'agreed', 'unknown'),
    isOpen: fc.boolean(),
    hasRejects: fc.boolean(),
    acceptsDeletes: fc.boolean(),
    exceedsTotals: fc.boolean(),
    isForeign: fc.nat(9).map((n) => n === 0),
  })

  test('any answer leaves the table as the model predicts, touches only rows that differ, and counts its changes', async () => {
    const outside = [...DAYS, addDays(RANGE.from, -1), addDays(RANGE.to, 1)]
    await fc.assert(
      fc.asyncProperty(
        content(outside, 24),
        content(DAYS, 24),
        fc.double({ min: 0, max: 1, noNaN: true }),
        fc.array(facts, { minLength: DAYS.length, maxLength: DAYS.length }),
        fc.subarray(DAYS, { maxLength: 1 }),
        async (before, random, share, ofDays, emptied) => {
          // Most answers are much like what is there.
          const inside = [...before].filter(([key]) => DAYS.includes(dayOf(key)))
          const alike = [...inside.slice(0, Math.ceil(inside.length * share)), ...random]
          const answer: Content = new Map(alike.filter(([key]) => !emptied.includes(dayOf(key))))
          const expected = model(before, answer, ofDays)
          const effect = await replace(before, answer, ofDays)
          const { content: after } = await readTable()
          expect(Object.fromEntries([...after].sort())).toEqual(Object.fromEntries([...expected].sort()))
          for (const day of DAYS) {
            const rows = [...expected.keys()].filter((key) => dayOf(key) === day).length
            expect([day, effect.rowsByDay.get(day) ?? 0]).toEqual([day, rows])
          }
          const added = [...expected.keys()].filter((key) => !before.has(key)).length
          const gone = [...before.keys()].filter((key) => !expected.has(key)).length
          const changed = [...before].filter(([key, n]) => (expected.get(key) ?? n) !== n).length
          expect([effect.inserted, effect.deleted, effect.updated]).toEqual([added, gone, changed])
        },
      ),
      { numRuns: Number(process.env.PROPERTY_RUNS ?? 80), seed: 7 },
    )
  })
})

describe('rows as bytes', () => {
  let database: TestDatabase
  beforeAll(async () => {
    database = await createDatabase()
  })
  // Postgres stores neither NUL nor half a surrogate pair; the sifter rejects rows that hold one.
  const text = fc
    .oneof(
      fc.string({ unit: 'binary', maxLength: 40 }),
      fc.string({ unit: 'grapheme' }),
      fc.constantFrom('', 'é', '\\N', '\t', '\n', '\r\n', '"', "'", '\\', 'NULL', '\u001f'),
    )
    .map((value) => value.replaceAll('\0', ''))
  const number = fc.oneof(
    fc.double({ noNaN: true, noDefaultInfinity: true }),
    fc.integer(),
    fc.constantFrom(0, -0, 1, 1, 0.1 + 0.2, 1e308, 5e-324, 2 ** 53 + 2),
  )
  const day = fc.integer({ min: dayNumber('0001-01-01'), max: dayNumber('9999-12-31') }).map(dayFromNumber)

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
      await inTransaction(database.warehouse, async (tx) => {
        await tx.client.query('truncate digested')
        await copyRows(tx, 'digested', rows)
      })
      const { rows: found } = await snapshotOf(columns, sql`digested t`).execute(database.warehouse.db)
      return readSnapshot(found[0]!).digest
    }

    test('Postgres has the same digest of any rows, in any order', async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(row, { maxLength: 30 }), text, async (rows, project) => {
          expect(await toldBy(packed(rows, project))).toBe(digestOf(packed(rows.toReversed(), project)))
        }),
        { numRuns: sized(60, 400) },
      )
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
        [0, 1, null],
        [0, 2, '2026-03-02'],
        [0, 3, 1],
        [0, 4, null],
        [2, 5, 5e-324],
        [0, 6, null],
        [2, 7, 'null'],
      ]
      for (const [at, column, value] of others) {
        const rows = base.map((values, index) => (index === at ? values.with(column, value) : values))
        seen.add(digestOf(packed(rows)))
      }
      expect(seen.size).toBe(others.length + 1)
    })
  })
})
