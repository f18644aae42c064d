import type { IncomingMessage } from 'node:http'
import { describe, expect, test } from '@jest/globals'
import { runAudit } from '../src/audit/run-audit.ts'
import { type Day, daysIn } from '../src/core/day.ts'
import { retryQuarantine } from '../src/sync/quarantine.ts'
import type { RunRequest } from '../src/sync/run/run.ts'
import { longTest, some } from './support/long.ts'
import { startRewriter } from './support/proxy.ts'
import { FOUR_GRAINS, NO_LIMIT, type Setup, type SetupOptions, setUp } from './support/setup.ts'
import { expectChats, expectExact, expectReport } from './support/truth.ts'

/* Answers that look right and are not, and holds that must hold. */

let setup: Setup

const range = { from: '2026-03-01', to: '2026-03-31' }
const week = { from: '2026-03-25', to: '2026-03-31' }
const start = async (options: SetupOptions = {}) => {
  setup = await setUp({ world: { projects: 1, prompts: 7, models: 2, brands: 3 }, ...options })
}
const project = () => setup.service.world.projects[0]!
const exact = (over = range) =>
  expectExact(setup.database, { world: setup.service.world, range: over, reports: FOUR_GRAINS })
const count = async (table: string, where = 'true', schema = 'visibility') =>
  (await setup.database.rows<{ n: number }>(`select count(*)::int as n from ${schema}.${table} where ${where}`))[0]!.n
const dropDay = (day: Day) => {
  for (const { id } of setup.service.world.chatsOf(project(), day)) setup.service.world.dropChat(id)
}
/** A sync through something that changes its answers. */
const syncThrough = async (
  rewrite: (text: string, message: IncomingMessage) => string | Buffer,
  request: Partial<RunRequest> = {},
) => {
  const { url } = await startRewriter(setup.service.url, rewrite)
  return setup.through(url, () => setup.sync(request), { maxAttempts: 3 })
}
const failures = (report: Awaited<ReturnType<Setup['sync']>>) => report.streams.flatMap(({ failed }) => failed)

