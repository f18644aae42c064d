import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { chatContent } from '../src/reference/sources.ts'
import { createClient } from '../src/source/client.ts'
import { StreamSet } from '../src/streams/registry.ts'
import { retryQuarantine } from '../src/sync/quarantine.ts'
import { runSync } from '../src/sync/run/run-sync.ts'
import { runCli } from './support/cli.ts'
import { startRewriter } from './support/proxy.ts'
import { configOf, NO_LIMIT, type Setup, setUp } from './support/setup.ts'

/* The contents of chats: one request each, within a daily budget. */

const OFFERED = ['GET /chats/{id}/content'] as const
let setup: Setup
beforeAll(async () => {
  setup = await setUp({
    world: { projects: 1, prompts: 10, models: 2, brands: 3 },
    extras: OFFERED,
    config: { start_date: '2026-03-28', end_date: '2026-03-31', streams: ['chats'], reports: [] },
  })
})
afterAll(() => setup.close())

const project = () => setup.service.world.projects[0]!
const rows = (sql: string) => setup.database.rows<Record<string, unknown>>(sql)
const asked = () => setup.service.requests.filter(({ path }) => path.endsWith('/content')).length
const contents = async () => Number((await rows('select count(*) as n from visibility.chat_contents'))[0]!.n)
const clean = () =>
  rows(
    'truncate visibility.chat_contents, visibility_ops.unread_chats, visibility_ops.daily_requests, visibility_ops.not_offered',
  )

/** A run as of a day, with its own settings. */
async function run(chat_contents: Record<string, unknown>, now = '2026-03-31T12:00:00Z', services = setup.services) {
  const config = configOf({ ...setup.fileConfig, chat_contents }, setup.env)
  setup.service.requests.length = 0
  const all = { ...services, config, streams: new StreamSet(config), clock: () => new Date(now) }
  const report = await runSync(all, { command: 'sync', projects: setup.projects, streams: all.streams.named() })
  return { report, contents: report.streams.find(({ stream }) => stream === 'chat_contents') }
}

test('a share of the chats is read, newest first, within the budget of the day, and the next day goes on', async () => {
  const first = await run({ share: 1, requests_per_day: 30 })
  expect([first.report.outcome, first.contents?.inserted, asked()]).toEqual(['complete', 30, 30])
  const days = await rows(
    'select c.date, count(*)::int as n from visibility.chats c join visibility.chat_contents t using (project_id, chat_id) group by 1 order by 1 desc',
  )
  expect(days).toEqual([
    { date: '2026-03-31', n: 20 },
    { date: '2026-03-30', n: 10 },
  ])
  // The same day has nothing left, whichever run asks.
  const second = await run({ share: 1, requests_per_day: 30 }, '2026-03-31T23:00:00Z')
  expect([second.report.outcome, second.contents?.rows_read, asked()]).toEqual(['complete', 0, 0])
  const third = await run({ share: 1, requests_per_day: 30 }, '2026-04-01T01:00:00Z')
  expect([third.contents?.inserted, asked(), await contents()]).toEqual([30, 30, 60])
  await run({ share: 1, requests_per_day: 30 }, '2026-04-02T01:00:00Z')
  expect([asked(), await contents()]).toEqual([20, 80])
  const [stored] = await rows(
    'select t.*, c.date from visibility.chat_contents t join visibility.chats c using (project_id, chat_id) order by chat_id limit 1',
  )
  const chat = setup.service.world.chat(project(), stored!.chat_id as string)!
  const { messages, sources, brands_mentioned, queries } = chatContent(project(), chat)
  expect(stored).toMatchObject({ messages, sources, brands_mentioned, queries, removed_at: null })
  expect(await rows("select * from visibility_ops.drift where stream = 'chat_contents'")).toEqual([])
})

test('a share is the same chats in every run, and a list of prompts is those of the prompts', async () => {
  await clean()
  await run({ share: 0.3, requests_per_day: 1000 })
  const some = await contents()
  expect(some).toBeGreaterThan(10)
  expect(some).toBeLessThan(40)
  await run({ share: 0.3, requests_per_day: 1000 })
  expect([asked(), await contents()]).toEqual([0, some])
  await clean()
  const { id } = project().prompts[0]!
  await run({ prompts: [id], requests_per_day: 1000 })
  expect(
    await rows(
      'select distinct c.prompt_id from visibility.chats c join visibility.chat_contents t using (project_id, chat_id)',
    ),
  ).toEqual([{ prompt_id: id }])
  expect(await contents()).toBe(8)
})

