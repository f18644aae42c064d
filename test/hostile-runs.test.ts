import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { describe, expect, test } from '@jest/globals'
import { runAudit } from '../src/audit/run-audit.ts'
import { StreamSet } from '../src/streams/registry.ts'
import { dismissQuarantine } from '../src/sync/quarantine.ts'
import { startProcess } from './support/cli.ts'
import { isReport, type Lie, lyingTo, redirecting } from './support/lies.ts'
import { listening, openClient, startRewriter } from './support/proxy.ts'
import { configOf, FOUR_GRAINS, NO_LIMIT, type Setup, type SetupOptions, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

/* What several runs make of a service that lies in some of them, and of what people do in between. */

let setup: Setup
const RANGE = { from: '2026-02-19', to: '2026-03-02' }
const start = async (options: SetupOptions = {}) => {
  setup = await setUp({
    world: { projects: 1, prompts: 6, models: 2, brands: 3 },
    ...options,
    config: { start_date: RANGE.from, end_date: RANGE.to, lookback_days: 3, ...options.config },
  })
}
const project = (index = 0) => setup.service.world.projects[index]!
const exact = (range = RANGE) =>
  expectExact(setup.database, { world: setup.service.world, range, reports: FOUR_GRAINS, projects: [project()] })
const isExact = (range = RANGE) =>
  exact(range).then(
    () => true,
    () => false,
  )
const later = (hours: number) => {
  const now = setup.services.clock().getTime() + hours * 3_600_000
  setup.services.clock = () => new Date(now)
}
/** Changes the configuration, as an edit of the file between two runs does. */
const configure = (config: Record<string, unknown>) => {
  setup.services.config = configOf({ ...setup.fileConfig, ...config }, setup.env)
  setup.services.streams = new StreamSet(setup.services.config)
}
const reportsNamed = (...names: string[]) => ({ reports: FOUR_GRAINS.filter(({ name }) => names.includes(name)) })
const rowsOf = async (table: string, where: string) =>
  (await setup.database.rows<{ n: number }>(`select count(*)::int as n from visibility.${table} where ${where}`))[0]!.n
const isReconciled = async (stream: string, day: string) =>
  (
    await setup.database.rows<{ r: boolean }>(
      'select is_reconciled as r from visibility.data_status where stream = $1 and date = $2',
      [stream, day],
    )
  )[0]!.r

describe('the ledger of streams that are not configured for a while', () => {
  test.each([
    ['a report', reportsNamed('brand_daily', 'by_model', 'by_topic')],
    ['the chats', { streams: ['prompts', 'domain_classifications'] }],
  ])('%s: removed, a prompt is deleted, added again', async (_, without) => {
    await start()
    await setup.sync()
    configure(without)
    setup.service.world.deletePrompt(project(), project().prompts[0]!.id)
    later(25)
    await setup.sync()
    configure({})
    for (let run = 0; run < 2; run++) {
      later(25)
      expect((await setup.sync()).outcome).toBe('complete')
    }
    await exact()
  })

  test('two configurations with different reports share a warehouse', async () => {
    await start()
    configure(reportsNamed('brand_daily', 'by_model'))
    await setup.sync()
    configure(reportsNamed('brand_daily', 'by_prompt', 'by_topic'))
    await setup.sync()
    setup.service.world.rewriteDays(project(), ['2026-02-22', '2026-02-23'])
    for (let round = 0; round < 3; round++) {
      later(25)
      configure(reportsNamed('brand_daily', 'by_model'))
      await setup.sync()
      configure(reportsNamed('brand_daily', 'by_prompt', 'by_topic'))
      await setup.sync()
    }
    await exact()
  })
})

describe('days that should be held', () => {
  test('an outage that begins in the middle of a run: nothing is deleted by the next one', async () => {
    await start({ config: { lookback_days: 7 } })
    await setup.sync()
    later(1)
    const finerEmpty: Lie = (rows, asked) => (isReport(asked) && asked.dimensions.length === 1 ? rows : [])
    expect((await lyingTo(setup, finerEmpty, () => setup.sync())).outcome).toBe('partial')
    expect(await isExact()).toBe(true)
    later(1)
    await lyingTo(
      setup,
      () => [],
      () => setup.sync(),
    )
    await exact()
  })

  test('a project that gets the rows of another one keeps its own, also in the second run', async () => {
    await start({ world: { projects: 2, prompts: 6, models: 2, brands: 3 } })
    const only = { projects: [setup.projects[0]!] }
    await setup.sync(only)
    const to = { [project(0).id]: project(1).id }
    for (let run = 0; run < 3; run++) {
      later(1)
      await redirecting(setup, to, () => setup.sync(only))
      const others = project(1)
        .brands.map(({ id }) => `'${id}'`)
        .join()
      expect([run, await rowsOf('brand_daily', `project_id = '${project().id}' and brand_id in (${others})`)]).toEqual([
        run,
        0,
      ])
    }
  })

  test.each([
    ['and is still configured', {}],
    ['and is not configured any more', reportsNamed('brand_daily', 'by_model', 'by_prompt')],
  ])('a day of which one report never added up %s is held like others when it comes empty', async (_, config) => {
    await start()
    const day = '2026-02-22'
    const broken: Lie = (rows, asked) =>
      isReport(asked) && asked.dimensions.includes('topic_id')
        ? rows.map((row) => (row.date === day ? { ...row, mention_count: Number(row.mention_count) + 1 } : row))
        : rows
    await lyingTo(setup, broken, () => setup.sync())
    configure(config)
    later(25)
    const { outcome } = await lyingTo(
      setup,
      (rows) => rows.filter(({ date }) => date !== day),
      () => setup.sync(),
    )
    expect([outcome, await rowsOf('chats', `date = '${day}'`), await rowsOf('brand_daily', `date = '${day}'`)]).toEqual(
      ['partial', 12, 3],
    )
  })

  test('a report that is added while a day is held is not settled with the totals that were refused', async () => {
    await start()
    configure(reportsNamed('brand_daily', 'by_prompt', 'by_topic'))
    await setup.sync()
    const day = '2026-03-01'
    const [kept] = project().prompts
    const few: Lie = (rows, { path, dimensions }) =>
      rows.flatMap((row: any) => {
        if (row.date !== day) return [row]
        if (path === 'chats' || dimensions.includes('prompt_id')) return row.prompt.id === kept!.id ? [row] : []
        return [{ ...row, mention_count: 1, visibility_count: 1, visibility: 0.5, visibility_total: 2 }]
      })
    await lyingTo(setup, few, () => setup.sync())
    configure({})
    await lyingTo(setup, few, () => setup.sync())
    expect(await isReconciled('by_model', day)).toBe(false)
  })
})

describe('rows that were dismissed', () => {
  const day = '2026-02-28'
  const isOf = (asked: { dimensions: string[] }) => asked.dimensions.includes('prompt_id')

  test('one dismissed row does not explain that other rows of its brand are missing', async () => {
    await start({ world: { projects: 1, prompts: 12, models: 2, brands: 3 }, now: '2026-03-02T12:00:00Z' })
    const brand = project().brands[0]!.id
    let bad: string | undefined
    const spoiled: Lie = (rows, asked) =>
      !isOf(asked)
        ? rows
        : rows.map((row: any) => {
            const key = `${row.prompt.id} ${row.model.id} ${row.country_code}`
            if (row.date !== day || row.brand.id !== brand) return row
            bad ??= key
            return key === bad ? { ...row, visibility: 'much' } : row
          })
    await lyingTo(setup, spoiled, () => setup.sync())
    await dismissQuarantine(setup.database.warehouse, {}, 'known')
    await lyingTo(setup, spoiled, () => setup.sync())
    const before = await rowsOf('by_prompt', `date = '${day}'`)
    let at = 0
    const cut: Lie = (rows, asked, answers) => {
      if (!isOf(asked)) return rows
      if (asked.offset > 0) return []
      return (spoiled(rows, asked, answers) as any[]).filter(
        (row) => row.date !== day || row.brand.id !== brand || row.visibility === 'much' || at++ % 4 === 0,
      )
    }
    later(1)
    const { outcome } = await lyingTo(setup, cut, () => setup.sync())
    expect([outcome, await rowsOf('by_prompt', `date = '${day}'`)]).toEqual(['partial', before])
  })

  test('of a service that always sends them, of which some cannot be read at all, leave runs complete and audits clean', async () => {
    await start({ world: { projects: 1, prompts: 40, models: 2, brands: 3 }, faults: { ...NO_LIMIT, malformed: 0.02 } })
    expect((await setup.sync()).outcome).toBe('partial')
    const texts = await setup.database.rows(
      'select from visibility_ops.quarantine where raw::text = \'"not an object"\'',
    )
    expect(texts).not.toEqual([])
    await dismissQuarantine(setup.database.warehouse, {}, 'known')
    for (let run = 0; run < 2; run++) {
      later(25)
      expect((await setup.sync()).outcome).toBe('complete')
    }
    expect((await setup.sync({ command: 'backfill', range: RANGE })).outcome).toBe('complete')
    const audit = { projects: setup.projects, repair: false, signal: new AbortController().signal }
    expect((await runAudit(setup.services, audit)).remaining).toBe(0)
  })

  test('of a list do not count as bad rows of it', async () => {
    await start({ config: { streams: ['prompts'], reports: [], max_bad_share: 0.9 } })
    const { url } = await startRewriter(setup.service.url, (text, message) => {
      if (!/\/prompts\?/.test(message.url!)) return text
      const { data, ...members } = JSON.parse(text)
      return JSON.stringify({
        ...members,
        data: data.map((prompt: object, at: number) => (at < 4 ? { ...prompt, id: 7 } : prompt)),
      })
    })
    const through = () => setup.through(url, () => setup.sync(), { maxAttempts: 2 })
    expect((await through()).outcome).toBe('partial')
    configure({ max_bad_share: 0.05 })
    expect((await through()).outcome).toBe('failed')
    await dismissQuarantine(setup.database.warehouse, {}, 'known')
    expect((await through()).outcome).toBe('complete')
  })

  test('an audit after a dismissal finds nothing', async () => {
    await start()
    let bad: string | undefined
    const spoiled: Lie = (rows, asked) =>
      !isOf(asked)
        ? rows
        : rows.map((row: any) => {
            const key = `${row.brand.id} ${row.prompt.id} ${row.model.id}`
            if (row.date !== '2026-02-25' || row.mention_count === 0) return row
            bad ??= key
            return key === bad ? { ...row, visibility: 'much' } : row
          })
    await lyingTo(setup, spoiled, () => setup.sync())
    await dismissQuarantine(setup.database.warehouse, {}, 'known')
    expect((await lyingTo(setup, spoiled, () => setup.sync())).outcome).toBe('complete')
    const audit = { projects: setup.projects, repair: true, signal: new AbortController().signal }
    expect((await lyingTo(setup, spoiled, () => runAudit(setup.services, audit))).remaining).toBe(0)
  })
})

describe('days of prompts that are not on the list', () => {
  test('are settled once a person says so, or once the list is not configured', async () => {
    await start()
    const archived = new Set(
      project()
        .prompts.slice(0, 4)
        .map(({ id }) => id),
    )
    const { url } = await startRewriter(setup.service.url, (text, message) => {
      if (!/\/prompts\?/.test(message.url!)) return text
      const data = JSON.parse(text).data.filter((prompt: { id: string }) => !archived.has(prompt.id))
      return JSON.stringify({ data, totalCount: data.length })
    })
    const through = (request = {}) => setup.through(url, () => setup.sync(request), { maxAttempts: 2 })
    await through()
    const outcomes = [
      (await through({ command: 'backfill', range: RANGE })).outcome,
      (await through({ command: 'backfill', range: RANGE, acceptDeletes: true })).outcome,
    ]
    configure({ reconcile: { ignore: ['chats', 'by_prompt'] } })
    outcomes.push((await through()).outcome)
    configure({ streams: ['chats'] })
    outcomes.push((await through()).outcome)
    expect(outcomes).toContain('complete')
  })
})

test('the report by date is not called reconciled if all finer reports contradict it', async () => {
  await start()
  await setup.sync()
  const day = '2026-03-01'
  const gone = project().brands[0]!.id
  const lie: Lie = (rows, asked) =>
    !isReport(asked) || asked.dimensions.length > 1
      ? rows
      : asked.offset > 0
        ? []
        : rows.filter((row: any) => row.date !== day || row.brand.id !== gone)
  await lyingTo(setup, lie, () => setup.sync())
  expect([await rowsOf('brand_daily', `date = '${day}'`), await isReconciled('brand_daily', day)]).toEqual([2, false])
})

test('one Retry-After in seconds since 1970 does not stop a process that stays for ever', async () => {
  await start()
  let requests = 0
  const target = new URL(setup.service.url)
  const answer = async (message: IncomingMessage, reply: ServerResponse) => {
    const chunks: Buffer[] = []
    for await (const chunk of message) chunks.push(chunk as Buffer)
    const soon = String(Math.floor(Date.now() / 1000) + 2)
    const type = { 'content-type': 'application/json' }
    if (++requests === 5) return reply.writeHead(429, { ...type, 'retry-after': soon }).end('{"message":"slow down"}')
    const headers = { 'x-api-key': message.headers['x-api-key'] as string, ...type }
    const body = chunks.length > 0 ? { body: Buffer.concat(chunks) } : {}
    const found = await fetch(new URL(message.url!, target.origin), { method: message.method!, headers, ...body })
    return reply.writeHead(found.status, type).end(await found.text())
  }
  const server = createServer((message, reply) => void answer(message, reply))
  const { origin } = await listening(server)
  setup.services.client = openClient(origin + target.pathname, { maxAttempts: 3, patienceMs: 2000 })
  await setup.sync()
  await new Promise((done) => setTimeout(done, 2500))
  expect((await setup.sync()).outcome).toBe('complete')
})

test.each([
  ['alone', 0],
  ['with a worker', 1],
])('two first runs at once over the same days, with a queue, %s, are both complete', async (_, workers) => {
  const range = { from: '2026-02-20', to: '2026-03-31' }
  const source = { max_window_days: 7, page_limit: 200, concurrency: 3 }
  setup = await setUp({
    world: { projects: 2, prompts: 6, models: 2, brands: 3 },
    faults: { ...NO_LIMIT, latency_ms: 25 },
    config: { start_date: range.from, lookback_days: 5, source, queue: { mode: 'pg-boss' } },
  })
  const options = { env: setup.env, config: setup.fileConfig }
  const running = Array.from({ length: workers }, () => startProcess(['worker'], options))
  const runs = [0, 1].map(() => startProcess(['sync', '--json'], options))
  const results = await Promise.all(runs.map(({ done }) => done))
  for (const { child } of running) child.kill('SIGTERM')
  await Promise.all(running.map(({ done }) => done))
  expect(results.map((result) => result.json().outcome)).toEqual(['complete', 'complete'])
  await expectExact(setup.database, { world: setup.service.world, range, reports: FOUR_GRAINS })
})

test('a row of which a dimension is null is loaded, since the service may leave any of them out', async () => {
  await start()
  let at = 0
  const lie: Lie = (rows, asked) =>
    asked.dimensions.includes('prompt_id') ? rows.map((row) => (at++ === 0 ? { ...row, prompt: null } : row)) : rows
  const { outcome, streams } = await lyingTo(setup, lie, () => setup.sync())
  expect([outcome, streams.reduce((sum, { quarantined }) => sum + quarantined, 0)]).toEqual(['complete', 0])
  expect(await rowsOf('by_prompt', 'prompt_id is null')).toBe(1)
})