describe('page limits', () => {
  test.each(some([61, 300, 137, 25], 1))(
    'silent truncation to %d rows is detected in a range of one window',
    async (silent_cap) => {
      await start({
        world: { projects: 1, prompts: 30, models: 2, brands: 3 },
        faults: { ...NO_LIMIT, silent_cap },
        config: { start_date: week.from },
      })
      expect((await setup.sync()).outcome).toBe('complete')
      await exact(week)
      expect(await setup.database.rows("select from visibility_ops.drift where kind = 'short_page'")).not.toEqual([])
    },
  )

  const CUTS = [
    { silent_cap: 140, malformed: 0 },
    { silent_cap: 61, malformed: 0 },
    { silent_cap: 140, malformed: 0.03 },
    { silent_cap: 90, malformed: 0.03 },
  ]

  test.each(some(CUTS, 1))(
    'silent truncation to $silent_cap rows is detected despite duplicate rows, with $malformed of them malformed',
    async (faults) => {
      await start({
        world: { projects: 1, prompts: 30, models: 2, brands: 3 },
        faults: { ...NO_LIMIT, ...faults, duplicate_rows: 0.3 },
        config: { start_date: week.from, max_bad_share: 0.2, lookback_days: 0 },
      })
      expect(failures(await setup.sync())).toEqual([])
      setup.service.setFaults(NO_LIMIT)
      const sound = await setup.database.rows("select date from visibility_ops.coverage where state = 'read'")
      expect(sound.length).toBeGreaterThan(0)
      // Days with malformed rows are read again, the others are not.
      await setup.sync()
      await exact(week)
    },
  )

  test('silent truncation is detected if all rows are on the last days', async () => {
    await start({
      world: { projects: 1, prompts: 30, models: 2, brands: 3 },
      faults: { ...NO_LIMIT, silent_cap: 137 },
      config: { start_date: week.from },
    })
    for (const day of daysIn({ from: week.from, to: '2026-03-28' })) dropDay(day)
    expect((await setup.sync()).outcome).toBe('complete')
    await exact(week)
  })

  test.each([100, 250])('results truncated to %d rows before paging are detected', async (most) => {
    await start({
      world: { projects: 1, prompts: 30, models: 2, brands: 3 },
      config: { start_date: week.from, streams: ['chats'], reports: [] },
    })
    const report = await syncThrough((text, { url }) => {
      const offset = Number(new URL(url!, 'http://localhost').searchParams.get('offset') ?? 0)
      const { data } = JSON.parse(text)
      return JSON.stringify({ data: data.slice(0, Math.max(0, most - offset)) })
    })
    expect(report.outcome).toBe('complete')
    await expectChats(setup.database, { world: setup.service.world, range: week, reports: [] }, project())
  })

  test('a list without a total is asked for more rows if it has fewer than before', async () => {
    await start({ config: { streams: ['prompt_suggestions'], reports: [] } })
    expect((await setup.sync()).outcome).toBe('complete')
    expect(await count('prompt_suggestions', 'removed_at is null')).toBe(8)
    const cut = (text: string, message: IncomingMessage) => {
      if (!message.url!.includes('suggestions')) return text
      return JSON.stringify({ data: JSON.parse(text).data.slice(0, 6) })
    }
    expect((await syncThrough(cut)).outcome).toBe('complete')
    expect(await count('prompt_suggestions', 'removed_at is null')).toBe(8)
  })

  test('a list with fewer rows than its own total deletes nothing', async () => {
    await start({ world: { projects: 1, prompts: 12, models: 1, brands: 2 }, config: { start_date: week.from } })
    await setup.sync()
    const report = await syncThrough((text, { url }) => {
      if (!/\/prompts\?/.test(url!)) return text
      const answer = JSON.parse(text)
      const isFirst = /offset=0\b/.test(url!) || !url!.includes('offset')
      return JSON.stringify({ ...answer, data: isFirst ? answer.data.slice(0, 7) : [] })
    })
    expect([report.outcome, failures(report).map(({ error }) => error)]).toEqual([
      'partial',
      ['prompts: 7 rows, 5 fewer than before, but the service counts 12'],
    ])
    expect(await count('prompts', 'removed_at is null')).toBe(12)
  })

  test('truncation of reports is detected though answers of chats are larger', async () => {
    await start({
      world: { projects: 1, prompts: 30, models: 3, brands: 1 },
      faults: { ...NO_LIMIT, report_cap: 137 },
      config: { start_date: week.from, streams: ['chats'], reports: FOUR_GRAINS.slice(3) },
    })
    const report = await setup.sync()
    expect(await count('chats')).toBeGreaterThan(137)
    expect(report.outcome).toBe('complete')
    const reports = FOUR_GRAINS.slice(3)
    await expectReport(setup.database, { world: setup.service.world, range: week, reports: [] }, project(), reports[0]!)
  })

  test('models of any name are read, though the service refuses names that it does not know and days overflow', async () => {
    await start({
      world: { projects: 1, prompts: 30, models: ['chatgpt-scraper', 'grok-4', 'openai-0', 'new-9'], brands: 2 },
      config: { start_date: week.from, source: { page_limit: 50 } },
    })
    expect((await setup.sync()).outcome).toBe('complete')
    await exact(week)
  })

  test('two operations truncated to different numbers are both detected', async () => {
    await start({
      world: { projects: 1, prompts: 30, models: 3, brands: 1 },
      // The first to be found out lowers the page limit, under which the other cannot be seen.
      faults: { ...NO_LIMIT, silent_cap: 137, report_cap: 301 },
      config: { start_date: week.from, streams: ['chats'], reports: FOUR_GRAINS.slice(3), source: { concurrency: 1 } },
    })
    expect((await setup.sync()).outcome).toBe('complete')
    const truth = { world: setup.service.world, range: week, reports: [] }
    await expectChats(setup.database, truth, project())
    await expectReport(setup.database, truth, project(), FOUR_GRAINS[3]!)
  })

  longTest('truncation that one stream shows is assumed for all', async () => {
    await start({ world: { projects: 2, prompts: 30, models: 3, brands: 3 }, faults: { ...NO_LIMIT, silent_cap: 300 } })
    expect((await setup.sync()).outcome).toBe('complete')
    await exact()
  })

  test.each([
    ['a limit on the values of a filter', { max_values: 5 }],
    ['a limit on the days of a range', { max_days: 3 }],
    ['a page limit too small to prove anything', { limit_max: 5 }],
  ])('%s is not taken for something else: no row is lost without a word', async (_, fault) => {
    const days = { from: '2026-03-22', to: '2026-03-31' }
    const config = { start_date: days.from, source: { page_limit: 40 } }
    await start({ faults: { ...NO_LIMIT, ...fault, unstable_order: true }, config })
    const report = await setup.sync()
    if (report.outcome === 'complete') await exact(days)
    else expect(failures(report).length).toBeGreaterThan(0)
    for (const grain of FOUR_GRAINS) {
      const found = await setup.database.rows<{ date: string; rows: number }>(
        `select date, count(*)::int as rows from visibility.${grain.name} group by 1`,
      )
      const covered = await setup.database.rows<{ date: string; rows: number }>(
        "select date, rows from visibility_ops.coverage where stream = $1 and state = 'read'",
        [grain.name],
      )
      const sizes = new Set(found.map(({ rows }) => rows))
      // Every day has as many rows as any other here, so a day that was cut would stand out.
      expect([found.length, sizes.size]).toEqual([covered.length, covered.length === 0 ? 0 : 1])
    }
  })

  test('windows that are too long for the service get shorter until it serves them', async () => {
    await start({ faults: { ...NO_LIMIT, max_days: 3 } })
    const report = await setup.sync()
    expect(failures(report)).toEqual([])
    await exact()
    await setup.sync()
    await exact()
  })

  test('if every window is refused, the run fails after a few requests', async () => {
    await start({
      config: { streams: ['chats'], reports: [], start_date: '2025-01-01' },
      faults: { ...NO_LIMIT, max_days: 1, limit_max: 1 },
    })
    const report = await setup.sync()
    expect(report.outcome).toBe('failed')
    expect(setup.service.requests.length).toBeLessThan(40)
  })

  test('a refused list of values is retried with fewer values before filters are given up', async () => {
    await start({
      world: { projects: 1, prompts: 40, models: 1, brands: 3 },
      faults: { ...NO_LIMIT, max_values: 3, unstable_order: true },
      config: { start_date: '2026-03-31', reports: [FOUR_GRAINS[3]], streams: ['prompts'], source: { page_limit: 50 } },
    })
    // A day is split by the prompts that are known.
    await setup.sync({ streams: setup.services.streams.named(['prompts']) })
    expect(failures(await setup.sync())).toEqual([])
    await expectReport(
      setup.database,
      { world: setup.service.world, range: { from: '2026-03-31', to: '2026-03-31' }, reports: [] },
      project(),
      FOUR_GRAINS[3]!,
    )
  })

  test('a day of chats larger than a page for each model is split by the prompts that are known', async () => {
    await start({
      world: { projects: 1, prompts: 120, models: 2, brands: 3 },
      faults: { ...NO_LIMIT, unstable_order: true },
      config: {
        start_date: '2026-03-31',
        reports: [],
        streams: ['prompts', 'chats'],
        source: { page_limit: 90, concurrency: 1 },
      },
    })
    setup.service.setFaults(NO_LIMIT)
    await setup.sync({ streams: setup.services.streams.named(['prompts']) })
    setup.service.setFaults({ ...NO_LIMIT, unstable_order: true })
    expect(failures(await setup.sync({ streams: setup.services.streams.named(['chats']) }))).toEqual([])
    await expectChats(
      setup.database,
      { world: setup.service.world, range: { from: '2026-03-31', to: '2026-03-31' }, reports: [] },
      project(),
    )
  })

  test('missing rows are detected at the first answer, though larger answers were complete', async () => {
    await start({ config: { start_date: '2026-03-01', lookback_days: 31, source: { page_limit: 300 } } })
    await setup.sync()
    // Every answer of more than 50 rows about one week lacks its last rows, but is larger than others.
    const shortened = (text: string) =>
      /"date":"2026-03-1[0-6]"/.test(text) ? text.replace(/(?:,\{"brand":(?:(?!\{"brand").)*\}){3}\]\}$/s, ']}') : text
    const streams = setup.services.streams.named(['by_prompt'])
    await syncThrough(shortened, { streams })
    await syncThrough(shortened, { streams })
    const [{ rows }] = (await setup.database.rows<{ rows: number }>(
      'select sum(rows_deleted)::int as rows from visibility_ops.restatements',
    )) as [{ rows: number | null }]
    expect(rows ?? 0).toBe(0)
  })

  test('an answer that lost rows is checked before anything is deleted', async () => {
    await start()
    await setup.sync()
    setup.service.setFaults({ ...NO_LIMIT, silent_cap: 260 })
    await setup.sync({ command: 'backfill', range: week, streams: setup.services.streams.named(['by_prompt']) })
    await exact()
  })
})

