import { randomBytes } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { Client } from 'pg'
import { readLedgerSize } from '../src/ledger/retention.ts'
import { lockRun } from '../src/ledger/run-lock.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { readMigrations } from '../src/warehouse/schema/migrations.ts'
import { runCli } from './support/cli.ts'
import { some } from './support/long.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { until } from './support/serve.ts'
import { configOf, FOUR_GRAINS, type Setup, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

describe('migrations', () => {
  let database: TestDatabase
  beforeAll(async () => {
    database = await createDatabase('migrated')
  })

  test('no migration was edited since it was added', () => {
    const kept = readFileSync(new URL('../sql/migrations/checksums.txt', import.meta.url), 'utf8')
    const lines = readMigrations().map(({ name, checksum }) => `${checksum}  ${name}`)
    expect(kept.trim().split('\n')).toEqual(lines)
  })

  test('a database whose migration differs from the file is refused', async () => {
    await database.rows("update visibility_ops.migrations set checksum = 'other' where version = 3")
    await expect(migrate(database.warehouse, configOf({}))).rejects.toThrow(
      /0003_\w+\.sql is not the one that was applied/,
    )
    // Versions before 0.3 kept no checksums.
    await database.rows('update visibility_ops.migrations set checksum = null')
    expect((await migrate(database.warehouse, configOf({ reports: [] }))).applied).toEqual([])
  })
})

test('migrate goes on if its session ends while it waits for another one', async () => {
  const database = await createDatabase('migrated')
  const env = { DATABASE_URL: database.url }
  expect((await runCli(['migrate'], { env })).code).toBe(0)
  const other = new Client({ connectionString: database.url })
  await other.connect()
  await other.query('begin; lock table visibility_ops.migrations in access exclusive mode')
  // At work, not idle: idle sessions in a transaction are ended if they are in the way.
  const work = other.query('select pg_sleep(600)').catch(() => {})
  const migrating = runCli(['migrate'], { env })
  const ofHere = 'from pg_stat_activity where datname = current_database()'
  const waiting = `${ofHere} and wait_event_type = 'Lock'`
  await until(async () => (await database.rows(`select 1 ${waiting}`)).length > 0)
  await database.rows(`select pg_terminate_backend(pid) ${waiting}`)
  await database.rows(
    `select pg_cancel_backend(pid) ${ofHere} and query like '%pg_sleep(600)' and pid <> pg_backend_pid()`,
  )
  await work
  await other.query('rollback')
  await other.end()
  expect([(await migrating).code, (await migrating).stdout]).toEqual([0, expect.stringContaining('is up to date')])
})

describe('the types of queries', () => {
  /* Typed queries are as good as their types: these must be those of the tables. */

  const SOURCE = readFileSync(new URL('../src/warehouse/database.ts', import.meta.url), 'utf8')

  interface Field {
    type: string
    isNullable: boolean
    hasDefault: boolean
  }

  /** The tables in the source, with the fields of each. */
  function typedTables(schema: 'Ops' | 'Data'): Map<string, Map<string, Field>> {
    const begin = SOURCE.indexOf(`export interface ${schema}Tables {`)
    const text = SOURCE.slice(SOURCE.indexOf('{', begin) + 1, SOURCE.indexOf('\n}\n', begin))
    return new Map([...text.matchAll(/^ {2}(\w+): \{([^}]*)\}$/gm)].map(([, table, body]) => [table!, fieldsIn(body!)]))
  }

  function fieldsIn(body: string): Map<string, Field> {
    const fields = body
      .split(/[;\n]/)
      .map((line) => line.trim())
      .filter((line) => line !== '' && !line.startsWith('/*'))
    return new Map(
      fields.map((line) => {
        const [, name, written] = /^(\w+): (.+)$/.exec(line)!
        const type = written!.replace(/^Generated<(.*)>$/, '$1')
        return [
          name!,
          {
            type: kindOf(type.replace(' | null', '')),
            isNullable: type.endsWith('| null') || type === 'unknown',
            hasDefault: written!.startsWith('Generated<'),
          },
        ]
      }),
    )
  }

  function kindOf(type: string): string {
    if (['string', 'string[]', 'number', 'boolean', 'Date', 'unknown'].includes(type)) return type
    // Unions of words, and names of such unions.
    return 'string'
  }

  const KINDS: Record<string, string> = {
    text: 'string',
    uuid: 'string',
    date: 'string',
    integer: 'number',
    bigint: 'number',
    smallint: 'number',
    'double precision': 'number',
    boolean: 'boolean',
    'timestamp with time zone': 'Date',
    json: 'unknown',
    jsonb: 'unknown',
    ARRAY: 'string[]',
  }

  let setup: Setup
  beforeAll(async () => {
    setup = await setUp({ config: { streams: [], reports: [] } })
  })

  test.each([
    ['Ops', 'visibility_ops', 15],
    ['Data', 'visibility', 2],
  ] as const)('the types of the schema for %s are those of its tables', async (name, schema, least) => {
    const tables = typedTables(name)
    expect(tables.size).toBeGreaterThanOrEqual(least)
    const rows = await setup.database.rows<Record<'table' | 'column' | 'type' | 'nullable' | 'default', string>>(
      `select table_name as "table", column_name as "column", data_type as type, is_nullable as nullable,
       case when column_default is not null or is_identity = 'YES' then 'YES' else 'NO' end as default
     from information_schema.columns where table_schema = $1 order by 1, 2`,
      [schema],
    )
    for (const [table, fields] of tables) {
      const columns = rows.filter((row) => row.table === table)
      const known = new Map(columns.map((row) => [row.column, row]))
      for (const [field, { type, isNullable, hasDefault }] of fields) {
        const column = known.get(field)
        expect({ table, field, found: column !== undefined }).toEqual({ table, field, found: true })
        const isUnknown = type === 'unknown'
        expect({
          place: `${table}.${field}`,
          type: KINDS[column!.type],
          nullable: isUnknown || column!.nullable === 'YES',
        }).toEqual({ place: `${table}.${field}`, type, nullable: isNullable })
        if (hasDefault) expect(`${table}.${field} ${column!.default}`).toBe(`${table}.${field} YES`)
      }
      if (name === 'Data') continue
      // What a row needs is known to the types; columns with a default may be left out.
      const needed = columns.filter((row) => row.nullable === 'NO' && row.default === 'NO').map((row) => row.column)
      expect(needed.filter((column) => !fields.has(column)).map((column) => `${table}.${column}`)).toEqual([])
    }
  })
})