test('plan says what it costs', async () => {
  await clean()
  const config = { ...setup.fileConfig, chat_contents: { share: 1, requests_per_day: 30 } }
  await run({ share: 1, requests_per_day: 12 }, `${new Date().toISOString().slice(0, 10)}T00:00:00Z`)
  const { stdout, code } = await runCli(['plan', '--json', '--stream', 'chat_contents'], { env: setup.env, config })
  expect([code, JSON.parse(stdout).requests, JSON.parse(stdout).streams[0].windows]).toEqual([
    0,
    18,
    ['68 chats, 18 of 30 requests left today'],
  ])
})

test('a chat that is gone is recorded and not asked for again', async () => {
  await clean()
  const [gone] = await rows("select chat_id from visibility.chats where date = '2026-03-31' order by chat_id limit 1")
  setup.service.world.dropChat(gone!.chat_id as string)
  // The list is not read again, so that the chat is still due.
  const read = async () => {
    const config = configOf({ ...setup.fileConfig, chat_contents: { share: 1, requests_per_day: 1000 } }, setup.env)
    setup.service.requests.length = 0
    const streams = new StreamSet(config)
    return runSync(
      { ...setup.services, config, streams },
      { command: 'sync', projects: setup.projects, streams: streams.named(['chat_contents']) },
    )
  }
  expect((await read()).outcome).toBe('complete')
  expect([asked(), await contents()]).toEqual([80, 79])
  expect(await rows('select chat_id, status from visibility_ops.unread_chats')).toEqual([{ ...gone, status: 404 }])
  await read()
  expect(asked()).toBe(0)
})

test('chats that fail are asked for again, in this run and the next, and every request counts', async () => {
  await clean()
  setup.service.setFaults({ ...NO_LIMIT, server_error: 0.3, only_path: '/content' })
  let sent = 0
  for (let times = 0; times < 4 && (await contents()) < 79; times++) {
    await run({ share: 1, requests_per_day: 400 })
    sent += asked()
  }
  setup.service.setFaults(NO_LIMIT)
  expect(await contents()).toBe(79)
  expect(sent).toBeGreaterThan(79)
  const [used] = await rows('select requests from visibility_ops.daily_requests')
  expect(used!.requests).toBeGreaterThanOrEqual(sent)
})

test('a service that does not offer contents, or no longer does, makes no chat gone', async () => {
  await clean()
  setup.service.setExtras([])
  const never = await run({ share: 1, requests_per_day: 1000 })
  expect([never.report.outcome, never.contents?.not_offered, asked()]).toEqual(['complete', 404, 20])
  expect((await run({ share: 1, requests_per_day: 1000 })).contents).toBeUndefined()
  await clean()
  setup.service.setExtras(OFFERED)
  await run({ share: 1, requests_per_day: 40 })
  setup.service.setExtras([])
  const stopped = await run({ share: 1, requests_per_day: 1000 })
  expect([stopped.report.outcome, stopped.contents?.not_offered]).toEqual(['complete', 404])
  expect(await rows('select count(*)::int as n from visibility_ops.unread_chats')).toEqual([{ n: 0 }])
  expect(await contents()).toBe(40)
  setup.service.setExtras(OFFERED)
})

test('a content that is not what it should be goes to quarantine and is not asked for again', async () => {
  await clean()
  const odd = await startRewriter(setup.service.url, (text, { url }) =>
    url!.includes('/content') ? text.replace('"role":"user"', '"role":"us\\u0000er"') : text,
  )
  try {
    const client = createClient({ baseUrl: odd.url, requestsPerMinute: 100_000 })
    const { report, contents: part } = await run({ share: 1, requests_per_day: 5 }, undefined, {
      ...setup.services,
      client,
    })
    client.close()
    expect([report.outcome, part?.quarantined, await contents()]).toEqual(['partial', 5, 0])
    await run({ share: 1, requests_per_day: 5 })
    expect(asked()).toBe(0)
    expect(await rows('select count(*)::int as n, min(status) as status from visibility_ops.unread_chats')).toEqual([
      { n: 5, status: 200 },
    ])
    const config = configOf({ ...setup.fileConfig, chat_contents: { share: 1 } }, setup.env)
    const retried = await retryQuarantine({ ...setup.services, config }, new StreamSet(config).named(), {})
    expect([retried.tried, retried.still_bad.length]).toEqual([5, 5])
  } finally {
    await odd.close()
  }
})

test('a definition needs a share or prompts, and the stream of chats', () => {
  const load =
    (chat_contents: unknown, more = {}) =>
    () =>
      configOf({ chat_contents, ...more })
  expect(load({})).toThrow('share, prompts, or both')
  expect(load({ share: 0 })).toThrow('a share of the chats above 0')
  expect(load({ share: 1, requests_per_day: 0 })).toThrow('a whole number from 1')
  expect(load({ share: 1 }, { streams: ['prompts'] })).toThrow('needs the stream chats')
})
