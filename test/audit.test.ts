import { describe, expect, test } from '@jest/globals'
import { runAudit } from '../src/audit/run-audit.ts'
import { runCli } from './support/cli.ts'
import { isReport, type Lie, lyingTo } from './support/lies.ts'
import { FOUR_GRAINS, type Setup, type SetupOptions, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

describe('an audit', () => {
  let setup: Setup

  const TAGGED = { name: 'by_tag', dimensions: ['date', 'tag_id'] }
  const range = { from: '2026-03-01', to: '2026-03-31' }
  const start = async (options: SetupOptions = {}) => {
    setup = await setUp({
      world: { projects: 1, prompts: 7, models: 2, brands: 3 },
      config: { reports: [...FOUR_GRAINS, TAGGED], lookback_days: 2 },
      ...options,
    })
    expect((await setup.sync()).outcome).toBe('complete')
    setup.service.requests.length = 0
  }
  const cli = (...args: string[]) => runCli(args, { env: setup.env, config: setup.fileConfig })
  const project = () => setup.service.world.projects[0]!
  const differing = (result: any) =>
    Object.fromEntries(
      result.audited
        .filter((entry: any) => entry.differing.length > 0)
        .map((entry: any) => [entry.stream, entry.differing]),
    )

  const restatements = () => setup.database.rows('select * from visibility_ops.restatements')
  const stateOfAll = async () => {
    const { streams, lookback } = (await cli('status', '--json')).json()
    return { stale: streams.filter((stream: any) => stream.days_stale > 0), lookback: lookback.needed_days }
  }

  test('a table that was damaged by hand is mended, which is no restatement, and leaves nothing due', async () => {
    await start()
    const { rows } = setup.database
    await rows("delete from visibility.by_prompt where date = '2026-03-05'")
    await rows("update visibility.brand_daily set mention_count = mention_count + 1 where date < '2026-03-04'")
    await rows("update visibility.brand_daily set share_of_voice = 0.5 where date = '2026-03-08'")
    await rows("delete from visibility.chats where date = '2026-03-07'")
    // An audit marks the days, and a second one still knows them.
    expect((await cli('audit', '--json')).code).toBe(1)
    const marked = (await cli('status', '--json')).json().streams
    expect(marked.map(({ days_missing }: any) => days_missing ?? 0)).toEqual(marked.map(() => 0))
    expect(marked.some(({ days_stale }: any) => days_stale > 0)).toBe(true)
    const repaired = await cli('audit', '--repair', '--json')
    expect([repaired.code, repaired.json().remaining]).toEqual([0, 0])
    await expectExact(setup.database, { world: setup.service.world, range, reports: FOUR_GRAINS })
    expect([await restatements(), await stateOfAll()]).toEqual([[], { stale: [], lookback: null }])
  })

  test('of a service without usable answers ends once the client has given up, and asks no more', async () => {
    await start()
    const audit = { projects: setup.projects, signal: new AbortController().signal, repair: false }
    const broken: Lie = () => ({ error: 'broken' })
    const work = () => runAudit(setup.services, audit).catch((error: unknown) => error)
    expect(await lyingTo(setup, broken, work)).toBeInstanceOf(Error)
    expect(setup.service.requests.length).toBeLessThan(6)
  })

  test('days that differ because rows of the service are malformed are said to', async () => {
    await start()
    const lie: Lie = (sent, asked) =>
      isReport(asked) ? sent.map((row) => (row.date === '2026-03-06' ? { ...row, visibility: 'much' } : row)) : sent
    const audit = { projects: setup.projects, signal: new AbortController().signal, repair: false }
    const { audited, notes } = await lyingTo(setup, lie, () => runAudit(setup.services, audit))
    expect(audited.flatMap(({ stream, differing }) => differing.map((day) => `${stream} ${day}`))).toEqual([
      'brand_daily 2026-03-06',
    ])
    expect(notes).toEqual([
      `brand_daily of ${project().id}: the service now sends rows that fail validation (2026-03-06); the next sync puts them into quarantine`,
    ])
  })

  test('totals whose rows are all malformed hold no day, and are right once the rows are', async () => {
    await start()
    const lie: Lie = (sent, asked) =>
      asked.dimensions.join() === 'date' ? sent.map((row) => ({ ...row, visibility: 'much' })) : sent
    const report = await lyingTo(setup, lie, () => setup.sync())
    expect([report.outcome, report.streams.flatMap(({ held }) => held)]).toEqual(['partial', []])
    expect(await setup.database.rows("select * from visibility_ops.coverage where state = 'held'")).toEqual([])
    expect((await setup.sync()).outcome).toBe('complete')
    await expectExact(setup.database, { world: setup.service.world, range, reports: FOUR_GRAINS })
    expect(await restatements()).toEqual([])
  })

  test('a table that was dropped is filled by the next sync, which is no restatement', async () => {
    await start()
    await setup.database.rows('drop table visibility.by_model cascade')
    expect((await cli('sync', '--json')).json().outcome).toBe('complete')
    await expectExact(setup.database, { world: setup.service.world, range, reports: FOUR_GRAINS })
    expect([await restatements(), await stateOfAll()]).toEqual([[], { stale: [], lookback: null }])
  })

  test('the lookback that status advises is just long enough for the oldest day that the service changed', async () => {
    await start()
    await setup.database.rows(
      `insert into visibility_ops.restatements (project_id, stream, date, rows_inserted, rows_updated, rows_deleted, run_id)
       values ($1, 'by_model', '2026-03-06', 0, 1, 0, 1)`,
      [project().id],
    )
    const { stdout } = await cli('status')
    expect(stdout.replaceAll(/\s+/g, ' ')).toContain(
      'days up to 25 days old; lookback_days is 2: too short, set it to 26',
    )
    // Older days were rewritten: the history check finds them, whatever the lookback.
    await setup.database.rows("update visibility_ops.restatements set date = '2026-02-28'")
    expect((await cli('status')).stdout).not.toContain('too short')
  })

  test('values that are not compared are repaired in all reports of the day', async () => {
    await start()
    const day = '2026-03-20'
    const again = { command: 'backfill' as const, range: { from: day, to: day } }
    const lie: Lie = (sent, asked) =>
      isReport(asked) ? sent.map((row) => ({ ...row, share_of_voice: 0.123, position: 4, sentiment: 11 })) : sent
    await lyingTo(setup, lie, () => setup.sync(again))
    const repaired = await cli('audit', '--repair', '--json')
    expect([repaired.code, repaired.json().remaining]).toEqual([0, 0])
    await expectExact(setup.database, { world: setup.service.world, range, reports: FOUR_GRAINS })
  })

  test('wrong shares, positions and sentiments of all reports are repaired, or the audit fails and the next sync repairs them', async () => {
    await start()
    const reports = [...FOUR_GRAINS.map(({ name }) => name), 'by_tag']
    const spoil = async (date: string) => {
      for (const name of reports)
        await setup.database.rows(
          `update visibility.${name} set share_of_voice = 0.5, position = 7, sentiment = 3 where date = $1`,
          [date],
        )
    }
    const spoilt = async () => {
      const counts = reports.map((name) =>
        setup.database.rows<{ n: number }>(
          `select count(*)::int as n from visibility.${name} where share_of_voice = 0.5 and position = 7 and sentiment = 3`,
        ),
      )
      return (await Promise.all(counts)).map(([row]) => row!.n > 0)
    }
    await spoil('2026-03-08')
    const repaired = await cli('audit', '--repair', '--json')
    expect([repaired.code, repaired.json().remaining, await spoilt()]).toEqual([0, 0, reports.map(() => false)])

    await spoil('2026-03-12')
    const lie: Lie = (sent, asked) => (asked.dimensions.includes('prompt_id') ? { error: 'no' } : sent)
    const audit = () =>
      runAudit(setup.services, { projects: setup.projects, repair: true, signal: new AbortController().signal })
    const { repair } = await lyingTo(setup, lie, audit)
    expect([repair?.outcome, await spoilt()]).toEqual(['partial', reports.map((name) => name === 'by_prompt')])
    await setup.sync()
    expect(await spoilt()).toEqual(reports.map(() => false))
  })

  test('models whose ids differ only in case are reported', async () => {
    await start()
    expect((await cli('audit')).stdout).not.toContain('spelled')
    const modelsOf = () =>
      setup.database.rows<{ id: string }>('select model_id as id from visibility.models order by 1')
    const before = await modelsOf()
    const day = '2026-03-20'
    const lie: Lie = (sent, asked) =>
      asked.dimensions.includes('model_id')
        ? sent.map((row) => ({ ...row, model: { id: (row.model as { id: string }).id.toLowerCase() } }))
        : sent
    await lyingTo(setup, lie, () => setup.sync({ command: 'backfill', range: { from: day, to: day } }))
    expect((await modelsOf()).length).toBe(2 * before.length)
    const audit = await cli('audit')
    expect([audit.code, audit.stdout]).toEqual([0, expect.stringContaining('No differences')])
    for (const { id } of before)
      expect(audit.stdout).toContain(`the model ${id} of Fernweh is spelled like ${id.toLowerCase()} but for case`)
    expect((await cli('audit', '--json')).json().notes.length).toBe(before.length)
  })

  test('a repair that leaves differences behind fails', async () => {
    await start()
    await setup.database.rows("delete from visibility.by_prompt where date = '2026-03-05'")
    const lie: Lie = (sent, asked) => (asked.dimensions.includes('prompt_id') ? sent.slice(1) : sent)
    const signal = new AbortController().signal
    const audit = () => runAudit(setup.services, { projects: setup.projects, repair: true, signal })
    const { remaining, repair } = await lyingTo(setup, lie, audit)
    expect([remaining, repair?.outcome]).toEqual([1, 'partial'])
  })

  test('an unchanged history has no differences; rewritten days are listed, and they alone are read again by a repair', async () => {
    await start()
    const result = await cli('audit', '--json')
    expect(result.code).toBe(0)
    const { audited, requests } = result.json()
    expect(differing({ audited })).toEqual({})
    expect(
      audited
        .filter((entry: any) => entry.left_out === undefined)
        .map((entry: any) => [entry.stream, entry.days_compared]),
    ).toEqual([['chats', 31], ...FOUR_GRAINS.map(({ name }) => [name, 31])])
    expect(audited.find((entry: any) => entry.stream === 'by_tag').left_out).toContain('need not add up')
    expect(requests).toBe(1)
    setup.service.world.rewriteDays(project(), ['2026-03-03', '2026-03-09'])
    const found = await cli('audit', '--json')
    expect(found.code).toBe(1)
    expect(differing(found.json())).toEqual({
      brand_daily: ['2026-03-03', '2026-03-09'],
      by_model: ['2026-03-03', '2026-03-09'],
      by_topic: ['2026-03-03', '2026-03-09'],
      by_prompt: ['2026-03-03', '2026-03-09'],
    })
    expect(
      await setup.database.rows("select distinct date from visibility_ops.coverage where state = 'stale' order by 1"),
    ).toEqual([{ date: '2026-03-03' }, { date: '2026-03-09' }])

    setup.service.requests.length = 0
    const repaired = await cli('audit', '--repair', '--json')
    expect(repaired.code).toBe(0)
    expect(repaired.json()).toMatchObject({ remaining: 0, repair: { outcome: 'complete' } })
    const reread = setup.service.requests.filter(
      ({ body }) => body.start_date === body.end_date && body.start_date !== undefined,
    )
    expect(new Set(reread.map(({ body }) => body.start_date))).toEqual(new Set(['2026-03-03', '2026-03-09']))
    await expectExact(setup.database, { world: setup.service.world, range, reports: FOUR_GRAINS })
    expect((await cli('audit')).stdout).toContain('No differences')
  })

  test('rows that were lost or spoilt in the warehouse are found and brought back', async () => {
    await start()
    await setup.database.rows("delete from visibility.by_topic where date = '2026-03-07' and topic_id is null")
    await setup.database.rows("update visibility.brand_daily set share_of_voice = 0.5 where date = '2026-03-08'")
    const found = await cli('audit', '--repair', '--json')
    expect(differing(found.json())).toEqual({ by_topic: ['2026-03-07'], brand_daily: ['2026-03-08'] })
    expect(found.code).toBe(0)
    await expectExact(setup.database, { world: setup.service.world, range, reports: FOUR_GRAINS })
  })
})

describe('row for row', () => {
  const range = { from: '2026-03-01', to: '2026-03-31' }
  let setup: Setup

  async function rowVersions(): Promise<string[]> {
    const tables = await setup.database.rows<{ name: string }>(
      "select table_name as name from information_schema.tables where table_schema = 'visibility' and table_type = 'BASE TABLE'",
    )
    const versions: string[] = []
    for (const { name } of tables) {
      const rows = await setup.database.rows<{ version: string }>(
        `select xmin::text || ' ' || ctid::text as version from visibility.${name}`,
      )
      versions.push(...rows.map(({ version }) => `${name} ${version}`))
    }
    return versions.sort()
  }

  test('two projects at four grains equal the service row for row, and a second sync changes no row version', async () => {
    setup = await setUp({ world: { projects: 2, awkward: true, prompts: 8, models: 2, brands: 8 } })
    const options = { env: setup.env, config: setup.fileConfig }
    const first = await runCli(['sync', '--json'], options)
    expect(first.stderr).not.toContain('"level":"error"')
    expect(first.code).toBe(0)
    await expectExact(setup.database, { world: setup.service.world, range, reports: FOUR_GRAINS })

    const before = await rowVersions()
    const second = await runCli(['sync'], options)
    expect(second.code).toBe(0)
    expect(second.stdout).toContain('nothing to change')
    expect(await rowVersions()).toEqual(before)
    const names = await setup.database.rows<{ name: string }>('select name from visibility.brands')
    expect(names.map(({ name }) => name)).toEqual(
      expect.arrayContaining(['O\'Neill "Pro"', 'Tab\there', 'Back\\slash\\N', '東京ランナー', 'line\nbreak', 'عداء']),
    )
  })
})