describe('answers that were damaged in transit', () => {
  /** One day of a report with 480 rows. */
  const startReport = () =>
    start({
      world: { projects: 1, prompts: 40, models: 2, brands: 6 },
      config: { streams: [], reports: FOUR_GRAINS.slice(3), start_date: '2026-03-31', source: { max_attempts: 3 } },
    })

  // The last row, with the comma before it.
  const LAST_ROW = /,(\{"brand":(?:(?!\{"brand").)*\})\]\}$/s
  test('an answer without its last row is never loaded, however often it comes', async () => {
    let damaged = 0
    await startReport()
    const report = await syncThrough((text) => {
      const changed = text.replace(LAST_ROW, ',]}')
      if (changed !== text) damaged++
      return changed
    })
    // Three attempts for the control totals, and three for the report.
    expect(damaged).toBe(6)
    expect(report.outcome).toBe('failed')
    expect(failures(report)[0]!.error).toContain('the answer is not whole JSON')
    expect(await count('by_prompt')).toBe(0)
    expect(await count('coverage', 'true', 'visibility_ops')).toBe(0)
  })

  test('an answer that was damaged once is read again, and no row is lost', async () => {
    let answers = 0
    await startReport()
    const report = await syncThrough((text) => (answers++ === 0 ? text.replace(LAST_ROW, ',]}') : text))
    expect(report.outcome).toBe('complete')
    expect(await count('by_prompt')).toBe(480)
  })

  test('rows without the requested prompt and model are refused', async () => {
    await startReport()
    const report = await syncThrough((text) => {
      const { data } = JSON.parse(text) as { data: Record<string, unknown>[] }
      return JSON.stringify({ data: data.slice(0, 6).map((row) => ({ ...row, prompt: undefined, model: undefined })) })
    })
    expect(failures(report)[0]!.error).toContain('the service ignored the dimension prompt_id')
    expect(await count('by_prompt')).toBe(0)
    expect((await setup.sync()).outcome).toBe('complete')
    expect(await count('by_prompt')).toBe(480)
  })

  test('an empty answer for days that were never read is asked for once more', async () => {
    await startReport()
    let answers = 0
    const report = await syncThrough((text) => (answers++ === 0 ? '{"data":[]}' : text))
    expect(report.outcome).toBe('complete')
    expect(await count('by_prompt')).toBe(480)
  })

  test('missing rows of one day are detected though another day gained more', async () => {
    await start({
      world: { projects: 1, prompts: 30, models: 2, brands: 3 },
      config: { start_date: week.from, streams: [], reports: FOUR_GRAINS.slice(2), lookback_days: 30 },
    })
    type TopicRow = { date: string; topic?: { id: string }; prompt?: unknown }
    const rewriteTopics = (change: (rows: TopicRow[]) => TopicRow[]) => (text: string) => {
      const { data } = JSON.parse(text) as { data: TopicRow[] }
      return JSON.stringify({ data: data.some(({ topic, prompt }) => topic && !prompt) ? change(data) : data })
    }
    const isOn = (day: Day, share: number) => (row: TopicRow, index: number) => row.date === day && index % share === 0
    const young = rewriteTopics((rows) => rows.filter((row, index) => !isOn(week.to, 2)(row, index)))
    expect((await syncThrough(young)).outcome).toBe('complete')
    let answers = 0
    const poor = rewriteTopics((rows) =>
      answers++ > 0 ? rows : rows.filter((row, at) => !isOn('2026-03-28', 5)(row, at)),
    )
    expect(failures(await syncThrough(poor))).toEqual([])
    const truth = { world: setup.service.world, range: week, reports: [] }
    await expectReport(setup.database, truth, project(), FOUR_GRAINS[2]!)
  })
})

