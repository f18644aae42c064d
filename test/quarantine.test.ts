import { describe, expect, test } from '@jest/globals'
import { parse } from 'yaml'
import { listQuarantine, type QuarantineFilter, type QuarantineGroup } from '../src/ledger/quarantine.ts'
import { readStatus } from '../src/ledger/status.ts'
import { dismissQuarantine } from '../src/sync/quarantine.ts'
import { ownBrandNotes } from '../src/warehouse/load/own-brands.ts'
import { runCli } from './support/cli.ts'
import { startRewriter } from './support/proxy.ts'
import { FOUR_GRAINS, NO_LIMIT, type Setup, type SetupOptions, setUp } from './support/setup.ts'

let setup: Setup

const BAD = { ...NO_LIMIT, malformed: 0.02 }
async function start(options: SetupOptions = {}) {
  setup = await setUp({
    world: { projects: 1, prompts: 7, models: 2, brands: 3 },
    config: { streams: ['prompts', 'chats'], reports: FOUR_GRAINS, start_date: '2026-03-20' },
    ...options,
  })
}
const cli = (...args: string[]) => runCli(args, { env: setup.env, config: setup.fileConfig })
const open = async () =>
  (
    await setup.database.rows<{ n: number }>(
      'select count(*)::int as n from visibility_ops.quarantine where resolved_at is null',
    )
  )[0]!.n
const count = async (table: string, where = 'true') =>
  (await setup.database.rows<{ n: number }>(`select count(*)::int as n from visibility.${table} where ${where}`))[0]!.n

const dismiss = (filter: QuarantineFilter) => dismissQuarantine(setup.database.warehouse, filter, 'known to the vendor')

async function statusRows(): Promise<Record<string, number>> {
  const status = await readStatus(setup.database.warehouse, {
    config: setup.config,
    today: '2026-03-31',
    projects: setup.projects.map(({ id }) => id),
    streams: setup.services.streams.named(),
    runs: 5,
  })
  return Object.fromEntries(status!.streams.map(({ stream, rows }) => [stream, rows]))
}

async function expectStatusCountsTheTables() {
  const rows = await statusRows()
  const tables = ['chats', ...FOUR_GRAINS.map(({ name }) => name)]
  for (const table of tables) expect([table, rows[table]]).toEqual([table, await count(table)])
  expect(rows.prompts).toBe(await count('prompts', 'removed_at is null'))
}

describe('a dismissed row', () => {
  test('no longer makes runs partial, is kept with its reason, and comes back when it changes', async () => {
    await start({ faults: BAD })
    await setup.sync()
    const before = await open()
    expect(before).toBeGreaterThan(3)
    const { groups } = (await cli('quarantine', 'list', '--json')).json() as { groups: QuarantineGroup[] }
    const rowsOf = (some: QuarantineGroup[]) => some.reduce((sum, group) => sum + group.rows, 0)
    expect(rowsOf(groups)).toBe(before)

    const unsaid = await cli('quarantine', 'dismiss', '--stream', groups[0]!.stream)
    expect([unsaid.code, unsaid.stderr]).toEqual([2, expect.stringContaining('--because')])
    const { example_id, reason } = groups[0]!
    const one = await cli('quarantine', 'dismiss', String(example_id), '--because', 'looked at by hand')
    expect([one.code, await open()]).toEqual([0, before - 1])
    await dismiss({ reason })
    expect(await open()).toBe(before - rowsOf(groups.filter((group) => group.reason === reason)))
    await dismiss({ streams: groups.map(({ stream }) => stream) })
    expect(await open()).toBe(0)

    expect((await setup.sync()).outcome).toBe('complete')
    const dismissed = await listQuarantine(setup.database.warehouse, { state: 'dismissed' })
    expect(dismissed).toHaveLength(before)
    expect(dismissed.find(({ quarantine_id }) => quarantine_id === example_id)).toMatchObject({
      dismissed_because: 'looked at by hand',
      resolution: 'dismissed',
    })

    // The same rows, bad in another way.
    await setup.database.rows(
      "update visibility_ops.quarantine set fingerprint = md5('another version' || quarantine_id)",
    )
    expect((await setup.sync()).outcome).toBe('partial')
    expect(await open()).toBeGreaterThan(0)
  })

  test('no longer keeps rows that vanished from its window', async () => {
    await start()
    await setup.sync()
    setup.service.setFaults(BAD)
    const [project] = setup.service.world.projects
    setup.service.world.deletePrompt(project!, project!.prompts[0]!.id)
    const range = { from: '2026-03-20', to: '2026-03-31' }
    await setup.sync({ range, command: 'backfill' })
    await dismiss({ streams: ['by_prompt'] })
    await setup.sync()
    expect(
      await count('by_prompt', `prompt_id not in (select prompt_id from visibility.prompts where removed_at is null)`),
    ).toBe(0)
    await expectStatusCountsTheTables()
  })
})