describe('an upgrade', () => {
  /* A database that an earlier version filled is taken over by this one, whichever version it was. */

  let setup: Setup

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

  test.each(some(versions, 2))(
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
})

describe('repair', () => {
  /* What somebody dropped is made again or named, and what belongs to somebody else is refused. */

  let setup: Setup | undefined
  let database: TestDatabase | undefined

  interface Checked {
    ok: boolean
    verdicts: { what: string; ok: boolean; detail: string }[]
    notes: string[]
  }

  test('a report table, a column, tables for BI and views that were dropped are made again, and their days are read again', async () => {
    setup = await setUp({ world: { projects: 1, prompts: 4, models: 2, brands: 3 } })
    const { database, env, fileConfig } = setup
    const { rows } = database
    await setup.sync()
    const viewsBefore = await rows("select viewname from pg_views where schemaname ~ '^visibility' order by 1")
    await rows('drop table visibility.by_topic cascade')
    await rows('alter table visibility.brand_daily drop column visibility_count cascade')
    await rows('drop table visibility.prompts, visibility.brands, visibility.chats cascade')
    await rows('drop table visibility_ops.calendar cascade; drop view visibility_ops.days_read cascade')
    await rows('drop function visibility.wilson_low cascade; drop function visibility_ops.sums_of cascade')

    const cli = (...args: string[]) => runCli(args, { env, config: fileConfig })
    const checked = await cli('check', '--json')
    const { detail } = (checked.json() as Checked).verdicts.find(({ what }) => what === 'tables')!
    expect([checked.code, detail]).toEqual([1, expect.stringMatching(/^missing: .*; the next sync makes them again/)])
    for (const name of ['visibility.by_topic', 'visibility_count of visibility.brand_daily', 'visibility.prompts'])
      expect(detail).toContain(name)
    const status = await cli('status')
    const missing = /^! +(\w+) .*\n +its table is missing; the next sync makes it again$/gm
    expect([...status.stdout.matchAll(missing)].map(([, name]) => name)).toEqual(['prompts', 'chats', 'by_topic'])
    expect(status.stdout).toMatch(/^✓ +by_prompt /m)

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

  test('foreign schemas, tables and functions are refused, unless a setting allows it', async () => {
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
      await expect(migrate(warehouse, config)).rejects.toThrow(mallory)
      // A role that this one is a member of is trusted.
      await rows(`grant ${mallory} to ${me!.name}`)
      await expect(migrate(warehouse, config)).resolves.toMatchObject({ applied: [] })
    } finally {
      await client.end()
      await rows(`grant ${mallory} to ${me!.name}; drop owned by ${mallory} cascade; drop role ${mallory}`)
    }
  })
})

describe('tables in months', () => {
  const RANGE = { from: '2026-01-25', to: '2026-03-10' }
  const TABLES = FOUR_GRAINS.map(({ name }) => name)
  let setup: Setup

  async function begin(partition: 'none' | 'month') {
    setup = await setUp({
      world: { projects: 2, prompts: 4, models: 2, brands: 3 },
      config: { start_date: RANGE.from, end_date: RANGE.to, warehouse: { partition } },
    })
  }

  const truth = () => ({ world: setup.service.world, range: RANGE, reports: FOUR_GRAINS })
  const cli = (partition: 'none' | 'month') => ({
    env: setup.env,
    config: { ...setup.fileConfig, warehouse: { partition } },
  })

  async function parts(): Promise<Record<string, string[]>> {
    const rows = await setup.database.rows<{ parent: string; parts: string[] }>(
      `select p.relname as parent, array_agg(c.relname::text order by c.relname) as parts
     from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
     join pg_namespace n on n.oid = p.relnamespace where n.nspname = 'visibility' and p.relkind = 'p' group by 1`,
    )
    return Object.fromEntries(rows.map((row) => [row.parent, row.parts]))
  }

  const months = (table: string) => ['2026_01', '2026_02', '2026_03'].map((month) => `${table}_${month}`)
  const allInMonths = Object.fromEntries(TABLES.map((table) => [table, months(table)]))

  test('an unpartitioned table is moved month by month, with its privileges, its views and every row', async () => {
    await begin('none')
    await setup.sync()
    await setup.database.rows(`create role reader_${process.pid}`)
    try {
      await setup.database.rows(`grant select on visibility.brand_daily to reader_${process.pid}`)
      const before = await setup.database.rows(
        'select * from visibility.share_of_voice_daily order by project_id, date, brand_id',
      )
      const moved = await runCli(['partition', '--json'], cli('month'))
      expect(moved.json()).toMatchObject({ complete: true, unfinished: [] })
      expect(moved.code).toBe(0)
      expect(await parts()).toEqual(allInMonths)
      await expectExact(setup.database, truth())
      expect(
        await setup.database.rows('select * from visibility.share_of_voice_daily order by project_id, date, brand_id'),
      ).toEqual(before)
      const may = await setup.database.rows(
        `select has_table_privilege('reader_${process.pid}', 'visibility.brand_daily', 'select') as may`,
      )
      expect(may).toEqual([{ may: true }])
    } finally {
      await setup.database.rows(`revoke all on visibility.brand_daily from reader_${process.pid}`)
      await setup.database.rows(`drop role reader_${process.pid}`)
    }
  })

  test('an interrupted move loses nothing, syncs continue, and the next move finishes it', async () => {
    await begin('none')
    await setup.sync()
    // The first step and one month, as if it had been stopped there.
    const { beginMove, moveMonths } = await import('../src/warehouse/schema/move-to-months.ts')
    const report = setup.config.reports[0]!
    const stop = new AbortController()
    await beginMove(setup.database.warehouse, report)
    // Before the views are renewed nothing may leave the old piece.
    await expect(moveMonths(setup.database.warehouse, report, stop.signal, () => {})).rejects.toThrow('is read by')
    await migrate(setup.database.warehouse, setup.config)
    expect(await moveMonths(setup.database.warehouse, report, stop.signal, () => stop.abort())).toBe(false)
    expect(await parts()).toEqual({ brand_daily: ['brand_daily_2026_01', 'brand_daily_rest'] })
    await expectExact(setup.database, truth())
    setup.service.world.rewriteDays(setup.service.world.projects[0]!, ['2026-01-25', '2026-03-10'])
    await setup.sync({ command: 'backfill', range: RANGE })
    await expectExact(setup.database, truth())
    expect((await runCli(['partition', '--json'], cli('month'))).json()).toMatchObject({ complete: true })
    expect(await parts()).toEqual(allInMonths)
    // Months are in the schema of the ledger, and no part of it.
    // One row may take more than many.
    await setup.database.rows(
      `insert into visibility_ops.drift (project_id, stream, kind, name, example, run_id)
       select 'p', 's', 'k', 'n', string_agg(md5(i::text), ''), 1 from generate_series(1, 200000) i`,
    )
    const { tables } = await readLedgerSize(setup.database.warehouse)
    expect(tables[0]!.name).toBe('drift')
    expect(tables.filter((table) => table.name.startsWith('brand_daily'))).toEqual([])
    await expectExact(setup.database, truth())
  })

  test('a second move at the same time is refused, and moves nothing', async () => {
    await begin('none')
    await migrate(setup.database.warehouse, setup.config)
    const pair = { projectId: '*', stream: 'partition' }
    const start = { command: 'partition', version: 'test', source: '' }
    const lock = await lockRun(setup.database.warehouse, [pair], start, { log: setup.services.log })
    const second = await runCli(['partition'], cli('month'))
    const told = 'tables are being moved into months by run'
    expect([second.code, second.stderr]).toEqual([3, expect.stringContaining(told)])
    expect(await setup.database.rows("select from pg_class where relkind = 'p'")).toEqual([])
    await lock.release()
  })

  test('views and indexes that would be lost are named, and nothing is moved', async () => {
    await begin('none')
    await migrate(setup.database.warehouse, setup.config)
    await setup.database.rows('create view public.mine as select * from visibility.brand_daily')
    const refused = await runCli(['partition'], cli('month'))
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('public.mine')])
    await setup.database.rows('drop view public.mine')
    await setup.database.rows('create index mine on visibility.brand_daily (mention_count)')
    await setup.database.rows('alter table visibility.brand_daily enable row level security')
    const again = await runCli(['partition'], cli('month'))
    expect([again.code, again.stderr]).toEqual([2, expect.stringMatching(/row level security.*mine/)])
    expect(await parts()).toEqual({})
    const unset = await runCli(['partition'], cli('none'))
    expect([unset.code, unset.stderr]).toEqual([2, expect.stringContaining('warehouse.partition')])
  })
})
