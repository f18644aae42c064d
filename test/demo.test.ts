import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { parse, stringify } from 'yaml'
import { createWorld } from '../src/reference/world.ts'
import { startProcess, temporaryFolder } from './support/cli.ts'
import { runningIn } from './support/server-processes.ts'

/* npm run demo shows synthetic data, and nothing that is configured in any way is touched by it. */

let folder: ReturnType<typeof temporaryFolder>
let trap: Awaited<ReturnType<typeof startTrap>>
beforeEach(async () => {
  folder = temporaryFolder()
  trap = await startTrap()
})
afterEach(async () => {
  await trap.close()
  folder.remove()
})

/** Stands for every database and service that someone configured, and counts who comes. */
async function startTrap() {
  let visits = 0
  const server = createServer((socket) => {
    visits++
    socket.destroy()
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const { port } = server.address() as { port: number }
  return {
    host: `127.0.0.1:${port}`,
    visits: () => visits,
    close: () => new Promise<void>((done) => server.close(() => done())),
  }
}

const demo = (env: Record<string, string>, args: string[] = []) =>
  startProcess(['--port', '0', ...args], { cwd: folder.path, script: 'scripts/demo.mjs', env })

test('the demo touches no configured database or service, however it is configured', async () => {
  const database = `postgres://u:p@${trap.host}/warehouse`
  const api = `http://${trap.host}/v1`
  const settings = {
    source: { base_url: api, api_key: 'k' },
    warehouse: { url: database },
    alerts: { webhook_url: `http://${trap.host}/hook` },
  }
  mkdirSync(join(folder.path, 'config'))
  for (const name of ['config/sync.yaml', 'own.yaml']) writeFileSync(join(folder.path, name), stringify(settings))
  const secret = (name: string, text: string) => {
    writeFileSync(join(folder.path, name), text)
    return join(folder.path, name)
  }
  const address = new URL(api)
  const running = demo({
    DATABASE_URL: database,
    DATABASE_URL_FILE: secret('database_url', database),
    VISIBILITY_CONFIG: join(folder.path, 'own.yaml'),
    VISIBILITY_API_URL: api,
    VISIBILITY_API_KEY: 'k',
    VISIBILITY_API_KEY_FILE: secret('api_key', 'k'),
    VISIBILITY_PROJECTS: 'or_mine',
    VISIBILITY_TOKEN: 'a-token-of-mine',
    METABASE_DATABASE_URL: database,
    PGHOST: address.hostname,
    PGPORT: address.port,
    PGUSER: 'u',
    PGDATABASE: 'warehouse',
    PGSSLMODE: 'require',
    http_proxy: `http://${trap.host}`,
  })
  await running.saw('Schedule:')
  expect(running.output()).toContain('the reference service (synthetic data')
  expect(running.output()).toMatch(/postgres:\/\/visibility@127\.0\.0\.1:\d+\/visibility \(in /)
  const page = /Serving: +(\S+)/.exec(running.output())![1]!
  expect((await fetch(`${page}/healthz`)).status).toBe(200)
  const backfill = await fetch(`${page}/api/backfills`, {
    method: 'POST',
    headers: { authorization: 'Bearer a-token-of-mine', 'content-type': 'application/json' },
    body: '{}',
  })
  expect(backfill.status).toBe(404)
  running.child.kill('SIGTERM')
  const { code, stderr } = await running.done
  expect({ code, said: stderr.includes(join(folder.path, '.data/demo')) }).toEqual({ code: 0, said: true })
  expect(trap.visits()).toBe(0)
  // Nor the folder in which a warehouse without DATABASE_URL is kept, real or synthetic.
  for (const name of ['.data/postgres', '.data/reference']) expect(existsSync(join(folder.path, name))).toBe(false)
  expect(runningIn(join(folder.path, '.data/demo/.data/reference'))).toBeUndefined()
})

test.each([['--config', 'own.yaml'], ['--config=own.yaml']])('the demo refuses %s', async (...args) => {
  const { code, stderr } = await demo({}, args).done
  expect([code, stderr]).toEqual([2, expect.stringContaining('npx visibility-sync serve --config FILE')])
  expect(existsSync(join(folder.path, '.data'))).toBe(false)
})

test('the own brand of each project of the demo is the brand that its profile names', () => {
  const file = readFileSync(new URL('../config/demo.yaml', import.meta.url), 'utf8')
  const { labels } = parse(file) as { labels: { brands: Record<string, unknown>; topics: Record<string, string> } }
  const { projects } = createWorld()
  const named = projects.map(({ brands, profile }) => brands.find(({ name }) => name === profile!.name)!.id)
  expect(Object.entries(labels.brands)).toEqual(named.map((id) => [id, { own: true }]))
  const topics = projects.flatMap((project) => project.topics.map(({ id, name }) => [id, name]))
  expect(labels.topics).toEqual(Object.fromEntries(topics))
})
