import { randomBytes } from 'node:crypto'
import { afterEach, expect, test } from '@jest/globals'
import { Client } from 'pg'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { madeBy, readMigrations } from '../src/warehouse/schema/migrations.ts'
import { runCli } from './support/cli.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { configOf, FOUR_GRAINS, type Setup, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

/* What somebody dropped is made again or named, and what belongs to somebody else is refused. */

let setup: Setup | undefined
let database: TestDatabase | undefined
afterEach(async () => {
  await setup?.close()
  await database?.drop()
  setup = database = undefined
})

interface Checked {
  ok: boolean
  verdicts: { what: string; ok: boolean; detail: string }[]
  notes: string[]
}

test('a report table, a column, tables for BI and views that were dropped are made again, and their days are read again', async () => {
  setup = await setUp({ world: { projects: 1, prompts: 4, models: 2, brands: 3 } })
  const { rows } = setup.database
  await setup.sync()
  const viewsBefore = await rows("select viewname from pg_views where schemaname ~ '^visibility' order by 1")
  await rows('drop table visibility.by_topic cascade')
  await rows('alter table visibility.brand_daily drop column visibility_count cascade')
  await rows('drop table visibility.prompts, visibility.brands, visibility.chats cascade')
  await rows('drop table visibility_ops.calendar cascade; drop view visibility_ops.days_read cascade')
  await rows('drop function visibility.wilson_low cascade; drop function visibility_ops.sums_of cascade')
  await rows('drop trigger summarize_updates on visibility_ops.coverage')

  const checked = (await runCli(['check', '--json'], { env: setup.env, config: setup.fileConfig })).json() as Checked
  const notes = checked.notes.join('\n')
  for (const name of ['visibility.by_topic', 'visibility_count of visibility.brand_daily', 'visibility.prompts'])
    expect(notes).toContain(`${name} is missing`)

  const report = await setup.sync()
  expect(report.outcome).toBe('complete')
  expect(report.notes.join('\n')).toMatch(
    /the table visibility\.by_topic: missing, and made again; \d+ days to be read/,
  )
  expect(report.notes.join('\n')).toContain('the column visibility_count of visibility.brand_daily: missing')
  expect(report.notes.join('\n')).toMatch(/the views .*visibility_daily.*: missing/)
  const { from, to } = { from: '2026-03-01', to: '2026-03-31' }
  await expectExact(setup.database, { world: setup.service.world, range: { from, to }, reports: FOUR_GRAINS })
  expect(await rows("select viewname from pg_views where schemaname ~ '^visibility' order by 1")).toEqual(viewsBefore)
  expect((await rows('select * from visibility_ops.calendar limit 1')).length).toBe(1)
  const again = await setup.sync()
  expect(again.notes).toEqual([])
  expect(again.streams.every((row) => row.inserted + row.updated + row.deleted === 0)).toBe(true)
})

test('check refuses a changed report, as a run does', async () => {
  setup = await setUp({ world: { projects: 1, prompts: 2, models: 1, brands: 2 } })
  await setup.sync()
  const reports = FOUR_GRAINS.map((report) =>
    report.name === 'brand_daily' ? { ...report, dimensions: ['date', 'model_id'] } : report,
  )
  const changed = await runCli(['check', '--json'], { env: setup.env, config: { ...setup.fileConfig, reports } })
  const { verdicts } = changed.json() as Checked
  const detail = expect.stringContaining('the dimensions of "brand_daily" were date and are now')
  expect([changed.code, verdicts.find(({ what }) => what === 'tables')]).toEqual([
    1,
    { what: 'tables', ok: false, detail },
  ])
})

test('a lost table of the ledger and a lost column are named with what to do, and nothing is changed', async () => {
  setup = await setUp({ world: { projects: 1, prompts: 2, models: 1, brands: 2 } })
  const { rows } = setup.database
  const cli = { env: setup.env, config: setup.fileConfig }
  await setup.sync()
  await rows('drop table visibility_ops.quarantine cascade; alter table visibility.topics drop column name cascade')
  const said = [
    /visibility_ops\.quarantine is missing: restore it from a backup/,
    /visibility\.topics lacks name: drop/,
  ]
  const checked = (await runCli(['check', '--json'], cli)).json() as Checked
  const verdict = checked.verdicts.find(({ what }) => what === 'tables')
  for (const pattern of said) expect(verdict).toMatchObject({ ok: false, detail: expect.stringMatching(pattern) })
  const synced = await runCli(['sync'], cli)
  expect(synced.code).toBe(2)
  for (const pattern of said) expect(synced.stderr.replaceAll(/\s+/g, ' ')).toMatch(pattern)
})