describe('holds', () => {
  const dropWeek = () => {
    for (const day of daysIn(week))
      for (const chat of setup.service.world.chatsOf(project(), day)) setup.service.world.dropChat(chat.id)
  }

  test('a held day stays held in a longer window, until it is accepted', async () => {
    await start({ config: { streams: ['chats'], reports: FOUR_GRAINS.slice(0, 1) } })
    await setup.sync()
    dropWeek()
    expect((await setup.sync()).outcome).toBe('partial')
    const wider = await setup.sync({ command: 'backfill', range })
    expect(wider.outcome).toBe('partial')
    expect(await count('chats', "date >= '2026-03-25'")).toBe(7 * 14)
    expect((await setup.sync({ command: 'backfill', range: week, acceptDeletes: true })).outcome).toBe('complete')
    expect(await count('chats', "date >= '2026-03-25'")).toBe(0)
    expect((await setup.sync()).outcome).toBe('complete')
  })

  test('rows with new keys are not added while the old rows of their day are held', async () => {
    await start()
    await setup.sync()
    const { world } = setup.service
    const old = [...project().prompts]
    for (const [index, prompt] of old.entries()) {
      world.addPrompt(project(), { ...prompt, id: world.newId('pr', 'replaced', index) })
      world.deletePrompt(project(), prompt.id)
    }
    for (let run = 0; run < 2; run++) {
      expect((await setup.sync()).outcome).toBe('partial')
      expect(await count('chats')).toBe(31 * 14)
      expect(await count('prompts', 'removed_at is null')).toBe(7)
      expect(await count('by_prompt')).toBe(31 * 14 * 3)
    }
    await setup.sync({ command: 'backfill', range, acceptDeletes: true })
    await exact()
  })

  test('new days are loaded though older days of the same window are held', async () => {
    await start({ config: { streams: ['chats'], reports: [] } })
    await setup.sync({ command: 'backfill', range: { from: '2026-03-25', to: '2026-03-30' } })
    for (const day of daysIn({ from: '2026-03-25', to: '2026-03-30' }))
      for (const chat of setup.service.world.chatsOf(project(), day)) setup.service.world.dropChat(chat.id)
    const report = await setup.sync({ command: 'backfill', range: week })
    expect(report.streams[0]!.held).toEqual([{ range: '2026-03-25..2026-03-31', rows_present: 84, rows_vanishing: 84 }])
    expect(await count('chats', "date = '2026-03-31'")).toBe(14)
    expect(await count('chats')).toBe(7 * 14)
  })
})

