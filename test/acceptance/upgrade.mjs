// node test/acceptance/upgrade.mjs: upgrades warehouses of the released versions, which it builds from their commits. After the upgrade, rows, people's own views and grants must be the same, and the twelve questions must have the answers of a new
// warehouse. The old version must be refused, also a `serve` that runs during the upgrade. A worker of it must do no harm. Exits 1
// otherwise.
import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { readQuestions } from '../../dist/packs/metabase/cards.js'
import { startEmbedded } from '../../dist/warehouse/embedded/server.js'
import { buildVersion } from '../../scripts/build-version.mjs'

/** The last commit of each version. */
const RELEASES = { '0.1.0': 'be32067^', '0.2.0': '24a978c', '1.0.0': '139d1b9d' }
const TABLES = ['prompts', 'prompt_tags', 'chats', 'brand_daily', 'brand_daily_by_model', 'brand_daily_by_prompt_model']
const root = fileURLToPath(new URL('../..', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-upgrade-'))
const day = (ago) => new Date(Date.now() - ago * 86_400_000).toISOString().slice(0, 10)
const reports = Object.entries({
  ...{
    brand_daily: [],
    brand_daily_by_model: ['model_id'],
    brand_daily_by_topic: ['topic_id'],
    brand_daily_by_tag: ['tag_id'],
  },
  ...{ brand_daily_by_country: ['country_code'], brand_daily_by_topic_model: ['topic_id', 'model_id'] },
  brand_daily_by_prompt_model: ['prompt_id', 'model_id'],
}).map(([name, breakdowns]) => ({ name, dimensions: ['date', ...breakdowns] }))
const problems = []
const say = (text) => process.stdout.write(`${text}\n`)
const expect = (isTrue, text) => {
  say(`${isTrue ? '✓' : '✗'} ${text}`)
  if (!isTrue) problems.push(text)
}

const server = await startEmbedded({ folder: join(folder, 'data') })
const admin = new pg.Client({ connectionString: server.url })
await admin.connect()
// Days that the service no longer measures again, and whole weeks before them.
writeFileSync(
  join(folder, 'sync.yaml'),
  JSON.stringify({ start_date: day(40), end_date: day(5), source: { requests_per_minute: 100_000 }, reports }),
)
writeFileSync(
  join(folder, 'serve.yaml'),
  JSON.stringify({
    ...{ start_date: day(40), end_date: day(5), source: { requests_per_minute: 100_000 }, reports },
    schedule: { cron: '*/5 * * * * *' },
  }),
)
writeFileSync(
  join(folder, 'queue.yaml'),
  JSON.stringify({
    ...{ start_date: day(40), end_date: day(5), source: { requests_per_minute: 100_000 }, reports },
    queue: { mode: 'pg-boss' },
  }),
)
const service = spawn(
  process.execPath,
  [join(root, 'bin/visibility-sync.js'), 'reference', '--port', '0', '--fault', 'rate_limit=null', '--json'],
  { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] },
)
const {
  url,
  company_key: key,
  projects,
} = await new Promise((resolve) => {
  let text = ''
  service.stdout.on('data', (chunk) => {
    text += chunk
    if (text.trimEnd().endsWith('}')) resolve(JSON.parse(text))
  })
})

async function database(name) {
  await admin.query(`create database ${name}`)
  const address = new URL(server.url)
  address.pathname = `/${name}`
  const client = new pg.Client({ connectionString: address.href })
  await client.connect()
  const env = {
    ...{ PATH: process.env.PATH, HOME: folder, VISIBILITY_API_URL: url, VISIBILITY_API_KEY: key },
    ...{ VISIBILITY_PROJECTS: projects.map(({ id }) => id ?? '').join(','), DATABASE_URL: address.href },
    VISIBILITY_CONFIG: join(folder, 'sync.yaml'),
  }
  const run = (place, ...args) => {
    const { status, stdout, stderr } = spawnSync(process.execPath, [join(place, 'bin/visibility-sync.js'), ...args], {
      cwd: folder,
      env,
      encoding: 'utf8',
    })
    return { code: status, text: `${stdout}\n${stderr}` }
  }
  /** Starts a command that does not end by itself, and collects what it prints. */
  const start = (place, config, ...args) => {
    const child = spawn(process.execPath, [join(place, 'bin/visibility-sync.js'), ...args], {
      cwd: folder,
      env: { ...env, VISIBILITY_CONFIG: join(folder, config), LOG_LEVEL: 'info' },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const started = { text: '', ended: new Promise((done) => child.on('exit', done)), stop: () => child.kill() }
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk) => {
        started.text += chunk
      })
    return started
  }
  const rows = async (sql) => (await client.query({ text: sql, rowMode: 'array' })).rows
  return { client, run, start, rows, address }
}

const until = async (isTrue) => {
  for (let tries = 0; tries < 240 && !isTrue(); tries++) await new Promise((done) => setTimeout(done, 250))
  return isTrue()
}

/** The rows of the tables, without the times at which they were written. */
async function contents({ rows }) {
  const found = {}
  for (const table of TABLES)
    found[table] = await rows(
      `select count(*)::int, md5(string_agg(r, '' order by r)) from (
         select (to_jsonb(t) - array['changed_at', 'first_seen_at'])::text as r from visibility.${table} t) x`,
    )
  return JSON.stringify(found)
}
/** The answers to the twelve questions, without the times at which something was read. */
async function answers({ rows }) {
  const found = new Map()
  for (const { name, sql } of readQuestions('visibility')) {
    const answer = await rows(sql.replace('-- filters', ''))
    // Sums depend on the order of rows in their last digits, and so does the order of equal rows.
    const shown = (value) =>
      value instanceof Date ? 'a time' : typeof value === 'number' ? Number(value.toPrecision(10)) : value
    found.set(
      name,
      answer
        .map((row) => JSON.stringify(row.map(shown)))
        .sort()
        .join(),
    )
  }
  return found
}
/** A sync of this version, and how many requests it sent. */
function sync({ run }) {
  const { code, text } = run(root, 'sync', '--json')
  const [, ...sent] = text.split('"requests": ')
  return { code, text, requests: sent.reduce((sum, part) => sum + Number.parseInt(part, 10), 0) }
}

const differing = (wanted, found) => [...wanted.keys()].filter((name) => wanted.get(name) !== found.get(name))

try {
  const fresh = await database('fresh')
  const filled = fresh.run(root, 'sync')
  expect(
    filled.code === 0,
    `this version fills an empty warehouse${filled.code === 0 ? '' : `: ${filled.text.slice(-800)}`}`,
  )
  const wanted = await answers(fresh)
  const later = sync(fresh).requests
  for (const [version, commit] of Object.entries(RELEASES)) {
    say(`\n${version}`)
    const old = buildVersion(commit)
    const warehouse = await database(`from_${version.replaceAll('.', '_')}`)
    const { run, start, rows, client, address } = warehouse
    const first = run(old, 'sync')
    expect(first.code === 0, `${version} fills a warehouse${first.code === 0 ? '' : `: ${first.text.slice(-800)}`}`)
    const before = await contents(warehouse)
    const reader = `reader_${version.replaceAll('.', '_')}`
    await client.query(`create view visibility.mine as select project_id, date, visibility_count from visibility.brand_daily;
      create role ${reader} login password 'reader'; grant usage on schema visibility to ${reader};
      grant select on all tables in schema visibility to ${reader}`)
    const mine = JSON.stringify(await rows('select * from visibility.mine order by 1, 2, 3'))

    // It syncs every five seconds.
    const serving = start(old, 'serve.yaml', 'serve', '--port', '0')
    const isServing = await until(() => /run ended|outcome/.test(serving.text))
    expect(isServing, `serve of ${version} syncs before the upgrade${isServing ? '' : `: ${serving.text.slice(-800)}`}`)
    const migrated = run(root, 'migrate')
    expect(
      migrated.code === 0,
      `this version upgrades it${migrated.code === 0 ? '' : `: ${migrated.text.slice(-800)}`}`,
    )
    expect((await contents(warehouse)) === before, 'the upgrade changes no row')
    say(`  ${/Next sync: .*/.exec(migrated.text)?.[0]}`)
    for (const which of ['next', 'second']) {
      const { code, text, requests } = sync(warehouse)
      expect(
        code === 0,
        `the ${which} sync is complete, with ${requests} requests${code === 0 ? '' : `: ${text.slice(-1500)}`}`,
      )
      expect(
        (await contents(warehouse)) === before,
        `the ${which} sync changes no row of the tables that both versions have`,
      )
      if (which === 'second') expect(requests <= later, `it needs no more requests than in a new warehouse (${later})`)
    }
    const other = differing(wanted, await answers(warehouse))
    expect(
      other.length === 0,
      `the twelve questions have the answers of a new warehouse${other.length === 0 ? '' : `, but not ${other.join(', ')}`}`,
    )
    expect(
      JSON.stringify(await rows('select * from visibility.mine order by 1, 2, 3')) === mine,
      "people's own view has the same rows",
    )
    const asReader = new URL(address)
    Object.assign(asReader, { username: reader, password: 'reader' })
    const login = new pg.Client({ connectionString: asReader.href })
    await login.connect()
    const seen = await login.query('select from visibility.brand_daily limit 1').catch(() => ({ rowCount: 0 }))
    expect(seen.rowCount === 1, 'a role that was granted by hand still reads')
    await login.end()

    const isRefused = await until(() => /newer/.test(serving.text))
    expect(isRefused, `the running serve of ${version} is refused${isRefused ? '' : `: ${serving.text.slice(-800)}`}`)
    serving.stop()
    await serving.ended
    // A worker of 0.2.0; 0.1.0 has none.
    const worker = start(old, 'queue.yaml', 'worker')
    const queued = run(root, 'backfill', '--from', day(12), '--to', day(5), '--config', join(folder, 'queue.yaml'))
    expect(
      queued.code === 0,
      `a backfill with a queue is complete${queued.code === 0 ? '' : `: ${queued.text.slice(-800)}`}`,
    )
    worker.stop()
    await worker.ended
    expect((await contents(warehouse)) === before, `the running serve and worker of ${version} changed no row`)

    const again = run(old, 'sync')
    expect(
      again.code === 2 && /newer/.test(again.text),
      `${version} refuses the upgraded warehouse with exit code 2${again.code === 2 ? '' : `, got ${again.code}`}`,
    )
    expect((await contents(warehouse)) === before, `${version} changed no row of it`)
    await client.end()
  }
  await fresh.client.end()
} finally {
  service.kill()
  await admin.end()
  await server.release()
  rmSync(folder, { recursive: true, force: true })
}
process.exitCode = problems.length === 0 ? 0 : 1
