import { expect, test } from '@jest/globals'
import { LockedError, UsageError } from '../src/core/errors.ts'
import { readStatus } from '../src/ledger/status.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { runCli } from './support/cli.ts'
import { sized } from './support/long.ts'
import { recountMonths } from './support/postgres.ts'
import { configOf, FOUR_GRAINS, NO_LIMIT, type Setup, type SetupOptions, setUp } from './support/setup.ts'
import { expectChats, expectExact, expectReport } from './support/truth.ts'

/* The sync as a whole, in this process, against a real service and a real Postgres. */

let setup: Setup

const SMALL = { projects: 1, prompts: 7, models: 2, brands: 3 }
const range = { from: '2026-03-11', to: '2026-03-31' }
const start = async (options: SetupOptions = {}) => {
  setup = await setUp({ world: SMALL, ...options, config: { start_date: range.from, ...options.config } })
  return setup
}
const exact = (over: Partial<typeof range> = {}) =>
  expectExact(setup.database, { world: setup.service.world, range: { ...range, ...over }, reports: FOUR_GRAINS })
const count = async (table: string, where = 'true') =>
  (await setup.database.rows<{ n: number }>(`select count(*)::int as n from visibility.${table} where ${where}`))[0]!.n
const status = async () =>
  (await readStatus(setup.database.warehouse, {
    config: setup.config,
    today: '2026-03-31',
    projects: setup.projects.map(({ id }) => id),
    streams: setup.services.streams.named(),
    runs: 5,
  }))!
const project = () => setup.service.world.projects[0]!
const stream = (report: Awaited<ReturnType<Setup['sync']>>, name: string) =>
  report.streams.find((entry) => entry.stream === name)!

test('resets, errors, truncated and mangled bodies, odd orders, extra fields and repeated rows end in exact tables', async () => {
  await start({
    world: SMALL,
    faults: {
      ...NO_LIMIT,
      seed: 5,
      server_error: 0.1,
      reset: 0.05,
      truncate: 0.05,
      cut_json: 0.05,
      html: 0.05,
      wrong_shape: 0.03,
      unstable_order: true,
      extra_fields: true,
      duplicate_rows: 0.1,
    },
    // As patient as by default: on a slow machine three faults in a row take longer than the two seconds of other tests.
    config: { start_date: '2026-03-15', source: { max_attempts: 20, patience_seconds: 60 } },
  })
  expect((await setup.sync()).outcome).toBe('complete')
  await exact({ from: '2026-03-15' })
  expect((await status()).drift.map(({ kind, name }) => `${kind} ${name}`)).toEqual(
    expect.arrayContaining(['field is_archived', 'duplicate row']),
  )
})

test('settings of the database that change how values are read and written have no effect', async () => {
  await start({ config: { start_date: '2026-03-25' } })
  const [{ name }] = (await setup.database.rows<{ name: string }>('select current_database() as name')) as [
    { name: string },
  ]
  for (const setting of ['array_nulls = off', 'extra_float_digits = -10', "timezone = 'Pacific/Apia'"])
    await setup.database.rows(`alter database "${name}" set ${setting}`)
  const options = { env: setup.env, config: setup.fileConfig }
  expect((await runCli(['sync'], options)).code).toBe(0)
  await exact({ from: '2026-03-25' })
  expect((await runCli(['audit'], options)).code).toBe(0)
})

test('malformed rows wait in quarantine, the run is partial, and they load once the service corrects them', async () => {
  await start({ faults: { ...NO_LIMIT, malformed: 0.02 }, config: { streams: ['chats'] } })
  const first = await setup.sync()
  expect(first.outcome).toBe('partial')
  const waiting = await setup.database.rows<{ stream: string; n: number }>(
    'select stream, sum(occurrences)::int as n from visibility_ops.quarantine where resolved_at is null group by 1',
  )
  const total = waiting.reduce((sum, { n }) => sum + n, 0)
  expect(total).toBe(first.streams.reduce((sum, { quarantined }) => sum + quarantined, 0))
  expect(total).toBeGreaterThan(3)

  // The same rows fail again: counted, not kept twice.
  await setup.sync()
  const again = await setup.database.rows<{ n: number; times: number }>(
    'select sum(occurrences)::int as n, min(times_seen) as times from visibility_ops.quarantine',
  )
  expect(again[0]).toEqual({ n: total, times: 2 })

  setup.service.setFaults(NO_LIMIT)
  expect((await setup.sync()).outcome).toBe('complete')
  for (const report of FOUR_GRAINS)
    await expectReport(setup.database, { world: setup.service.world, range, reports: [] }, project(), report)
  const open = await setup.database.rows('select 1 from visibility_ops.quarantine where resolved_at is null')
  expect(open).toEqual([])
  expect(await count('by_prompt')).toBe(21 * 7 * 2 * 3)
})

