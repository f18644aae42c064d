import { afterAll, beforeAll, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { addDays, type Day, daysIn } from '../src/core/day.ts'
import { PackedRows } from '../src/rows/packed-rows.ts'
import { brandReport } from '../src/streams/brand-report.ts'
import type { Row } from '../src/streams/stream.ts'
import { replaceWindow, windowSnapshot } from '../src/warehouse/load/replace-window.ts'
import { copyRows } from '../src/warehouse/load/stage.ts'
import type { Effect } from '../src/warehouse/load/window-effect.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { inTransaction, runBatch } from '../src/warehouse/transaction.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { configOf } from './support/setup.ts'

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
afterAll(() => database.drop())

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
}

/** What the window must look like afterwards. */
function model(before: Content, answer: Content, load: Load) {
  const on = (content: Content, day: Day) => [...content.keys()].filter((key) => dayOf(key) === day)
  const vanishing = (day: Day) => on(before, day).filter((key) => !answer.has(key)).length
  const sum = (of: (day: Day) => number) => DAYS.reduce((total, day) => total + of(day), 0)
  const most = sum(vanishing) * 2 > sum((day) => on(before, day).length)
  const held = DAYS.filter(
    (day) =>
      !load.acceptDeletes &&
      vanishing(day) > 0 &&
      (most || (load.heldBefore.has(day) && vanishing(day) * 2 > on(before, day).length)),
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
    return replaceWindow(tx, warehouse, there, { ...window, ...load, rows, rowsByDay, fencingToken: 1 })
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

test('any answer leaves the table as the model says, touches only rows that differ, and counts what it did', async () => {
  const outside = [...DAYS, addDays(RANGE.from, -1), addDays(RANGE.to, 1)]
  await fc.assert(
    fc.asyncProperty(
      content(outside, 24),
      content(DAYS, 24),
      fc.double({ min: 0, max: 1, noNaN: true }),
      fc.boolean(),
      fc.boolean(),
      fc.subarray(DAYS),
      async (before, random, share, mayDelete, acceptDeletes, held) => {
        // Most answers are much like what is there.
        const inside = [...before].filter(([key]) => DAYS.includes(dayOf(key)))
        const answer: Content = new Map([...inside.slice(0, Math.ceil(inside.length * share)), ...random])
        const load = { mayDelete, acceptDeletes, heldBefore: new Set(held) }
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
  const load = { mayDelete: true, acceptDeletes: false, heldBefore: new Set<Day>() }
  const before: Content = new Map([...answer, [keyOf(DAYS[0]!, 'b', null), 5]])
  await replace(before, answer, load)
  const { places } = await readTable()
  const { warehouse } = database
  await inTransaction(warehouse, async (tx) => {
    const window = { projectId: PROJECT, stream, range: RANGE }
    const [there] = await runBatch(tx.client, windowSnapshot(warehouse, window))
    const rows = PackedRows.of(stream.columns, PROJECT, rowsOf(answer))
    const rowsByDay = new Map(DAYS.map((day) => [day, 1]))
    const effect = await replaceWindow(tx, warehouse, there, { ...window, ...load, rows, rowsByDay, fencingToken: 2 })
    expect(effect).toMatchObject({ inserted: 0, updated: 0, deleted: 0, unchanged: DAYS.length })
  })
  expect((await readTable()).places).toEqual(places)
})