test('the statements of migrations that make an object again make it as it is', async () => {
  database = await createDatabase('migrated')
  const { rows } = database
  const shape = () =>
    rows(
      `select c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid) as value
       from pg_class c join pg_attribute a on a.attrelid = c.oid and attnum > 0 and not attisdropped
       left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
       where c.relnamespace = 'visibility'::regnamespace and relkind in ('r', 'v', 'i')
       order by 1, 2`,
    )
  const functions = () =>
    rows(
      `select pg_get_functiondef(oid) as text, obj_description(oid) as comment from pg_proc
       where pronamespace in ('visibility'::regnamespace, 'visibility_ops'::regnamespace) order by 1`,
    )
  const before = { shape: await shape(), functions: await functions() }
  for (const { kind, schema, name } of madeBy(readMigrations())) {
    const place = schema === 'schema' ? 'visibility' : 'visibility_ops'
    if (kind === 'function' || (kind === 'table' && schema === 'schema'))
      await rows(`drop ${kind} if exists ${place}.${name} cascade`)
  }
  const { repaired } = await migrate(database.warehouse, configOf({ reports: [] }))
  expect(repaired.length).toBeGreaterThan(0)
  expect(await shape()).toEqual(before.shape)
  expect(await functions()).toEqual(before.functions)
  expect((await migrate(database.warehouse, configOf({ reports: [] }))).repaired).toEqual([])
})

test('schemas, tables and functions of somebody else are refused, unless a setting allows it', async () => {
  database = await createDatabase('empty')
  const { rows, warehouse, url } = database
  const mallory = `mallory_${randomBytes(4).toString('hex')}`
  const name = new URL(url).pathname.slice(1)
  await rows(`create role ${mallory} login password 'secret'; grant create on database ${name} to ${mallory}`)
  const [me] = await rows<{ name: string }>('select current_user as name')
  const theirs = new URL(url)
  theirs.username = mallory
  theirs.password = 'secret'
  const client = new Client({ connectionString: theirs.href })
  await client.connect()
  const config = configOf({})
  try {
    await client.query(`create schema visibility; grant all on schema visibility to ${me!.name}`)
    await expect(migrate(warehouse, config)).rejects.toThrow(`the schema visibility (of ${mallory})`)
    const checked = (await runCli(['check', '--json'], { env: { DATABASE_URL: url }, config: {} })).json() as Checked
    const verdict = checked.verdicts.find(({ what }) => what === 'owners')
    expect(verdict).toMatchObject({ ok: false, detail: expect.stringContaining(mallory) })
    expect(await rows("select from pg_namespace where nspname = 'visibility_ops'")).toEqual([])
    await migrate(warehouse, configOf({ warehouse: { allow_foreign_owner: true } }))

    await client.query('drop schema visibility cascade')
    await rows('drop schema visibility_ops cascade')
    await migrate(warehouse, config)
    await client.query(
      "create schema bad; create function bad.run() returns trigger language plpgsql as 'begin return new; end'",
    )
    await rows(`grant usage on schema visibility to ${mallory}; grant trigger on visibility.brands to ${mallory}`)
    await client.query('create trigger run before insert on visibility.brands for each row execute function bad.run()')
    await expect(migrate(warehouse, config)).rejects.toThrow(
      new RegExp(`bad\\.run\\(\\), which visibility\\.brands calls \\(of ${mallory}\\)`),
    )
    await rows('drop trigger run on visibility.brands')
    await rows(`grant create on schema visibility to ${mallory}`)
    // Tables that people keep beside ours are no concern of ours.
    await client.query('create table visibility.mine (a int)')
    await expect(migrate(warehouse, config)).resolves.toMatchObject({ applied: [] })
    await client.query("create function visibility.wilson_low(int, int) returns int language sql as 'select 1'")
    await expect(migrate(warehouse, config)).rejects.toThrow(`visibility.wilson_low() (of ${mallory})`)
    // A role that this one is a member of is trusted.
    await rows(`grant ${mallory} to ${me!.name}`)
    await expect(migrate(warehouse, config)).resolves.toMatchObject({ applied: [] })
  } finally {
    await client.end()
    await rows(`grant ${mallory} to ${me!.name}; drop owned by ${mallory} cascade; drop role ${mallory}`)
  }
})
