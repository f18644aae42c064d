import { afterEach, expect, test } from '@jest/globals'
import { readLedgerSize } from '../src/ledger/retention.ts'
import { lockRun } from '../src/ledger/run-lock.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { runCli } from './support/cli.ts'
import { longTest } from './support/long.ts'
import { FOUR_GRAINS, type Setup, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

const RANGE = { from: '2026-01-25', to: '2026-03-10' }
const TABLES = FOUR_GRAINS.map(({ name }) => name)
let setup: Setup

afterEach(() => setup.close())

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

test('tables in months hold exactly what the service says, through changes and deletions, and people see one table', async () => {
  await begin('month')
  expect((await setup.sync()).outcome).toBe('complete')
  await expectExact(setup.database, truth())
  expect(await parts()).toEqual(allInMonths)
  const { world } = setup.service
  const [project] = world.projects
  world.rewriteDays(project!, ['2026-01-31', '2026-02-01'])
  for (const chat of world.chatsOf(project!, '2026-03-05').slice(0, 2)) world.dropChat(chat.id)
  await setup.sync({ command: 'backfill', range: RANGE })
  await expectExact(setup.database, truth())
  const again = await setup.sync({ command: 'backfill', range: RANGE })
  expect(again.streams.every((row) => row.inserted + row.updated + row.deleted === 0)).toBe(true)
  const tables = await setup.database.rows<{ name: string }>(
    "select relname::text as name from pg_class c join pg_namespace n on n.oid = c.relnamespace where nspname = 'visibility' and relname like '%2026%' and relkind = 'r'",
  )
  expect(tables).toEqual([])
  const own = await setup.database.rows('select * from visibility.share_of_voice_daily limit 1')
  expect(own.length).toBe(1)
})

test('a table in one piece is moved month by month, with its rights, its views and every row', async () => {
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
    // A process that had looked at the table before goes on, into months that are not there yet, too.
    await setup.sync({ command: 'backfill', range: { from: '2026-01-01', to: RANGE.to } })
    await expectExact(setup.database, { ...truth(), range: { from: '2026-01-01', to: RANGE.to } })
    expect((await runCli(['partition'], cli('month'))).stdout).toContain('Nothing was left to move')
  } finally {
    await setup.database.rows(`revoke all on visibility.brand_daily from reader_${process.pid}`)
    await setup.database.rows(`drop role reader_${process.pid}`)
  }
})

test('a move that was stopped half-way loses nothing, lets syncs go on, and is finished by the next', async () => {
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
  const { tables } = await readLedgerSize(setup.database.warehouse)
  expect(tables.filter((table) => table.name.startsWith('brand_daily'))).toEqual([])
  await expectExact(setup.database, truth())
})

test('a view of somebody else is named, and nothing is moved', async () => {
  await begin('none')
  await migrate(setup.database.warehouse, setup.config)
  await setup.database.rows('create view public.mine as select * from visibility.brand_daily')
  const refused = await runCli(['partition'], cli('month'))
  expect(refused.code).toBe(2)
  expect(refused.stderr).toContain('public.mine')
  expect(await parts()).toEqual({})
  const unset = await runCli(['partition'], cli('none'))
  expect(unset.code).toBe(2)
  expect(unset.stderr).toContain('warehouse.partition')
})

test('columns go by their names, whatever order the configuration has by now', async () => {
  const reports = (dimensions: string[]) => [{ name: 'both', dimensions }]
  setup = await setUp({
    world: { projects: 1, prompts: 4, models: 2, brands: 3 },
    config: { start_date: RANGE.from, end_date: RANGE.to, reports: reports(['date', 'topic_id', 'model_id']) },
  })
  await setup.sync()
  const turned = reports(['date', 'model_id', 'topic_id'])
  const moved = await runCli(['partition', '--json'], {
    env: setup.env,
    config: { ...setup.fileConfig, reports: turned, warehouse: { partition: 'month' } },
  })
  expect(moved.json()).toMatchObject({ complete: true })
  await expectExact(setup.database, { ...truth(), reports: turned })
})

test('what somebody added to a table and would be lost is named, and nothing is moved', async () => {
  await begin('none')
  await migrate(setup.database.warehouse, setup.config)
  await setup.database.rows('create index mine on visibility.brand_daily (mention_count)')
  await setup.database.rows('alter table visibility.brand_daily enable row level security')
  const refused = await runCli(['partition'], cli('month'))
  expect(refused.code).toBe(2)
  expect(refused.stderr).toMatch(/row level security.*mine/)
  expect(await parts()).toEqual({})
})

test('a second move at the same time finds the first', async () => {
  await begin('none')
  await migrate(setup.database.warehouse, setup.config)
  const pair = { projectId: '*', stream: 'partition' }
  const start = { command: 'partition', version: 'test', source: '' }
  const lock = await lockRun(setup.database.warehouse, [pair], start, { log: setup.services.log })
  const second = await runCli(['partition'], cli('month'))
  expect([second.code, second.stderr]).toEqual([
    3,
    expect.stringContaining('tables are being moved into months by run'),
  ])
  await lock.release()
})

longTest(
  'a table whose index has the oldest day first, as it once was, moves with an index of the same kind',
  async () => {
    await begin('none')
    await setup.sync()
    const indexes = () =>
      setup.database.rows<{ key: string }>(
        `select pg_get_indexdef(indexrelid) as key from pg_index where indisunique and indrelid = any(array(
         select 'visibility.by_topic'::regclass union all select inhrelid from pg_inherits where inhparent = 'visibility.by_topic'::regclass))`,
      )
    const [made] = await indexes()
    expect(made!.key).toContain('date DESC')
    await setup.database.rows(`drop index visibility.${/INDEX (\w+) ON/.exec(made!.key)![1]}`)
    await setup.database.rows(
      'alter table visibility.by_topic add unique nulls not distinct (project_id, date, brand_id, topic_id)',
    )
    const moved = await runCli(['partition'], cli('month'))
    expect([moved.code, await parts()]).toEqual([0, allInMonths])
    expect((await indexes()).map(({ key }) => key.includes('DESC'))).toEqual([false, false, false, false])
    await setup.sync({ command: 'backfill', range: RANGE })
    await expectExact(setup.database, truth())
  },
)
