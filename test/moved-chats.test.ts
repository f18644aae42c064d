import { describe, expect, test } from '@jest/globals'
import { sql } from 'kysely'
import type { Day, Range } from '../src/core/day.ts'
import { PackedRows } from '../src/rows/packed-rows.ts'
import { chats } from '../src/streams/chats.ts'
import { replaceWindow, windowSnapshot } from '../src/warehouse/load/replace-window.ts'
import { readSnapshot } from '../src/warehouse/load/row-digest.ts'
import { copyRows } from '../src/warehouse/load/stage.ts'
import type { Action, Effect } from '../src/warehouse/load/window-effect.ts'
import { inTransaction } from '../src/warehouse/transaction.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'

/* The key of a chat has no date, so a chat can move from one day to another. */

const [FIRST, SECOND, THIRD] = ['2026-03-01', '2026-03-02', '2026-03-03'] as const

/** The day of each chat. */
type Days = Record<string, Day>

const rowsOf = (days: Days, project = 'or_1') =>
  PackedRows.of(
    chats.columns,
    project,
    Object.entries(days).map(([id, date]) => [id, 'pr_1', 'model', null, date]),
  )

async function tableWith(...projects: [Days, string?][]): Promise<TestDatabase> {
  const database = await createDatabase('reports')
  for (const [days, project] of projects)
    await inTransaction(database.warehouse, (tx) => copyRows(tx, 'data.chats', rowsOf(days, project)))
  return database
}

async function chatsOf({ rows }: TestDatabase, project = 'or_1'): Promise<Days> {
  const found = await rows<{ chat_id: string; date: Day }>(
    'select chat_id, date from visibility.chats where project_id = $1',
    [project],
  )
  return Object.fromEntries(found.map(({ chat_id, date }) => [chat_id, date]))
}

interface Answer {
  range?: Range
  kept?: Day[]
  /** Days that were read after this answer was asked for. */
  newer?: Day[]
}

function replace(database: TestDatabase, days: Days, answer: Answer = {}): Promise<Effect> {
  const { range = { from: SECOND, to: THIRD }, kept = [], newer = [] } = answer
  const window = { projectId: 'or_1', stream: chats, range }
  const rowsByDay = new Map<Day, number>()
  for (const date of Object.values(days)) rowsByDay.set(date, (rowsByDay.get(date) ?? 0) + 1)
  return inTransaction(database.warehouse, async (tx) => {
    const { rows: snapshots } = await windowSnapshot(window).execute(tx.db)
    return replaceWindow(tx, readSnapshot(snapshots[0]!), {
      ...window,
      rows: rowsOf(days),
      rowsByDay,
      actionOf: ({ date }): Action => (kept.includes(date) ? 'keep' : 'replace'),
      newerDays: sql`select unnest(${newer}::date[])`,
    })
  })
}

describe('a chat that moves', () => {
  test('within the window has its new day', async () => {
    const database = await tableWith([{ a: SECOND, b: THIRD }])
    const effect = await replace(database, { a: THIRD, b: THIRD })
    expect(await chatsOf(database)).toEqual({ a: THIRD, b: THIRD })
    expect([effect.inserted, effect.updated, effect.deleted, [...effect.movedFrom]]).toEqual([0, 1, 0, []])
  })

  test('into a window of as many chats is moved, and its old day is named', async () => {
    const database = await tableWith([{ a: FIRST, b: SECOND }])
    const effect = await replace(database, { a: SECOND })
    expect(await chatsOf(database)).toEqual({ a: SECOND })
    expect([effect.inserted, effect.updated, effect.deleted]).toEqual([0, 1, 1])
    expect([...effect.movedFrom]).toEqual([[FIRST, 1]])
  })

  test('into an empty window beside new chats is moved, and not inserted', async () => {
    const database = await tableWith([{ a: FIRST }])
    const effect = await replace(database, { a: SECOND, b: SECOND })
    expect(await chatsOf(database)).toEqual({ a: SECOND, b: SECOND })
    expect([effect.inserted, effect.updated, effect.rowsByDay.get(SECOND)]).toEqual([1, 1, 2])
    expect([...effect.movedFrom]).toEqual([[FIRST, 1]])
  })

  test('into a day that is kept stays where it was, whatever else is written', async () => {
    const database = await tableWith([{ a: FIRST, b: SECOND, d: FIRST }])
    const effect = await replace(database, { a: SECOND, c: THIRD, d: THIRD }, { kept: [SECOND] })
    expect(await chatsOf(database)).toEqual({ a: FIRST, b: SECOND, c: THIRD, d: THIRD })
    expect([...effect.movedFrom]).toEqual([[FIRST, 1]])
    expect(Object.fromEntries(effect.rowsByDay)).toEqual({ [SECOND]: 1, [THIRD]: 2 })
  })

  test('out of a day that was read later stays there', async () => {
    const database = await tableWith([{ a: FIRST, b: SECOND }])
    await replace(database, { a: SECOND, b: SECOND }, { newer: [FIRST] })
    expect(await chatsOf(database)).toEqual({ a: FIRST, b: SECOND })
  })

  test('is another one than that of another project', async () => {
    const database = await tableWith([{ a: FIRST }, 'or_2'], [{ b: SECOND }])
    await replace(database, { a: SECOND, b: SECOND })
    expect([await chatsOf(database), await chatsOf(database, 'or_2')]).toEqual([{ a: SECOND, b: SECOND }, { a: FIRST }])
  })
})
