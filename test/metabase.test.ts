import { readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import * as z from 'zod'
import { readQuestions } from '../src/cli/metabase/questions.ts'
import { runCli } from './support/cli.ts'

/*
 * A server that knows the contract of each call that provisioning makes, as Metabase's API documentation gives it, and
 * refuses anything else.
 */

const CONTRACT: Record<string, z.ZodType> = {
  'POST /api/session': z.strictObject({ username: z.string(), password: z.string() }),
  'POST /api/database': z.strictObject({
    name: z.string(),
    engine: z.literal('postgres'),
    details: z.object({
      host: z.string(),
      port: z.number(),
      dbname: z.string(),
      user: z.string(),
      password: z.string(),
      ssl: z.boolean(),
    }),
  }),
  'POST /api/collection': z.strictObject({ name: z.string(), description: z.string() }),
  'POST /api/card': z.strictObject({
    name: z.string(),
    display: z.enum(['table', 'line', 'bar', 'area']),
    collection_id: z.number(),
    dataset_query: z.strictObject({
      type: z.literal('native'),
      database: z.number(),
      native: z.strictObject({ query: z.string().min(10), 'template-tags': z.object({}) }),
    }),
    visualization_settings: z.object({}),
  }),
  'POST /api/dashboard': z.strictObject({ name: z.string(), collection_id: z.number() }),
}
const DASHCARDS = z.strictObject({
  dashcards: z.array(
    z.object({
      id: z.number(),
      card_id: z.number(),
      row: z.number(),
      col: z.number(),
      size_x: z.number(),
      size_y: z.number(),
    }),
  ),
})

interface Thing {
  id: number
  name: string
  [key: string]: unknown
}

let server: Server
let url: string
let store: { database: Thing[]; collection: Thing[]; card: Thing[]; dashboard: (Thing & { dashcards: object[] })[] }
let calls: string[]
let problems: string[]

async function bodyOf(request: IncomingMessage): Promise<any> {
  let text = ''
  for await (const chunk of request) text += chunk
  return text === '' ? undefined : JSON.parse(text)
}

beforeEach(async () => {
  store = { database: [], collection: [], card: [], dashboard: [] }
  calls = []
  problems = []
  let ids = 0
  server = createServer((request, response) => {
    void bodyOf(request).then((body) => {
      const { pathname, searchParams } = new URL(request.url!, 'http://metabase')
      const [, , kind, id, part] = pathname.split('/')
      const call = `${request.method} /api/${kind}${id === undefined ? '' : '/:id'}${part === undefined ? '' : `/${part}`}`
      calls.push(call)
      const answer = (status: number, value: unknown) =>
        response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value))
      const checked = CONTRACT[call]?.safeParse(body)
      if (checked?.success === false) {
        problems.push(`${call}: ${checked.error.message}`)
        return answer(400, { errors: checked.error.message })
      }
      if (call === 'POST /api/session')
        return body.password === 'right'
          ? answer(200, { id: 'session-1' })
          : answer(401, { errors: { password: 'did not match' } })
      if (request.headers['x-api-key'] !== 'mb_key' && request.headers['x-metabase-session'] !== 'session-1')
        return answer(401, 'Unauthenticated')
      const list = store[kind as keyof typeof store] as Thing[] | undefined
      if (call === 'POST /api/database/:id/sync_schema') return answer(200, { status: 'ok' })
      if (call === 'GET /api/collection/:id/items') {
        const items = store[searchParams.get('models') as 'card' | 'dashboard'] as Thing[]
        return answer(200, { data: items.filter((item) => item.collection_id === Number(id)) })
      }
      if (call === 'GET /api/database') return answer(200, { data: list, total: list!.length })
      if (call === 'GET /api/collection') return answer(200, [{ id: 'root', name: 'Our analytics' }, ...list!])
      if (request.method === 'POST' && id === undefined && list !== undefined) {
        const made = { ...body, id: ++ids, ...(kind === 'dashboard' ? { dashcards: [] } : {}) }
        list.push(made)
        return answer(200, made)
      }
      const found = list?.find((item) => item.id === Number(id))
      if (found === undefined) {
        problems.push(`${call}: no such thing`)
        return answer(404, 'Not found.')
      }
      if (request.method === 'PUT') {
        const shape = kind === 'dashboard' ? DASHCARDS : CONTRACT[`POST /api/${kind}`]!
        const good = shape.safeParse(body)
        if (!good.success) problems.push(`${call}: ${good.error.message}`)
        Object.assign(found, body)
      }
      return answer(200, found)
    })
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterEach(() => new Promise((done) => server.close(done)))

const env = {
  METABASE_API_KEY: 'mb_key',
  METABASE_DATABASE_URL: 'postgres://reader:s%40cret@db:5433/wh?sslmode=require',
}
const run = (over: Record<string, string> = {}) => runCli(['metabase', '--url', url], { env: { ...env, ...over } })

test('the connection, twelve questions and a dashboard are made once, and brought up to date after that', async () => {
  const first = await run()
  expect([first.code, problems]).toEqual([0, []])
  expect(first.stdout).toContain('12 questions made, 0 updated')
  expect(store.database[0]!.details).toMatchObject({
    host: 'db',
    port: 5433,
    dbname: 'wh',
    user: 'reader',
    password: 's@cret',
    ssl: true,
    'schema-filters-patterns': 'visibility',
  })
  expect(store.card.map(({ name }) => name)).toEqual(readQuestions('visibility').map(({ name }) => name))
  expect(store.dashboard[0]!.dashcards.length).toBe(12)
  const mine = { id: 99, card_id: 7, row: 50, col: 0, size_x: 4, size_y: 4 }
  store.dashboard[0]!.dashcards.push(mine)
  store.card[0]!.display = 'pie'
  store.card.push({ id: 500, name: 'their own', collection_id: store.collection[0]!.id, display: 'pie' })

  const second = await run()
  expect([second.code, problems]).toEqual([0, []])
  expect(second.stdout).toContain('Connection updated, 0 questions made, 12 updated')
  expect([store.database.length, store.collection.length, store.card.length, store.dashboard.length]).toEqual([
    1, 1, 13, 1,
  ])
  expect(store.card[0]!.display).toBe('line')
  expect(store.card.at(-1)!.display).toBe('pie')
  expect(store.dashboard[0]!.dashcards).toHaveLength(13)
  expect(store.dashboard[0]!.dashcards).toContainEqual(mine)
})

test('a user and a password do as well as a key, and a wrong one is told without showing it', async () => {
  const login = { METABASE_API_KEY: '', METABASE_USER: 'ann@example.com' }
  expect((await run({ ...login, METABASE_PASSWORD: 'right' })).code).toBe(0)
  const wrong = await run({ ...login, METABASE_PASSWORD: 'very-wrong-word' })
  expect([wrong.code, wrong.stderr]).toEqual([1, expect.stringContaining('METABASE_PASSWORD')])
  expect(wrong.stderr + wrong.stdout).not.toContain('very-wrong-word')
})

test('a Metabase that repeats what it was sent gets no key, password or session into the output', async () => {
  const secrets = ['mb/key+"of=tests', 'pass word%of"tests', 'session-of-the-tests', 'reader/of the"tests']
  for (const status of [400, 200, 302]) {
    for (const failing of ['session', 'database', 'collection']) {
      const echo = createServer((request, response) => {
        void bodyOf(request).then((body) => {
          const odd = JSON.stringify({ headers: request.headers, body, told: secrets })
          const sound = request.url!.includes('session')
            ? { id: secrets[2] }
            : request.method === 'GET'
              ? []
              : { id: 1 }
          if (request.url!.includes(failing)) response.writeHead(status, { location: `/${secrets[2]}` }).end(odd)
          else response.writeHead(200).end(JSON.stringify(sound))
        })
      })
      await new Promise<void>((done) => echo.listen(0, '127.0.0.1', done))
      const address = `http://127.0.0.1:${(echo.address() as AddressInfo).port}`
      const login =
        failing === 'session'
          ? { METABASE_USER: 'ann', METABASE_PASSWORD: secrets[1]! }
          : { METABASE_API_KEY: secrets[0]! }
      const database = `postgres://reader:${encodeURIComponent(secrets[3]!)}@db/wh`
      const result = await runCli(['metabase', '--url', address, '--json'], {
        env: { ...login, METABASE_DATABASE_URL: database },
      })
      await new Promise((done) => echo.close(done))
      expect(result.code).toBe(1)
      expect(result.stderr).toContain(`/api/${failing}`)
      for (const text of [result.stdout, result.stderr]) {
        const sent = Object.values({ ...login, database: secrets[3]! }).filter((value) => value !== 'ann')
        for (const secret of sent) {
          expect(text).not.toContain(secret)
          expect(text).not.toContain(JSON.stringify(secret).slice(1, -1))
        }
      }
    }
  }
}, 120_000)

test('a session that was opened with a password is not shown either', async () => {
  const session = 'opened-session-0815'
  const echo = createServer((request, response) =>
    response
      .writeHead(request.url!.includes('session') ? 200 : 500)
      .end(JSON.stringify({ id: session, headers: request.headers })),
  )
  await new Promise<void>((done) => echo.listen(0, '127.0.0.1', done))
  const address = `http://127.0.0.1:${(echo.address() as AddressInfo).port}`
  const login = { METABASE_API_KEY: '', METABASE_USER: 'ann', METABASE_PASSWORD: 'right-word' }
  const result = await runCli(['metabase', '--url', address], { env: { ...env, ...login } })
  await new Promise((done) => echo.close(done))
  expect([result.code, result.stderr]).toEqual([1, expect.stringContaining('HTTP 500')])
  expect(result.stderr).not.toContain(session)
})

test('a Metabase on another machine is not spoken to over plain http, unless that is allowed', async () => {
  const refused = await runCli(['metabase', '--url', 'http://metabase.example.com'], { env })
  expect([refused.code, refused.stderr]).toEqual([
    2,
    expect.stringContaining('--url: got an http:// address of another'),
  ])
  const settings = { env, config: { allow_http: true } }
  const allowed = await runCli(['metabase', '--url', 'http://metabase.invalid'], settings)
  expect([allowed.code, allowed.stderr]).toEqual([1, expect.stringContaining('GET /api/database')])
})

test('what is missing is named before anything is sent', async () => {
  expect((await run({ METABASE_DATABASE_URL: '' })).stderr).toContain('METABASE_DATABASE_URL')
  expect((await run({ METABASE_API_KEY: '' })).stderr).toContain('METABASE_API_KEY')
  expect((await runCli(['metabase', '--url', 'nonsense'], { env })).code).toBe(2)
  expect((await runCli(['metabase', '--url', 'http://127.0.0.1:9'], { env })).stderr).toContain('ECONNREFUSED')
  expect(calls).toEqual([])
})

test('the questions are those of the BI page, word for word', () => {
  const page = readFileSync(new URL('../docs/bi.md', import.meta.url), 'utf8')
  const questions = readQuestions('visibility')
  expect(questions.length).toBe(12)
  for (const { name, sql } of questions) expect(page).toContain(`-- ${name}\n${sql}`)
})