test('a page with many bad rows changes no row, and from a window with rejects no row is deleted', async () => {
  await start()
  await setup.sync()
  setup.service.setFaults({ ...NO_LIMIT, malformed: 0.3 })
  const report = await setup.sync({ range, command: 'backfill', streams: setup.services.streams.named(['by_prompt']) })
  expect(report.outcome).toBe('failed')
  expect(report.streams[0]!.failed[0]!.error).toMatch(/rows are bad, more than 5 %/)
  await exact()
  setup.service.setFaults({ ...NO_LIMIT, malformed: 0.02 })
  const before = await count('by_prompt')
  const second = await setup.sync({ range, command: 'backfill', streams: setup.services.streams.named(['by_prompt']) })
  expect(second.outcome).toBe('partial')
  expect(stream(second, 'by_prompt').deleted).toBe(0)
  expect(await count('by_prompt')).toBe(before)
})

test('an empty answer where there were rows is held and reported, and resolves when the rows are back', async () => {
  await start()
  await setup.sync()
  setup.service.setFaults({ ...NO_LIMIT, empty: true })
  const held = await setup.sync()
  expect(held.outcome).toBe('partial')
  expect(
    held.streams
      .filter((entry) => entry.held.length > 0)
      .map((entry) => entry.stream)
      .sort(),
  ).toEqual([
    'brand_daily',
    'by_model',
    'by_prompt',
    'by_topic',
    'chats',
    'domain_classifications',
    'prompt_suggestions',
    'prompts',
  ])
  await exact()
  const told = await status()
  expect(told.held.find((entry) => entry.stream === 'chats')).toMatchObject({ from: '2026-03-25', to: '2026-03-31' })
  expect(told.held.find((entry) => entry.stream === 'chats')!.accept).toContain('--accept-deletes')

  setup.service.setFaults(NO_LIMIT)
  expect((await setup.sync()).outcome).toBe('complete')
  expect((await status()).held).toEqual([])
  await exact()
})

test('rewritten history is updated and stored as a restatement, and few vanished rows are deleted until they come back', async () => {
  await start()
  await setup.sync()
  const { world } = setup.service
  const again = () => setup.sync({ range, command: 'backfill', streams: setup.services.streams.named() })
  world.rewriteDays(project(), ['2026-03-20', '2026-03-29'])
  world.deleteTopic(project(), project().topics[0]!.id)
  world.renameBrand(project(), project().brands[1]!.id, 'Renamed "again"')
  await again()
  await exact()
  const days = await setup.database.rows<{ date: string }>(
    "select distinct date from visibility_ops.restatements where stream = 'by_prompt' order by date",
  )
  expect(days.map(({ date }) => date)).toEqual(['2026-03-20', '2026-03-29'])
  const gone = project().prompts[0]!
  world.deletePrompt(project(), gone.id)
  const report = await again()
  expect(report.outcome).toBe('complete')
  expect(stream(report, 'chats').deleted).toBe(21 * 2)
  await exact()
  const [row] = await setup.database.rows<{ removed_at: Date | null }>(
    'select removed_at from visibility.prompts where prompt_id = $1',
    [gone.id],
  )
  expect(row!.removed_at).toBeInstanceOf(Date)
  world.addPrompt(project(), gone)
  await again()
  await exact()
})