test('an answer that is held settles no quarantine entry of its days', async () => {
  await start({ faults: BAD })
  await setup.sync()
  const before = await open()
  setup.service.setFaults({ ...NO_LIMIT, empty: true })
  const held = await setup.sync()
  expect(held.streams.some((stream) => stream.held.length > 0)).toBe(true)
  expect(await open()).toBe(before)
  // Rows that are in quarantine do not show that the stored totals are wrong, whatever the state of their days is now.
  expect((await setup.sync()).streams.reduce((sum, { deleted }) => sum + deleted, 0)).toBe(0)
  expect(await open()).toBe(before)
  setup.service.setFaults(NO_LIMIT)
  expect((await setup.sync()).outcome).toBe('complete')
  expect(await open()).toBe(0)
})

test('status counts the rows of the tables, whatever the last answer had', async () => {
  await start()
  await setup.sync()
  await expectStatusCountsTheTables()
  const unknown = await cli('quarantine', 'list', '--stream', 'chat')
  expect([unknown.code, unknown.stderr]).toEqual([2, expect.stringContaining('did you mean "chats"?')])
  setup.service.setFaults(BAD)
  await setup.sync({ range: { from: '2026-03-20', to: '2026-03-31' }, command: 'backfill' })
  await expectStatusCountsTheTables()
  setup.service.setFaults({ ...NO_LIMIT, empty: true })
  await setup.sync()
  await expectStatusCountsTheTables()
})

