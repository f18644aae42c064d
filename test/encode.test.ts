import { afterAll, beforeAll, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { dayFromNumber, dayNumber } from '../src/core/day.ts'
import { PackedRows, SegmentMemory } from '../src/rows/packed-rows.ts'
import type { Row } from '../src/streams/stream.ts'
import { copyRows } from '../src/warehouse/load/stage.ts'
import { inTransaction } from '../src/warehouse/transaction.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'

let database: TestDatabase
const columns = [
  { name: 'n', type: 'double' },
  { name: 'words', type: 'text' },
  { name: 'number', type: 'double' },
  { name: 'day', type: 'date' },
  { name: 'flag', type: 'boolean' },
  { name: 'document', type: 'jsonb' },
] as const

beforeAll(async () => {
  database = await createDatabase()
  await database.rows(
    'create table encoded (project_id text, n double precision, words text, number double precision, day date, flag boolean, document jsonb)',
  )
})
afterAll(() => database.drop())

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