test('what comes in while the service writes a day is no restatement', async () => {
  await start()
  await setup.sync()
  const { rows } = setup.database
  await rows(
    `update visibility_ops.coverage set read_at = date + interval '47 hours 59 minutes' where date = '2026-03-20'`,
  )
  await rows(`update visibility_ops.coverage set read_at = date + interval '48 hours' where date = '2026-03-21'`)
  setup.service.world.rewriteDays(project(), ['2026-03-20', '2026-03-21'])
  await setup.sync({ range, command: 'backfill', streams: setup.services.streams.named() })
  await exact()
  expect(await rows('select distinct date::text from visibility_ops.restatements')).toEqual([{ date: '2026-03-21' }])
})

test('unchanged days are detected without staging a row, and manual edits are corrected', async () => {
  await start({ config: { streams: ['chats'] } })
  await setup.sync()
  const name = new URL(setup.database.url).pathname.slice(1)
  // Without the right to temporary tables nothing can be staged.
  await setup.database.rows(`revoke temporary on database ${name} from public, current_user`)
  const again = await setup.sync({ range, command: 'backfill' })
  expect(again.outcome).toBe('complete')
  expect(again.streams.map(({ inserted, updated, deleted }) => inserted + updated + deleted)).toEqual([0, 0, 0, 0, 0])
  // Two rows change places: every number is still there, and so is every sum.
  const report = FOUR_GRAINS[2]!
  const [one, other] = await setup.database.rows<{ place: string; visibility: number }>(
    `select distinct on (visibility) ctid::text as place, visibility from visibility.${report.name} where date = '2026-03-12'`,
  )
  for (const [at, value] of [
    [one!.place, other!.visibility],
    [other!.place, one!.visibility],
  ])
    await setup.database.rows(`update visibility.${report.name} set visibility = $2 where ctid = $1::tid`, [at, value])
  const request = { range, command: 'backfill' as const, streams: setup.services.streams.named([report.name]) }
  expect((await setup.sync(request)).outcome).not.toBe('complete')
  await setup.database.rows(`grant temporary on database ${name} to current_user`)
  expect(stream(await setup.sync(request), report.name).updated).toBe(2)
  await expectReport(setup.database, { world: setup.service.world, range, reports: [] }, project(), report)
})

test('a lower page limit is learned from a 400, and the tables are exact', async () => {
  await start({ faults: { ...NO_LIMIT, limit_max: 50 } })
  expect((await setup.sync()).outcome).toBe('complete')
  await exact()
  const limits = new Set(
    setup.service.requests
      .filter(({ status: code }) => code === 200)
      .map(({ query, body }) => Number(query.limit ?? body.limit)),
  )
  limits.delete(1)
  expect([...limits].filter((limit) => limit > 50)).toEqual([])
})

test('a day with six times as many rows as a page is split by its own dimensions, in any order, and no value changes', async () => {
  await start({
    world: { projects: 1, prompts: sized(60, 600), models: 4, brands: 5 },
    faults: { ...NO_LIMIT, unstable_order: true },
    config: {
      start_date: '2026-03-30',
      end_date: '2026-03-31',
      streams: ['chats'],
      reports: [FOUR_GRAINS[3]],
      source: { page_limit: sized(200, 2000) },
    },
  })
  const report = await setup.sync()
  expect(report.streams.flatMap((entry) => entry.failed)).toEqual([])
  expect(stream(report, 'by_prompt').rows_read).toBe(sized(2400, 24_000))
  expect(stream(report, 'by_prompt').requests).toBeLessThanOrEqual(30)
  await expectReport(
    setup.database,
    { world: setup.service.world, range: { from: '2026-03-30', to: '2026-03-31' }, reports: [] },
    project(),
    FOUR_GRAINS[3]!,
  )
})

const LARGE_DAY = { start_date: '2026-03-31', end_date: '2026-03-31', streams: ['chats'], source: { page_limit: 40 } }

test('if filters are refused, a large day is read by overlapping pages if the order is stable', async () => {
  await start({ faults: { ...NO_LIMIT, refuse_filters: true }, config: LARGE_DAY, world: { ...SMALL, prompts: 30 } })
  expect((await setup.sync()).streams.flatMap((entry) => entry.failed)).toEqual([])
  const day = { from: '2026-03-31', to: '2026-03-31' }
  for (const report of FOUR_GRAINS)
    await expectReport(setup.database, { world: setup.service.world, range: day, reports: [] }, project(), report)
  expect(await count('by_prompt')).toBe(180)
  expect(await count('chats')).toBe(60)
})

