import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { afterEach, expect, test } from '@jest/globals'
import { some } from './support/long.ts'
import { type Setup, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

/* A database that an earlier version filled is taken over by this one, whichever version it was. */

let setup: Setup
afterEach(() => setup.close())

const folder = new URL('../sql/migrations/', import.meta.url)
const files = readdirSync(fileURLToPath(folder))
  .filter((name) => name.endsWith('.sql'))
  .sort()
const range = { from: '2026-03-01', to: '2026-03-31' }
const reports = [{ name: 'brand_daily', dimensions: ['date'] }]

/** Takes a filled database back to what it was when only so many migrations existed. */
async function takeBackTo(version: number): Promise<void> {
  const { database } = setup
  const keep = ['projects', 'brands', 'topics', 'models', 'chats', 'brand_daily']
  const ledger = ['runs', 'coverage', 'reports']
  await database.rows('create schema kept')
  for (const table of keep) await database.rows(`create table kept.${table} as select * from visibility.${table}`)
  for (const table of ledger)
    await database.rows(`create table kept.ops_${table} as select * from visibility_ops.${table}`)
  await database.rows('drop schema visibility cascade')
  await database.rows('drop schema visibility_ops cascade')
  await database.rows('create schema visibility')
  await database.rows('create schema visibility_ops')
  await database.rows(
    'create table visibility_ops.migrations (version integer primary key, name text not null, applied_at timestamptz not null default now())',
  )
  for (const name of files.slice(0, version)) {
    const text = readFileSync(new URL(name, folder), 'utf8')
    await database.rows(text.replaceAll('{schema}', 'visibility').replaceAll('{ops}', 'visibility_ops'))
    await database.rows('insert into visibility_ops.migrations (version, name) values ($1, $2)', [
      Number(name.slice(0, 4)),
      name,
    ])
  }
  await database.rows('create table visibility.brand_daily (like kept.brand_daily)')
  await database.rows(
    'alter table visibility.brand_daily alter changed_at set default now(), add primary key (project_id, date, brand_id)',
  )
  // Columns that came later are not there yet.
  const copyBack = async (target: string, kept: string) => {
    const [columns] = await database.rows<{ list: string }>(
      `select string_agg(quote_ident(attname), ', ' order by attnum) as list from pg_attribute
       where attrelid = $1::regclass and attnum > 0 and not attisdropped`,
      [target],
    )
    await database.rows(
      `insert into ${target} (${columns!.list}) overriding system value select ${columns!.list} from kept.${kept}`,
    )
  }
  for (const table of keep) await copyBack(`visibility.${table}`, table)
  for (const table of ledger) await copyBack(`visibility_ops.${table}`, `ops_${table}`)
  await database.rows("select setval('visibility_ops.read_order', 1000000)")
  await database.rows(
    "select setval(pg_get_serial_sequence('visibility_ops.runs', 'run_id'), (select max(run_id) from visibility_ops.runs))",
  )
}

const versions = files.slice(1).map((name, index) => [index + 2, name] as const)

test.each(some(versions, 3))(
  'from version %i (%s), with rows in it, everything is there after the upgrade and the next sync agrees',
  async (version) => {
    setup = await setUp({ world: { projects: 1, prompts: 4, models: 2, brands: 3 }, config: { reports } })
    await setup.sync()
    await takeBackTo(version)
    const report = await setup.sync()
    expect(report.outcome).toBe('complete')
    // What had been read and settled was known, so nothing was new.
    const chats = report.streams.find(({ stream }) => stream === 'chats')!
    expect([chats.inserted, chats.updated, chats.deleted]).toEqual([0, 0, 0])
    await expectExact(setup.database, { world: setup.service.world, range, reports: reports as never })
    const [months] = await setup.database.rows<{ days: number }>(
      "select sum(days)::int as days from visibility_ops.coverage_months where stream = 'chats'",
    )
    const [days] = await setup.database.rows<{ days: number }>(
      "select count(*)::int as days from visibility_ops.coverage where stream = 'chats'",
    )
    expect(months).toEqual(days)
    expect(await setup.database.rows('select max(version) as newest from visibility_ops.migrations')).toEqual([
      { newest: Number(files.at(-1)!.slice(0, 4)) },
    ])
    expect((await setup.database.rows('select * from visibility.visibility_weekly')).length).toBeGreaterThan(0)
  },
  60_000,
)
