import { createServer } from 'node:http'
import { text } from 'node:stream/consumers'
import { gzipSync } from 'node:zlib'
import { describe, expect, test } from '@jest/globals'
import { addDays } from '../src/core/day.ts'
import { TransientError } from '../src/core/errors.ts'
import { markStale } from '../src/ledger/coverage.ts'
import { identifyRejects, listQuarantine, resolveEntries, saveRejects } from '../src/ledger/quarantine.ts'
import { saveRestatements } from '../src/ledger/restatement-report.ts'
import { saveDrift } from '../src/ledger/service-notes.ts'
import { saveDeadWindows } from '../src/queue/dead-windows.ts'
import { COMPANY_KEY } from '../src/reference/world.ts'
import { noEntities } from '../src/streams/stream.ts'
import { retryQuarantine } from '../src/sync/quarantine.ts'
import { saveEntities } from '../src/warehouse/load/entities.ts'
import { isTransient } from '../src/warehouse/retry.ts'
import { inTransaction, type Transaction } from '../src/warehouse/transaction.ts'
import { startProcess } from './support/cli.ts'
import { longTest } from './support/long.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { listening, openClient } from './support/proxy.ts'
import { FOUR_GRAINS, type Setup, setUp } from './support/setup.ts'

describe('odd rows', () => {
  /* Data that is allowed and that nobody would think of: very many of something, very long, or called like a part of JavaScript. */

  // One statement takes no more values.
  const MOST_VALUES = 65_535
  const DAY = '2026-03-31'

  let setup: Setup

  /** A service with these rows and lists, which obeys limit and offset. */
  async function startWith(
    { rows = [], prompts = [] }: { rows?: object[]; prompts?: object[] },
    config: Record<string, unknown> = {},
  ): Promise<void> {
    setup = await setUp({
      world: { projects: 1, prompts: 1, models: 1, brands: 1 },
      config: {
        start_date: DAY,
        end_date: DAY,
        streams: prompts.length > 0 ? ['prompts'] : [],
        reports: rows.length > 0 ? FOUR_GRAINS.slice(0, 1) : [],
        ...config,
      },
    })
    const server = createServer((request, response) => {
      void text(request).then((body) => {
        const url = new URL(request.url!, 'http://localhost')
        const asked = body === '' ? Object.fromEntries(url.searchParams) : (JSON.parse(body) as Record<string, string>)
        const [limit, offset] = [Number(asked.limit), Number(asked.offset ?? 0)]
        const data = (url.pathname.endsWith('brands') ? rows : prompts).slice(offset, offset + limit)
        response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ data }))
      })
    })
    const { origin } = await listening(server)
    setup.services.client = openClient(`${origin}/v1`, { compress: true, maxAttempts: 2 })
  }

  const row = (id: string, name: string | null = `The brand ${id}`, more: object = {}) => ({
    brand: { id, name },
    mention_count: 1,
    visibility: 0.5,
    visibility_count: 1,
    visibility_total: 2,
    date: DAY,
    ...more,
  })
  const rowsOf = <T>(sql: string, values?: unknown[]) => setup.database.rows<T>(sql, values)
  const countOf = async (table: string) =>
    (await rowsOf<{ n: number }>(`select count(*)::int as n from ${table}`))[0]!.n
  const failures = (report: Awaited<ReturnType<Setup['sync']>>) => report.streams.flatMap(({ failed }) => failed)

  test('the key inside valid rows is stored nowhere, and noted as drift', async () => {
    const key = COMPANY_KEY
    const prompt = { id: 'pr_1', messages: [{ content: `what is ${key}?` }], user_location: { country: 'DE' } }
    await startWith({ rows: [row('kw_1', `Brand ${key}`), row('kw_2')], prompts: [prompt] })
    const report = await setup.sync()
    expect([report.outcome, failures(report)]).toEqual(['complete', []])
    const tables = await rowsOf<{ name: string }>(
      `select format('%I.%I', schemaname, tablename) as name from pg_tables where schemaname like 'visibility%'`,
    )
    for (const { name } of tables)
      expect(await rowsOf(`select * from ${name} t where t::text like $1`, [`%${key}%`])).toEqual([])
    expect(await rowsOf("select name from visibility.brands where brand_id = 'kw_1'")).toEqual([
      { name: 'Brand [redacted key]' },
    ])
    expect(await rowsOf("select stream, name from visibility_ops.drift where kind = 'secret' order by 1")).toEqual([
      { stream: 'brand_daily', name: 'brand' },
      { stream: 'prompts', name: 'messages' },
    ])
  })

  describe('very many', () => {
    longTest('18,000 brands that are new on one day are loaded', async () => {
      await startWith({ rows: Array.from({ length: 18_000 }, (_, index) => row(`kw_${index}`)) })
      const report = await setup.sync()
      expect([report.outcome, failures(report)]).toEqual(['complete', []])
      expect([await countOf('visibility.brand_daily'), await countOf('visibility.brands')]).toEqual([18_000, 18_000])
      expect(await rowsOf("select name from visibility.brands where brand_id = 'kw_17999'")).toEqual([
        { name: 'The brand kw_17999' },
      ])
    })

    const idsOf = (count: number) => Array.from({ length: count }, (_, index) => `id_${index}`)
    const pair = { projectId: 'or_1', stream: 'chats' }
    const run = <T>(work: (tx: Transaction) => Promise<T>) => inTransaction(setup.database.warehouse, work)

    longTest('more brands, topics, tags and models than a statement takes values are listed', async () => {
      await startWith({ rows: [row('kw_1')] })
      await setup.sync()
      const ids = idsOf(33_000)
      const entities = noEntities()
      for (const id of ids) {
        entities.brands.set(id, { name: `${id}, "quoted" {and} \\ more`, date: DAY })
        entities.topics.add(id)
        entities.tags.add(id)
        entities.models.add(id)
      }
      await run((tx) =>
        saveEntities(tx, {
          projectId: 'or_1',
          entities,
          labels: setup.config.labels,
          memory: new Map(),
          mayRename: true,
        }),
      )
      for (const table of ['brands', 'topics', 'tags', 'models']) {
        const [found] = await rowsOf<{ n: number }>(
          `select count(*)::int as n from visibility.${table} where project_id = 'or_1'`,
        )
        expect([table, found!.n]).toEqual([table, ids.length])
      }
      expect(await rowsOf("select name from visibility.brands where brand_id = 'id_7'")).toEqual([
        { name: 'id_7, "quoted" {and} \\ more' },
      ])
    })

    test('more rejects than a statement takes values are kept, found and settled', async () => {
      await startWith({ rows: [row('kw_1')] })
      await setup.sync()
      const { warehouse } = setup.database
      const reject = (raw: string, index: number) => ({ raw: JSON.stringify(raw), reason: 'odd', index })
      const save = (raws: string[]) =>
        run(async (tx) => saveRejects(tx, pair, await identifyRejects(tx, pair, raws.map(reject)), { runId: 1 }))
      await save(['gone'])
      await save(idsOf(MOST_VALUES + 10))
      expect(await countOf('visibility_ops.quarantine where resolved_at is null')).toBe(MOST_VALUES + 10)
      const numbers = Array.from({ length: MOST_VALUES + 20 }, (_, index) => index + 1)
      const some = await listQuarantine(warehouse, { ids: numbers, streams: ['chats'], projects: ['or_1'], limit: 3 })
      expect(some.map(({ raw }) => raw)).toEqual([expect.any(String), expect.any(String), expect.any(String)])
      await run((tx) => resolveEntries(tx, numbers, 'tried'))
      expect(await listQuarantine(warehouse, { streams: ['chats'] })).toEqual([])
    })

    longTest('more days and notes than a statement takes values are kept', async () => {
      await startWith({ rows: [row('kw_1')] })
      await setup.sync()
      const days = Array.from({ length: 9_500 }, (_, index) => addDays('1990-01-01', index))
      const changes = new Map(days.map((day, index) => [day, { inserted: index, updated: 1, deleted: 2 }]))
      await run((tx) => saveRestatements(tx, pair, changes, { readBefore: changes, runId: 1 }))
      expect(
        await rowsOf(
          "select rows_inserted, rows_updated, rows_deleted from visibility_ops.restatements where stream = 'chats' and date = '1990-01-08'",
        ),
      ).toEqual([{ rows_inserted: 7, rows_updated: 1, rows_deleted: 2 }])
      const many = Array.from({ length: MOST_VALUES }, (_, index) => addDays(DAY, -index))
      await markStale(setup.database.warehouse, setup.projects[0]!.id, { streams: ['brand_daily'], days: many })
      expect(await rowsOf("select state from visibility_ops.coverage where stream = 'brand_daily'")).toEqual([
        { state: 'stale' },
      ])
      const notes = idsOf(11_000).map((name) => ({ kind: 'field' as const, name, example: '{"a": "\0"}' }))
      await run((tx) => saveDrift(tx, pair, notes, 1))
      expect(await countOf("visibility_ops.drift where stream = 'chats'")).toBe(11_000)
      const givenUp = idsOf(11_000).map((reason, index) => ({
        runId: 1,
        project: 'or_1',
        stream: 'chats',
        range: index === 0 ? undefined : { from: DAY, to: DAY },
        reason,
      }))
      await saveDeadWindows(setup.database.warehouse, givenUp)
      expect(await countOf('visibility_ops.dead_windows')).toBe(11_000)
      expect(await rowsOf('select reason from visibility_ops.dead_windows where from_date is null')).toEqual([
        { reason: 'id_0' },
      ])
    })

    test('a message that Postgres does not understand is no lost connection, and is not tried again', async () => {
      await startWith({ rows: [row('kw_1')] })
      const values = Array.from({ length: MOST_VALUES + 10 }, (_, index) => index)
      const places = values.map((value) => `$${value + 1}::int`).join(',')
      const failure: unknown = await run(({ client }) => client.query(`select 1 where 1 in (${places})`, values)).catch(
        (error: unknown) => error,
      )
      expect(failure).not.toBeInstanceOf(TransientError)
      expect(isTransient(failure)).toBe(false)
      expect(await rowsOf('select 1 as one')).toEqual([{ one: 1 }])
      // A pooler whose server is gone.
      expect(isTransient(Object.assign(new Error('server conn crashed?'), { code: '08P01', severity: 'FATAL' }))).toBe(
        true,
      )
    })
  })

  describe('very long', () => {
    test('a row with a name or an id that is too long waits in quarantine, and its page is loaded', async () => {
      const sound = Array.from({ length: 100 }, (_, index) => row(`kw_${index}`, `${'n'.repeat(999)}${index % 10}`))
      const [names, id] = ['x'.repeat(1001), 'y'.repeat(256)]
      await startWith({ rows: [...sound, row('kw_long', names), row(id), row('kw_huge', 'z'.repeat(1_000_000))] })
      const report = await setup.sync()
      expect(report.outcome).toBe('partial')
      expect(report.streams[0]).toMatchObject({ quarantined: 3, inserted: 100 })
      const waiting = await rowsOf<{ reason: string; size: number }>(
        'select reason, length(raw::text) as size from visibility_ops.quarantine order by 1',
      )
      expect(waiting.map(({ reason }) => reason)).toEqual([
        'brand.name: has 1001 characters; allowed: 1 to 1000',
        'brand_id: has 256 characters; allowed: 1 to 255',
        expect.stringMatching(/^row: has 1000\d{3} bytes; allowed: up to 262144$/),
      ])
      expect(Math.max(...waiting.map(({ size }) => size))).toBeLessThan(3000)
      expect(await rowsOf('select 1 from visibility.brands where length(name) > 1000')).toEqual([])
    })

    test('a prompt may be far longer than one that can be created, but not endless, nor have endless tags', async () => {
      const prompt = (id: string, length: number, tags = 0) => ({
        id,
        messages: [{ content: 'p'.repeat(length) }],
        tags: Array.from({ length: tags }, (_, index) => ({ id: `tg_${index}` })),
      })
      const sound = Array.from({ length: 60 }, (_, index) => prompt(`pr_${index}`, 10_000, 100))
      await startWith({ prompts: [...sound, prompt('pr_long', 10_001), prompt('pr_tags', 1, 101)] })
      expect((await setup.sync()).streams[0]).toMatchObject({ quarantined: 2, inserted: 60 })
      expect(await rowsOf('select reason from visibility_ops.quarantine order by 1')).toEqual([
        { reason: 'tags: there are 101; allowed: up to 100' },
        { reason: 'text: has 10001 characters; allowed: 1 to 10000' },
      ])
      expect(await countOf('visibility.prompt_tags')).toBe(6000)
    })

    test('an answer with endlessly many new fields is noted, not kept', async () => {
      const many = Object.fromEntries(Array.from({ length: 3000 }, (_, index) => [`field_${index}`, index]))
      await startWith({ rows: [row('kw_1', 'One', many), row('kw_2', 'Two', { ['f'.repeat(5000)]: 1 })] })
      expect((await setup.sync()).outcome).toBe('complete')
      expect(await countOf('visibility_ops.drift')).toBe(200)
    })

    test('of two contradicting prompts neither is loaded, nor its tags, and a retry loads neither', async () => {
      const prompt = (id: string, text: string, tag: string) => ({
        id,
        messages: [{ content: text }],
        tags: [{ id: tag }],
      })
      const sound = Array.from({ length: 60 }, (_, index) => prompt(`pr_${index}`, 'Hi', 'tg_sound'))
      await startWith({ prompts: [prompt('pr_x', 'one', 'tg_x'), ...sound, prompt('pr_x', 'two', 'tg_x')] })
      expect((await setup.sync()).streams[0]).toMatchObject({ quarantined: 2, inserted: 60 })
      expect(await rowsOf("select 1 from visibility.prompt_tags where prompt_id = 'pr_x'")).toEqual([])
      expect(await countOf('visibility.prompt_tags')).toBe(60)
      const retried = await retryQuarantine(setup.services, setup.services.streams.named(), {})
      expect(retried).toMatchObject({ tried: 2, loaded: 0 })
      await rowsOf("update visibility_ops.quarantine set reason = 'odd'")
      // Under another reason they are judged anew, and contradict each other still.
      expect(await retryQuarantine(setup.services, setup.services.streams.named(), {})).toMatchObject({
        tried: 2,
        loaded: 0,
      })
      expect(await countOf('visibility.prompts')).toBe(60)
    })
  })

  describe('called like a part of JavaScript', () => {
    const ODD = ['constructor', '__proto__', 'toString', 'hasOwnProperty', 'valueOf', 'prototype', 'length']

    test('brands, topics and tags keep their own names, with labels and without', async () => {
      const labels = {
        brands: { hasOwnProperty: { name: 'Labelled', own: true } },
        topics: { valueOf: 'A topic' },
        tags: { toString: 'A tag' },
      }
      const rows = ODD.map((id) => row(id, `The brand ${id}`, { topic: { id }, tag: { id } }))
      const reports = [{ name: 'odd', dimensions: ['date', 'topic_id', 'tag_id'] }]
      await startWith({ rows }, { labels, reports })
      const report = await setup.sync()
      expect([report.outcome, failures(report)]).toEqual(['complete', []])
      const brands = await rowsOf<{ brand_id: string; name: string; is_own: boolean }>(
        'select brand_id, name, is_own from visibility.brands',
      )
      expect(new Map(brands.map(({ brand_id, name, is_own }) => [brand_id, [name, is_own]]))).toEqual(
        new Map(ODD.map((id) => [id, id === 'hasOwnProperty' ? ['Labelled', true] : [`The brand ${id}`, false]])),
      )
      for (const [table, id, name] of [
        ['topics', 'valueOf', 'A topic'],
        ['tags', 'toString', 'A tag'],
      ]) {
        const key = `${table!.slice(0, -1)}_id`
        const found = await rowsOf<Record<string, string | null>>(`select ${key}, name from visibility.${table}`)
        expect(new Map(found.map((each) => [each[key], each.name]))).toEqual(
          new Map(ODD.map((each) => [each, each === id ? name : null])),
        )
      }
    })
  })
})