describe('history', () => {
  test('days to be read again are read wherever they are', async () => {
    await start({ config: { start_date: '2026-03-20', lookback_days: 1 } })
    await setup.sync({ command: 'backfill', range: { from: '2026-01-10', to: '2026-01-12' } })
    await setup.sync()
    setup.service.world.rewriteDays(project(), ['2026-01-11'])
    await setup.database.rows("update visibility_ops.coverage set state = 'stale' where date = '2026-01-11'")
    expect((await setup.sync()).outcome).toBe('complete')
    const truth = { world: setup.service.world, range: { from: '2026-01-10', to: '2026-01-12' }, reports: [] }
    const old = await setup.database.rows("select 1 from visibility_ops.coverage where state <> 'read'")
    expect(old).toEqual([])
    await setup.database.rows("delete from visibility.by_prompt where date >= '2026-03-01'")
    await expectReport(setup.database, truth, project(), FOUR_GRAINS[3]!)
  })

  test('a day that changed in one stream is read again in the others', async () => {
    await start({ config: { lookback_days: 1 } })
    await setup.sync()
    const { world } = setup.service
    const [gone] = project().prompts
    // As many chats come as go, so no total tells.
    world.addPrompt(project(), { ...gone!, id: world.newId('pr', 'instead') })
    world.deletePrompt(project(), gone!.id)
    await setup.sync({
      command: 'backfill',
      range: { from: '2026-03-05', to: '2026-03-05' },
      streams: setup.services.streams.named(['by_prompt']),
    })
    const marked = await setup.database.rows<{ stream: string }>(
      "select stream from visibility_ops.coverage where state = 'stale' and date = '2026-03-05' order by 1",
    )
    expect(marked.map(({ stream }) => stream)).toEqual(['brand_daily', 'by_model', 'by_topic', 'chats'])
    await setup.sync()
    const day = { from: '2026-03-05', to: '2026-03-05' }
    const ids = await setup.database.rows<{ chat_id: string }>(
      "select chat_id from visibility.chats where date = '2026-03-05'",
    )
    expect(new Set(ids.map(({ chat_id }) => chat_id))).toEqual(
      new Set(daysIn(day).flatMap((date) => world.chatsOf(project(), date).map(({ id }) => id))),
    )
  })

  test('chats that were read before a prompt was replaced, and reports after, are found by an audit', async () => {
    await start({ config: { lookback_days: 1 } })
    const { streams } = setup.services
    await setup.sync({ streams: streams.named(['chats']) })
    const { world } = setup.service
    const [gone] = project().prompts
    // As many chats come as go, and no report was there to change.
    world.addPrompt(project(), { ...gone!, id: world.newId('pr', 'instead') })
    world.deletePrompt(project(), gone!.id)
    expect((await setup.sync()).outcome).toBe('complete')
    const request = { projects: setup.projects, repair: true, signal: new AbortController().signal }
    const { audited, remaining } = await runAudit(setup.services, request)
    expect(audited.find(({ stream }) => stream === 'chats')).toMatchObject({
      columns: ['number of chats', 'number of chats by prompt'],
      differing: daysIn({ from: range.from, to: '2026-03-30' }),
    })
    expect(remaining).toBe(0)
    await exact()
  })

  test('a brand keeps its newest name, in whatever order days are read', async () => {
    await start()
    const brand = project().brands[0]!
    await setup.sync()
    setup.service.world.renameBrand(project(), brand.id, 'Newest')
    await setup.sync()
    setup.service.world.renameBrand(project(), brand.id, 'A name of old days')
    await setup.sync({ command: 'backfill', range: { from: '2026-03-01', to: '2026-03-05' } })
    expect(await setup.database.rows('select name from visibility.brands where brand_id = $1', [brand.id])).toEqual([
      { name: 'Newest' },
    ])
  })
})

