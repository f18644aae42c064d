import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { Client } from 'pg'
import { MOST_CONNECTIONS } from '../src/web/server.ts'
import { type RunningProcess, startProcess, temporaryFolder } from './support/cli.ts'
import { get, getAs, NEVER, until } from './support/serve.ts'
import { type Setup, setUp } from './support/setup.ts'

/* What `serve` answers to strange requests, and to more of them than it can serve. */

let setup: Setup
let running: RunningProcess
let url: string
const TOKEN = 'a-token-for-tests'
const bearer = { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' }

beforeAll(async () => {
  setup = await setUp({ world: { projects: 2, prompts: 4, models: 2, brands: 3 } })
  running = startProcess(['serve', '--port', '0'], {
    env: { ...setup.env, VISIBILITY_TOKEN: TOKEN },
    config: {
      ...setup.fileConfig,
      schedule: { cron: NEVER, audit_cron: NEVER },
      serve: { hosts: ['Status.Example.com'] },
    },
  })
  await running.saw('run ended')
  url = /Serving: +(\S+)/.exec(running.output())![1]!
  await until(async () => (await get(`${url}/readyz`)).status === 200)
})
afterAll(async () => {
  running.child.kill('SIGTERM')
  await running.done
  await setup.close()
})

test('a name that is not ours is refused, since a page of another site may have it point here', async () => {
  for (const path of ['/', '/insights', '/api/status', '/metrics', '/healthz', '/assets/style.css', '/nowhere']) {
    const { status, text } = await getAs(url + path, 'attacker.example')
    expect([path, status]).toEqual([path, 421])
    expect(JSON.parse(text).error).toContain('serve.hosts')
  }
  for (const host of [
    'attacker.example:80',
    'localhost.attacker.example',
    '127.0.0.1.attacker.example',
    'a@127.0.0.1',
    '[',
    ' ',
  ])
    expect([400, 421]).toContain((await getAs(`${url}/`, host)).status)
  expect((await get(`${url}/api/backfills`, { method: 'POST', headers: bearer, body: '{' })).status).toBe(400)
})

test('a request without a name is refused where the protocol asks for one', async () => {
  expect((await getAs(`${url}/`, undefined)).status).toBe(400)
})

test('our own names pass, and every address does, as probes use them', async () => {
  const { port } = new URL(url)
  const names = [
    'localhost',
    'LOCALHOST',
    'localhost.',
    '127.0.0.1',
    '[::1]',
    '10.1.2.3',
    '[fe80::1]',
    hostname(),
    'status.example.com',
  ]
  for (const name of names)
    for (const host of [name, `${name}:${port}`])
      for (const path of ['/healthz', '/readyz', '/'])
        expect([host, path, (await getAs(url + path, host)).status]).toEqual([host, path, 200])
})

const BAD: [string, string][] = [
  ['/?to=0001-01-01', 'to: got "0001-01-01"'],
  ['/?to=9999-12-31', 'to: got "9999-12-31"'],
  ['/?to=2026-02-30', 'to: got "2026-02-30"'],
  ['/?to=rubbish', 'to: got'],
  ['/?to=%00', 'to: got'],
  ["/?to='", 'to: got'],
  ['/?to=2026-03-01&to=2026-03-02', 'to: given more than once'],
  ['/?to[]=2026-03-01', 'unknown'],
  ['/?project=nobody', 'project: got "nobody"'],
  ['/?colour=blue', 'colour: unknown'],
  ['/insights?from=rubbish', 'from: got "rubbish"'],
  ['/insights?from=2026-03-02&to=2026-03-01', 'which is after to'],
  ['/insights?from=2000-01-01&to=2026-03-01', 'allowed: at most'],
  ['/insights?from=0001-01-01&to=2026-03-02', 'from: got "0001-01-01"'],
  ['/insights?project=nobody', 'project: got "nobody"'],
  ['/api/status?project=nobody', 'project: got "nobody"'],
  ['/api/status?limit=-1', 'limit: unknown'],
]
test.each(BAD)('%s is refused with a sentence', async (path, sentence) => {
  const { status, text } = await get(url + path)
  expect(status).toBe(400)
  expect(text.replaceAll(/&quot;|\\"/g, '"')).toContain(sentence)
})

test('a very long parameter is refused in a short sentence', async () => {
  const { status, text } = await get(`${url}/api/status?project=${'x'.repeat(5000)}`)
  expect(status).toBe(400)
  expect(text.length).toBeLessThan(500)
})

test('good parameters are good, and those that a form leaves empty are not given', async () => {
  const [first, second] = setup.projects.map(({ id }) => id)
  for (const path of [
    `/?project=${second}&to=2026-03-15`,
    `/?project=${first}&to=`,
    '/insights?project=&from=&to=',
    `/insights?project=${second}&from=2026-03-01&to=2026-03-31`,
  ])
    expect([path, (await get(url + path)).status]).toEqual([path, 200])
  const one = (await get(`${url}/api/status?project=${second}`)).json()
  expect(new Set(one.streams.map((row: { project_id: string }) => row.project_id))).toEqual(new Set([second]))
  expect(one.totals.streams).toBe(one.streams.length)
  const all = (await get(`${url}/api/status`)).json()
  expect(all.totals.streams).toBe(2 * one.streams.length)
  expect(all.database).toMatchObject({ up: true, reason: null })
})

test('a backfill of absurd days is refused before anything starts', async () => {
  const post = (body: object) =>
    get(`${url}/api/backfills`, { method: 'POST', headers: bearer, body: JSON.stringify(body) })
  for (const [from, to] of [
    ['0001-01-01', '0001-01-02'],
    ['1999-12-31', '2026-03-01'],
    ['2026-03-01', '9999-12-31'],
  ]) {
    const { status, json } = await post({ from, to })
    expect(status).toBe(400)
    expect(json().error).toContain('from 2000-01-01')
  }
  expect((await get(`${url}/api/runs/1e9`, { headers: bearer })).status).toBe(404)
  expect((await get(`${url}/api/runs/999999999999999`, { headers: bearer })).status).toBe(404)
})

test('readers that cannot be served soon are turned away with a time to come back, and probes are not held up', async () => {
  const client = new Client({ connectionString: setup.database.url })
  await client.connect()
  try {
    await client.query('begin; lock table visibility_ops.coverage in access exclusive mode')
    const project = setup.projects[0]!.id
    const days = Array.from({ length: 300 }, (_, at) => new Date(Date.UTC(2025, 0, 1 + at)).toISOString().slice(0, 10))
    const answers = await Promise.all(days.map((to) => get(`${url}/?project=${project}&to=${to}`)))
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([503]))
    for (const { headers } of answers) expect(Number(headers.get('retry-after'))).toBeGreaterThan(0)
    expect((await get(`${url}/healthz`)).status).toBe(200)
    expect((await get(`${url}/readyz`)).status).toBe(200)
    expect((await get(`${url}/metrics`)).status).toBe(200)
  } finally {
    await client.end()
  }
  await until(async () => (await get(`${url}/`)).status === 200)
})

test('two hundred who look at once at every page get an answer each', async () => {
  const paths = ['/', '/insights', '/api/status', '/metrics']
  const answers = await Promise.all(Array.from({ length: 200 }, (_, at) => get(url + paths[at % paths.length]!)))
  expect(answers.filter(({ status }) => status !== 200)).toEqual([])
})

test('connections that are kept open are closed before they use up files, and probes are answered meanwhile', async () => {
  const { port, hostname: host } = new URL(url)
  let closed = 0
  const sockets = Array.from({ length: MOST_CONNECTIONS + 100 }, () => connect(Number(port), host))
  for (const socket of sockets) socket.on('error', () => {}).once('close', () => closed++)
  try {
    await until(() => closed >= 100)
    for (const path of ['/healthz', '/readyz', '/']) expect([path, (await get(url + path)).status]).toEqual([path, 200])
    const files = readdirSync(`/proc/${running.child.pid}/fd`).length
    expect(files).toBeLessThan(MOST_CONNECTIONS + 100)
  } finally {
    for (const socket of sockets) socket.destroy()
  }
})

test('the health check of the image finds the server by its command line, and fails where there is none', async () => {
  const folder = temporaryFolder()
  const check = fileURLToPath(new URL('../bin/healthcheck.js', import.meta.url))
  const exitOf = async (...words: string[]) => {
    const file = join(folder.path, 'cmdline')
    writeFileSync(file, words.join('\0'))
    const child = spawn(process.execPath, [check, file], { cwd: folder.path, env: { PATH: process.env.PATH } })
    const [code] = await once(child, 'exit')
    return code
  }
  try {
    const { port } = new URL(url)
    const program = ['node', 'bin/visibility-sync.js']
    expect(await exitOf(...program, 'serve', '--port', port)).toBe(0)
    expect(await exitOf(...program, 'serve', '--host=0.0.0.0', `--port=${port}`)).toBe(0)
    expect(await exitOf(...program, 'serve', '--host', '127.0.0.1', '--port', '1')).toBe(1)
    expect(await exitOf(...program, 'serve', '--host', '::1', '--port', '1')).toBe(1)
    expect(await exitOf(...program, 'sync')).toBe(0)
  } finally {
    folder.remove()
  }
})