test('an answer that cannot be proven complete fails and deletes nothing', async () => {
  await start({ config: LARGE_DAY, world: { ...SMALL, prompts: 30 } })
  await setup.sync()
  setup.service.setFaults({ ...NO_LIMIT, refuse_filters: true, unstable_order: true })
  const report = await setup.sync({ streams: setup.services.streams.named(['by_prompt']) })
  expect(report.outcome).toBe('failed')
  expect(report.streams[0]!.failed[0]!.error).toMatch(/cannot be proven complete/)
  expect(await count('by_prompt')).toBe(180)
})

test('lists longer than a page are read by overlapping pages, and a moving order is not believed', async () => {
  await start({
    world: { ...SMALL, prompts: 130 },
    config: { streams: ['prompts'], reports: [], source: { page_limit: 50 } },
  })
  expect((await setup.sync()).outcome).toBe('complete')
  expect(await count('prompts')).toBe(130)
  setup.service.setFaults({ ...NO_LIMIT, unstable_order: true })
  const report = await setup.sync()
  expect(report.outcome).toBe('failed')
  expect(await count('prompts', 'removed_at is null')).toBe(130)
})

test('a wrong key stops the run immediately', async () => {
  await start()
  const report = await setup.sync({
    projects: setup.projects.map((entry) => ({ ...entry, caller: { ...entry.caller, key: 'wrong' } })),
  })
  expect(report.outcome).toBe('failed')
  expect(report.error).toContain('VISIBILITY_API_KEY')
  expect(setup.service.requests.length).toBeLessThanOrEqual(setup.config.source.concurrency)
})