describe('own brands', () => {
  const isOwn = () =>
    setup.database.rows<{ brand_id: string }>('select brand_id from visibility.brands where is_own order by 1')

  test('without labels the brand with the name of the profile is own, which is reported once, and by check', async () => {
    await start({ config: { streams: ['project_profile'], reports: FOUR_GRAINS.slice(0, 1) } })
    const [project] = setup.service.world.projects
    const first = await cli('sync', '--json')
    expect(first.json().notes).toEqual([
      expect.stringContaining(`own brand of ${project!.id}: ${project!.brands[0]!.name}`),
    ])
    expect(await isOwn()).toEqual([{ brand_id: project!.brands[0]!.id }])
    expect((await cli('sync', '--json')).json().notes).toEqual([])
    expect((await cli('check')).stdout).toContain('because its profile has the same name')
  })

  test('if there is none, lines to copy are printed once in a run, and not again by the next one unless a person waits', async () => {
    await start({ config: { streams: ['prompts'], reports: FOUR_GRAINS.slice(0, 1) } })
    const [project] = setup.service.world.projects
    const first = await cli('sync')
    expect(`${first.stdout}${first.stderr}`.match(/is own/g)).toHaveLength(1)
    const [block] = /^ *labels:\n *brands:\n( +kw_[\w-]+: \{ own: true \} # .*\n)+/m.exec(first.stdout)!
    expect(block).toContain(JSON.stringify(project!.brands[0]!.name))
    // Of many projects, those of the first few.
    const [few] = await ownBrandNotes(setup.database.warehouse, ['or_a', 'or_b', project!.id])
    const [many] = await ownBrandNotes(setup.database.warehouse, ['or_a', 'or_b', 'or_c', project!.id])
    expect([few!.includes('own: true'), many!.includes('own: true')]).toEqual([true, false])
    const again = await cli('sync')
    expect([again.code, `${again.stdout}${again.stderr}`]).toEqual([0, expect.not.stringContaining('is own')])
    expect((await setup.sync({ isWatched: true })).notes).toEqual([expect.stringContaining('is own')])
    expect((await cli('check')).stdout).toContain(block.trim().split('\n').at(-1)!.trim())
    const labels = { ...setup.fileConfig, ...(parse(block) as object) }
    expect((await runCli(['sync'], { env: setup.env, config: labels })).code).toBe(0)
    expect((await isOwn()).length).toBe(block.match(/own: true/g)!.length)
  })
})

test('identical rejects and rejects without a day are counted alike in the run, the table, status and freshness', async () => {
  await start()
  const proxy = await startRewriter(setup.service.url, (text, _message, body) => {
    const { dimensions = [] } = (body === '' ? {} : JSON.parse(body)) as { dimensions?: string[] }
    const { data, ...rest } = JSON.parse(text) as { data?: unknown[] }
    if (data === undefined || data.length < 100 || !dimensions.includes('model_id')) return text
    return JSON.stringify({ ...rest, data: [...data, null, null, { ...(data[0] as object), mention_count: 'many' }] })
  })
  const { streams } = await setup.through(proxy.url, () => setup.sync())
  const inRun = streams.reduce((sum, { quarantined }) => sum + quarantined, 0)
  expect(inRun).toBeGreaterThan(3)
  const [table] = await setup.database.rows(
    'select sum(occurrences)::int as rows, count(*) < sum(occurrences) as merged from visibility_ops.quarantine where resolved_at is null',
  )
  expect(table).toEqual({ rows: inRun, merged: true })
  const [fresh] = await setup.database.rows('select sum(quarantined_rows)::int as rows from visibility.freshness')
  expect(fresh).toEqual({ rows: inRun })
})

test('a service of which always the same rows are malformed costs at most twice the requests of a healthy one', async () => {
  const options = {
    world: { projects: 1, prompts: 12, models: 2, brands: 4 },
    config: { start_date: '2026-01-01', source: { page_limit: 4000 } },
  }
  const reading = async () => {
    const requests: number[] = []
    for (let run = 0; run < 3; run++) {
      const { streams } = await setup.sync()
      requests.push(streams.reduce((sum, stream) => sum + stream.requests, 0))
    }
    return requests
  }
  const tables = ['chats', ...FOUR_GRAINS.map(({ name }) => name)]
  const rowsOfTables = () => Promise.all(tables.map((table) => count(table)))
  await start(options)
  const healthy = await reading()
  const all = await rowsOfTables()
  await start({ ...options, faults: BAD })
  const malformed = await reading()
  const ratios = malformed.map((requests, run) => requests / healthy[run]!)
  expect({ healthy, malformed, most: Math.max(...ratios) <= 2 }).toEqual({ healthy, malformed, most: true })

  // Every good row is loaded, and every other one is in quarantine once.
  const good = await rowsOfTables()
  const rejects = await setup.database.rows<{ stream: string; rows: number }>(
    'select stream, sum(occurrences)::int as rows from visibility_ops.quarantine where resolved_at is null group by 1',
  )
  const rejected = tables.map((table) => rejects.find(({ stream }) => stream === table)?.rows ?? 0)
  expect(good.map((rows, at) => rows + rejected[at]!)).toEqual(all)
  expect(Math.min(...rejected)).toBeGreaterThan(0)
})