describe('very large answers', () => {
  /* The real command, on answers made to take as much memory as 63 MB can. `bench/answer-memory.mjs` knows more of them. */

  const BYTES = 63 * 1_048_576
  // The bar is 350 MB; the rest is for other versions of Node and other machines. Without bounds it was 1,600 and more.
  const MOST_MB = 450
  const TELLS_ITS_PEAK = `data:text/javascript,process.on('exit',()=>process._rawDebug('peak',process.resourceUsage().maxRSS/1024))`

  let database: TestDatabase

  /** What the command says of an answer, and its peak in MB. */
  async function peakFor(stream: string, body: Buffer): Promise<{ said: string; code: number | null; peak: number }> {
    database = await createDatabase()
    const packed = gzipSync(body, { level: 1 })
    const server = createServer((request, response) => {
      request.resume()
      request.on('end', () =>
        response.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' }).end(packed),
      )
    })
    // While an answer is parsed its connection is idle.
    server.keepAliveTimeout = 60_000
    const { origin } = await listening(server)
    const cli = startProcess(['sync', '--stream', stream, '--json'], {
      env: {
        NODE_OPTIONS: `--import="${TELLS_ITS_PEAK}"`,
        VISIBILITY_API_URL: `${origin}/v1`,
        VISIBILITY_API_KEY: 'key',
        VISIBILITY_PROJECTS: 'or_1',
        DATABASE_URL: database.url,
      },
      config: {
        source: { max_attempts: 1, patience_seconds: 1 },
        start_date: '2026-03-31',
        end_date: '2026-03-31',
        reports: [{ name: 'brand_daily', dimensions: ['date'] }],
      },
    })
    const { code, stdout, stderr } = await cli.done
    return { said: stdout + stderr, code, peak: Number(/peak ([\d.]+)/.exec(stderr)?.[1]) }
  }

  const filled = (start: string, piece: string, end: string) =>
    Buffer.concat([
      Buffer.from(start),
      Buffer.alloc(Math.floor((BYTES - 100) / piece.length) * piece.length, piece),
      Buffer.from(end),
    ])

  test('63 MB of empty rows are refused early, with what was asked for and what came', async () => {
    const { said, code, peak } = await peakFor('brand_daily', filled('{"data":[{}', ',{}', ']}'))
    expect(code).toBe(1)
    expect(said).toContain('asked for at most 10,000 items and got more than 20,000 items')
    expect(peak).toBeGreaterThan(50)
    expect(peak).toBeLessThan(MOST_MB)
  })

  longTest('63 MB of lists in lists are refused, and take no more memory than they have bytes', async () => {
    const half = Math.floor(BYTES / 2) - 100
    const body = Buffer.concat([
      Buffer.from('{"data":['),
      Buffer.alloc(half, '['),
      Buffer.alloc(half, ']'),
      Buffer.from(']}'),
    ])
    const { said, code, peak } = await peakFor('prompts', body)
    expect(code).toBe(1)
    // It is asked for once more, because nothing says how many rows there are.
    expect(said).toMatch(/the page has \d+ bytes, more than the 16777216 that can be kept at once/)
    expect(peak).toBeLessThan(MOST_MB)
  })

  longTest('a full page of rows that are 63 MB of empty objects is refused, not kept', async () => {
    const row = `{"x":[${'{},'.repeat(2050)}{}]}`
    const body = Buffer.from(`{"data":[${Array.from({ length: 10_000 }, () => row).join(',')}]}`)
    const { said, code, peak } = await peakFor('prompts', body)
    expect(code).toBe(1)
    expect(said).toMatch(/the page has \d+ bytes, more than the 16777216 that can be kept at once/)
    expect(peak).toBeLessThan(MOST_MB)
  })
})
