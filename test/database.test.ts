import { expect, test } from '@jest/globals'
import { sql } from 'kysely'
import { batch, connectionsOf, Db, dataTable, writtenOut } from '../src/warehouse/database.ts'
import { inTransaction } from '../src/warehouse/transaction.ts'
import { createDatabase } from './support/postgres.ts'

const HOSTILE = [
  ...["it's", '"quoted"', '\\', "\\'; drop table x; --", '$1', '${x}', '{a,b}', 'null', '', ' ', 'ä€😀', '\n\t', ';'],
  'x'.repeat(70),
]

test('values arrive the same as parameters and written out', async () => {
  const { warehouse } = await createDatabase()
  const values = [-1, 0.5, 12n, true, null, new Date('2026-03-01T10:11:12.345Z'), ...HOSTILE]
  for (const value of values) {
    const type = sql.raw(
      typeof value === 'number' || typeof value === 'bigint'
        ? 'float8'
        : typeof value === 'boolean'
          ? 'boolean'
          : value instanceof Date
            ? 'timestamptz'
            : 'text',
    )
    const query = sql<{ value: unknown }>`select ${value}::${type} as value`
    const { rows } = await query.execute(warehouse.db)
    const [written, again] = await batch(warehouse.db, query, query)
    expect([written, again]).toEqual([rows, rows])
    expect(rows[0]!.value).toEqual(typeof value === 'bigint' ? Number(value) : value)
  }
})

test('lists arrive the same as parameters and written out', async () => {
  const { warehouse } = await createDatabase()
  const list = [...HOSTILE, null]
  const query = sql<{ list: string[] }>`select ${list}::text[] as list`
  expect((await query.execute(warehouse.db)).rows).toEqual([{ list }])
  expect(await batch(warehouse.db, query)).toEqual([[{ list }]])
})

test('a value with a NUL character is refused, for Postgres would take it for the end of the statement', async () => {
  const { warehouse } = await createDatabase()
  await expect(batch(warehouse.db, sql`select ${'a\0b'}`)).rejects.toThrow('NUL')
})

test('a negative number is no comment after a minus', async () => {
  const { warehouse } = await createDatabase()
  expect(writtenOut(warehouse.db, sql`select 1 -${-2}`)).toBe('select 1 -(-2)')
})

test('several statements in one message give the rows of each, in order', async () => {
  const { warehouse } = await createDatabase()
  const one = sql<{ n: number }>`select generate_series(1, 2) as n`
  const none = sql<{ n: number }>`select 1 as n limit 0`
  expect(await batch(warehouse.db, one, none, one)).toEqual([[{ n: 1 }, { n: 2 }], [], [{ n: 1 }, { n: 2 }]])
})

test('statements of a transaction that are asked for at once are sent one after the other', async () => {
  const { warehouse } = await createDatabase()
  const found = await inTransaction(warehouse, ({ db }) =>
    Promise.all([1, 2, 3].map(async (n) => (await sql<{ n: number }>`select ${n}::int as n`.execute(db)).rows[0]!.n)),
  )
  expect(found).toEqual([1, 2, 3])
})

test('tables of both schemas are found, whatever the schemas are called', async () => {
  const { warehouse } = await createDatabase()
  const named = { schema: 'Odd "name" $1', opsSchema: `o'ps ${'x'.repeat(50)}` }

  const db = new Db(named, connectionsOf(warehouse.pool))
  for (const name of [named.schema, named.opsSchema]) await sql`create schema ${sql.id(name)}`.execute(db)
  await sql`create table ${dataTable('prompts')} (prompt_id text)`.execute(db)
  await sql`create table ops.runs (run_id int8 default 7, host text)`.execute(db)
  await batch(db, sql`insert into ${dataTable('prompts')} values (${'$1'})`, sql`insert into ops.runs default values`)
  expect(await db.selectFrom('data.prompts as p').select('p.prompt_id').execute()).toEqual([{ prompt_id: '$1' }])
  expect(await db.selectFrom('ops.runs').select('ops.runs.run_id').execute()).toEqual([{ run_id: 7 }])
  const texts = sql`select 'my data.x' as text, 1 as "my ops.x" from ops.runs`
  expect((await texts.execute(db)).rows).toEqual([{ text: 'my data.x', 'my ops.x': 1 }])
})

test('schemas may be called like the words that stand for them, and queries stand inside of others', async () => {
  const { warehouse } = await createDatabase()
  const db = new Db({ schema: 'ops', opsSchema: 'ops_ops' }, connectionsOf(warehouse.pool))
  for (const name of ['ops', 'ops_ops']) await sql`create schema ${sql.id(name)}`.execute(db)
  await sql`create table ${dataTable('prompts')} (prompt_id text default 'p')`.execute(db)
  await sql`insert into ${dataTable('prompts')} default values`.execute(db)
  const prompts = db.selectFrom('data.prompts').select('prompt_id')
  const found = [{ prompt_id: 'p' }]
  expect(await prompts.execute()).toEqual(found)
  expect(await batch(db, prompts)).toEqual([found])
  expect((await sql`select * from (${prompts}) p`.execute(db)).rows).toEqual(found)
})
