import type { IncomingMessage } from 'node:http'
import { describe, expect, test } from '@jest/globals'
import { daysIn } from '../src/core/day.ts'
import type { RunRequest } from '../src/sync/run/run.ts'
import { startRewriter } from './support/proxy.ts'
import { FOUR_GRAINS, NO_LIMIT, type Setup, type SetupOptions, setUp } from './support/setup.ts'
import { expectChats, expectExact, expectReport } from './support/truth.ts'

/* Answers that look right and are not, and holds that must hold. */

let setup: Setup

const range = { from: '2026-03-11', to: '2026-03-31' }
const week = { from: '2026-03-25', to: '2026-03-31' }
const start = async (options: SetupOptions = {}) => {
  const config = { start_date: range.from, ...options.config }
  setup = await setUp({ world: { projects: 1, prompts: 7, models: 2, brands: 3 }, ...options, config })
}
const project = () => setup.service.world.projects[0]!
const exact = (over = range) =>
  expectExact(setup.database, { world: setup.service.world, range: over, reports: FOUR_GRAINS })
const count = async (table: string, where = 'true', schema = 'visibility') =>
  (await setup.database.rows<{ n: number }>(`select count(*)::int as n from ${schema}.${table} where ${where}`))[0]!.n
/** A sync through something that changes its answers. */
const syncThrough = async (
  rewrite: (text: string, message: IncomingMessage, body: string) => string | Buffer,
  request: Partial<RunRequest> = {},
) => {
  const { url } = await startRewriter(setup.service.url, rewrite)
  return setup.through(url, () => setup.sync(request), { maxAttempts: 3 })
}
const failures = (report: Awaited<ReturnType<Setup['sync']>>) => report.streams.flatMap(({ failed }) => failed)