test('a second run of the same streams is refused and names the first; other streams may run', async () => {
  await start({ faults: { ...NO_LIMIT, latency_ms: 150 } })
  let started = () => {}
  const isStarted = new Promise<void>((resolve) => (started = resolve))
  const first = setup.sync({ streams: setup.services.streams.named(['chats']) }, { started })
  await isStarted
  const second = setup.sync({ streams: setup.services.streams.named(['chats', 'by_model']) })
  await expect(second).rejects.toBeInstanceOf(LockedError)
  await expect(second).rejects.toThrow(/chats of or_.* is being synced by run 1 \(sync, since/)
  expect((await setup.sync({ streams: setup.services.streams.named(['by_topic']) })).outcome).toBe('complete')
  expect((await first).outcome).toBe('complete')
})

test('a changed breakdown or filter under an existing name is refused with an explanation', async () => {
  await start({ config: { reports: [{ name: 'mine', dimensions: ['date', 'model_id'] }] } })
  await setup.sync()
  const other = (report: object) => migrate(setup.database.warehouse, configOf({ reports: [report] }))
  await expect(other({ name: 'mine', dimensions: ['date', 'topic_id'] })).rejects.toThrow(
    /dimensions of "mine" were date, model_id and are now date, topic_id/,
  )
  await expect(
    other({
      name: 'mine',
      dimensions: ['date', 'model_id'],
      filters: [{ field: 'topic_id', operator: 'in', values: ['to_1'] }],
    }),
  ).rejects.toBeInstanceOf(UsageError)
  await expect(other({ name: 'mine', dimensions: ['model_id', 'date'] })).resolves.toBeDefined()
  await setup.database.rows('create table visibility.theirs (a int)')
  await expect(other({ name: 'theirs', dimensions: ['date'] })).rejects.toThrow(/was not made by visibility-sync/)
})

test('coverage has rows, time and state of every day, and a backfill of missing days reads only those and unsound ones', async () => {
  await start()
  await setup.sync({
    command: 'backfill',
    range: { from: '2026-03-20', to: '2026-03-22' },
    streams: setup.services.streams.named(['chats']),
  })
  const days = await setup.database.rows<{ date: string; rows: number; state: string }>(
    'select date, rows, state from visibility_ops.coverage order by date',
  )
  expect(days).toEqual(['2026-03-20', '2026-03-21', '2026-03-22'].map((date) => ({ date, rows: 14, state: 'read' })))
  await setup.database.rows("update visibility_ops.coverage set state = 'unreconciled' where date = '2026-03-21'")
  setup.service.requests.length = 0
  const report = await setup.sync({
    command: 'backfill',
    range: { from: '2026-03-19', to: '2026-03-23' },
    missingOnly: true,
    streams: setup.services.streams.named(['chats']),
  })
  expect(report.streams[0]!.days).toBe(3)
  const chats = setup.service.requests.filter(({ path }) => path.endsWith('/chats'))
  expect(chats.map(({ query }) => [query.start_date, query.end_date]).sort()).toEqual([
    ['2026-03-19', '2026-03-19'],
    ['2026-03-21', '2026-03-21'],
    ['2026-03-23', '2026-03-23'],
  ])
})

test('a chat that moves to another day moves in the table, and is not duplicated', async () => {
  await start({ config: { reports: [], streams: ['chats'] } })
  await setup.sync()
  const [chat] = await setup.database.rows<{ chat_id: string }>(
    "select chat_id from visibility.chats where date = '2026-03-31' limit 1",
  )
  await setup.database.rows("update visibility.chats set date = '2026-03-15' where chat_id = $1", [chat!.chat_id])
  await setup.sync({ command: 'backfill', range: { from: '2026-03-31', to: '2026-03-31' } })
  expect(await setup.database.rows('select date from visibility.chats where chat_id = $1', [chat!.chat_id])).toEqual([
    { date: '2026-03-31' },
  ])
  await setup.database.rows("delete from visibility.chats where date = '2026-03-31'")
  await setup.database.rows(
    "update visibility.chats set date = '2026-03-31' where chat_id = (select chat_id from visibility.chats where date = '2026-03-20' limit 1)",
  )
  await setup.sync({ command: 'backfill', range })
  await expectChats(setup.database, { world: setup.service.world, range, reports: [] }, project())
  expect(await count('chats')).toBe(21 * 14)
})

test('without a project id rows get the project "default" and requests carry none', async () => {
  await start({ config: { streams: ['chats', 'prompts'] } })
  const key = project().key
  const report = await setup.sync({
    projects: [{ id: 'default', caller: { key, projectId: undefined }, ownKey: true }],
  })
  expect(report.outcome).toBe('complete')
  expect(await count('chats', "project_id <> 'default'")).toBe(0)
  expect(setup.service.requests.some(({ query, body }) => 'project_id' in query || 'project_id' in body)).toBe(false)
})

test('without the fast path the rows are the same', async () => {
  await start({ config: { start_date: '2026-03-20' } })
  setup.services.config = { ...setup.config, disabled: ['template-parser', 'window-digest'] }
  expect((await setup.sync({ streams: setup.services.streams.named() })).outcome).toBe('complete')
  await exact({ from: '2026-03-20' })
  const again = await setup.sync({ streams: setup.services.streams.named() })
  expect(again.streams.every(({ inserted, updated, deleted }) => inserted + updated + deleted === 0)).toBe(true)
})

test('a report that is taken out of the configuration stays listed, and its last days stay provisional', async () => {
  const setup = await setUp({ world: { projects: 1, prompts: 4, models: 2, brands: 3 } })
  const sync = (reports: object[]) =>
    runCli(['sync'], { env: setup.env, config: { ...setup.fileConfig, reports, start_date: '2026-03-20' } })
  expect((await sync(FOUR_GRAINS)).code).toBe(0)
  const provisional = () =>
    setup.database.rows(
      "select date from visibility.data_status where stream = 'by_topic' and is_provisional order by date",
    )
  await setup.database.rows("update visibility_ops.coverage set read_at = date + 2 where stream = 'by_topic'")
  const before = await provisional()
  expect(before.length).toBeGreaterThan(0)
  expect((await sync(FOUR_GRAINS.filter(({ name }) => name !== 'by_topic'))).code).toBe(0)
  expect(await provisional()).toEqual(before)
  await setup.database.rows("update visibility_ops.coverage set state = 'stale' where date = '2026-03-22'")
  await recountMonths(setup.database)
  expect(
    await setup.database.rows("select is_stale, stale_days from visibility.freshness where stream = 'by_topic'"),
  ).toEqual([{ is_stale: true, stale_days: 1 }])
})