describe('retrying quarantined rows', () => {
  const entry = (raw: object, from: string, to: string, reason = 'odd') =>
    setup.database.rows(
      `insert into visibility_ops.quarantine (project_id, stream, reason, raw, fingerprint, from_date, to_date, run_id)
       values ($1, 'brand_daily', $2, $3::text::json, md5($3::text), $4, $5, 1)`,
      [project().id, reason, JSON.stringify(raw), from, to],
    )
  const row = (date: string, mentions: number) => ({
    brand: { id: project().brands[0]!.id },
    mention_count: mentions,
    visibility: 0,
    visibility_count: 0,
    visibility_total: 1,
    date,
  })

  test('loads no row from outside the window in which it came, nor one of two that contradict each other', async () => {
    await start()
    await setup.sync()
    await entry(row('2026-03-07', 999), '2026-03-05', '2026-03-05')
    await entry(
      row('2026-03-09', 5),
      '2026-03-09',
      '2026-03-09',
      'the same key stands twice in one answer with different values',
    )
    const result = await retryQuarantine(setup.services, setup.services.streams.named(), {})
    expect(result).toMatchObject({ tried: 2, loaded: 0 })
    await exact()
  })

  test('marks its days to be read again, so that rows which were kept because of rejects can be deleted', async () => {
    await start()
    await setup.sync()
    await entry(row('2026-03-09', 5), '2026-03-09', '2026-03-09')
    await setup.database.rows(
      "update visibility_ops.coverage set state = 'quarantined' where stream = 'brand_daily' and date = '2026-03-09'",
    )
    expect(await retryQuarantine(setup.services, setup.services.streams.named(), {})).toMatchObject({ loaded: 1 })
    expect(
      await setup.database.rows(
        "select state from visibility_ops.coverage where stream = 'brand_daily' and date = '2026-03-09'",
      ),
    ).toEqual([{ state: 'stale' }])
    await setup.sync()
    await exact()
  })
})

test('a run stops on request though someone else locks the table', async () => {
  await start({ config: { streams: [], reports: FOUR_GRAINS.slice(0, 1) } })
  await setup.sync()
  const blocker = await setup.database.warehouse.pool.connect()
  await blocker.query('begin')
  await blocker.query('lock table visibility.brand_daily in access exclusive mode')
  const stop = new AbortController()
  const running = setup.sync({ signal: stop.signal })
  setTimeout(() => stop.abort(), 500)
  expect((await running).outcome).toBe('interrupted')
  blocker.release(true)
})