describe('page limits', () => {
  test('silent truncation is detected in a range of one window', async () => {
    await start({
      world: { projects: 1, prompts: 30, models: 2, brands: 3 },
      faults: { ...NO_LIMIT, silent_cap: 61 },
      config: { start_date: week.from },
    })
    expect((await setup.sync()).outcome).toBe('complete')
    await exact(week)
    expect(await setup.database.rows("select from visibility_ops.drift where kind = 'short_page'")).not.toEqual([])
  })

  test('silent truncation is detected despite duplicate rows', async () => {
    await start({
      world: { projects: 1, prompts: 30, models: 2, brands: 3 },
      faults: { ...NO_LIMIT, silent_cap: 140, duplicate_rows: 0.3 },
      config: { start_date: week.from, lookback_days: 0 },
    })
    expect(failures(await setup.sync())).toEqual([])
    await exact(week)
  })

  test.each([20, 7, 4])(
    'a truncated report by date is read whole, whatever else the run reads: %i rows',
    async (cap) => {
      // Five brands make 35 rows a week.
      const reports = FOUR_GRAINS.slice(0, 2)
      const world = { projects: 1, prompts: 7, models: 2, brands: 5 }
      await start({ world, config: { start_date: week.from, streams: [], reports } })
      const truth = async () => {
        const known = { world: setup.service.world, range: week, reports: [] }
        for (const report of reports) await expectReport(setup.database, known, project(), report)
      }
      setup.service.setFaults({ ...NO_LIMIT, report_cap: cap })
      const streams = setup.services.streams.named([reports[0]!.name])
      expect(await setup.sync({ streams })).toMatchObject({ outcome: 'complete', streams: [{ rows_read: 35 }] })
      expect((await setup.sync()).outcome).toBe('complete')
      await truth()
      const again = await setup.sync({ command: 'backfill', range: week, streams })
      expect(again).toMatchObject({ outcome: 'complete', streams: [{ inserted: 0, updated: 0, deleted: 0 }] })
      await truth()
    },
  )

  test('a report by date that lost most of its brands, even behind its last row, is held', async () => {
    const reports = FOUR_GRAINS.slice(0, 2)
    const world = { projects: 1, prompts: 7, models: 2, brands: 5 }
    await start({ world, config: { start_date: week.from, streams: [], reports } })
    await setup.sync()
    const name = reports[0]!.name
    const before = await count(name)
    const streams = setup.services.streams.named([name])
    const request = { command: 'backfill', range: week, streams }
    const keepTwo = (text: string, { url }: IncomingMessage, body: string) => {
      const { data, ...members } = JSON.parse(text) as { data: { brand: { id: string } }[] }
      if (!url!.includes('reports')) return text
      if (JSON.parse(body).offset > 0) return JSON.stringify({ ...members, data: [] })
      const kept = [...new Set(data.map(({ brand }) => brand.id))].sort().slice(0, 2)
      return JSON.stringify({ ...members, data: data.filter(({ brand }) => kept.includes(brand.id)) })
    }
    const report = await syncThrough(keepTwo, request)
    expect(report).toMatchObject({
      outcome: 'partial',
      streams: [{ deleted: 0, held: [{ rows_present: 35, rows_vanishing: 21 }] }],
    })
    expect(await count(name)).toBe(before)
    expect((await syncThrough(keepTwo, { ...request, acceptDeletes: true })).outcome).toBe('complete')
    expect(await count(name)).toBe(14)
  })

  test('results truncated before paging are detected', async () => {
    await start({
      world: { projects: 1, prompts: 30, models: 2, brands: 3 },
      config: { start_date: week.from, streams: ['chats'], reports: [] },
    })
    const report = await syncThrough((text, { url }) => {
      const offset = Number(new URL(url!, 'http://localhost').searchParams.get('offset') ?? 0)
      const { data } = JSON.parse(text)
      return JSON.stringify({ data: data.slice(0, Math.max(0, 100 - offset)) })
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

  test.each([10_000, 5])('a list in pages of %i with fewer rows than its own total deletes nothing', async (limit) => {
    const world = { projects: 1, prompts: 12, models: 1, brands: 2 }
    await start({ world, config: { start_date: week.from, source: { page_limit: limit } } })
    await setup.sync()
    const report = await syncThrough((text, { url }) => {
      if (!/\/prompts\?/.test(url!)) return text
      const answer = JSON.parse(text)
      const offset = Number(new URL(url!, 'http://localhost').searchParams.get('offset') ?? 0)
      return JSON.stringify({ ...answer, data: answer.data.slice(0, Math.max(0, 7 - offset)) })
    })
    expect([report.outcome, failures(report).map(({ error }) => error)]).toEqual([
      'partial',
      ['prompts: 7 rows, 5 fewer than before, but the service counts 12'],
    ])
    expect(await count('prompts', 'removed_at is null')).toBe(12)
  })

  test('a report of domains with fewer rows than its own total deletes nothing', async () => {
    const reports = [{ name: 'domains_daily', of: 'domains', dimensions: ['date'] }]
    await start({ extras: 'all', config: { start_date: week.from, extras: 'auto', streams: [], reports } })
    await setup.sync()
    const before = await count('domains_daily')
    const report = await syncThrough((text, { url }, body) => {
      if (!url!.includes('domains')) return text
      const { data } = JSON.parse(text)
      const isKept = (_: unknown, index: number) => JSON.parse(body).offset === 0 && index % 10 < 7
      return JSON.stringify({ data: data.filter(isKept), totalCount: data.length })
    })
    expect([report.outcome, await count('domains_daily')]).toEqual(['partial', before])
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

  test('windows that are too long for the service get shorter until it serves them', async () => {
    await start({ faults: { ...NO_LIMIT, max_days: 3 } })
    const report = await setup.sync()
    expect(failures(report)).toEqual([])
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

  test('an empty answer for days that were never read is asked for once more', async () => {
    await startReport()
    let answers = 0
    const report = await syncThrough((text) => (answers++ === 0 ? '{"data":[]}' : text))
    expect(report.outcome).toBe('complete')
    expect(await count('by_prompt')).toBe(480)
  })

  test('an empty answer for a list that was never read is asked for once more', async () => {
    await start({ config: { streams: ['prompts'], reports: [] } })
    let answers = 0
    const report = await syncThrough((text) => (answers++ === 0 ? '{"data":[],"totalCount":0}' : text))
    expect(report.outcome).toBe('complete')
    expect(await count('prompts')).toBe(7)
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
      expect(await count('chats')).toBe(21 * 14)
      expect(await count('prompts', 'removed_at is null')).toBe(7)
      expect(await count('by_prompt')).toBe(21 * 14 * 3)
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
    expect(report.streams[0]!.held).toEqual([{ range: '2026-03-25..2026-03-30', rows_present: 84, rows_vanishing: 84 }])
    expect(await count('chats', "date = '2026-03-31'")).toBe(14)
    expect(await count('chats')).toBe(7 * 14)
  })
})

describe('history', () => {
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
      range: { from: '2026-03-15', to: '2026-03-15' },
      streams: setup.services.streams.named(['by_prompt']),
    })
    const marked = await setup.database.rows<{ stream: string }>(
      "select stream from visibility_ops.coverage where state = 'stale' and date = '2026-03-15' order by 1",
    )
    expect(marked.map(({ stream }) => stream)).toEqual(['brand_daily', 'by_model', 'by_topic', 'chats'])
    await setup.sync()
    const day = { from: '2026-03-15', to: '2026-03-15' }
    const ids = await setup.database.rows<{ chat_id: string }>(
      "select chat_id from visibility.chats where date = '2026-03-15'",
    )
    expect(new Set(ids.map(({ chat_id }) => chat_id))).toEqual(
      new Set(daysIn(day).flatMap((date) => world.chatsOf(project(), date).map(({ id }) => id))),
    )
  })

  test('chats that were read before a prompt was replaced are read again with the reports', async () => {
    await start({ config: { lookback_days: 1 } })
    const { streams } = setup.services
    await setup.sync({ streams: streams.named(['chats']) })
    const { world } = setup.service
    const [gone] = project().prompts
    // As many chats come as go, and no report was there to change.
    world.addPrompt(project(), { ...gone!, id: world.newId('pr', 'instead') })
    world.deletePrompt(project(), gone!.id)
    expect((await setup.sync()).outcome).toBe('complete')
    await exact()
  })
})
