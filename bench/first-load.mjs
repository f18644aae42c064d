// node bench/first-load.mjs [--old REF] [--rounds N] [--days N] [--bare]: CPU of a first load, of the same again, and with 10 % of
// the rows changed, beside an earlier version: two projects, the default streams, alternating. --bare starts the bundles themselves, with the same limit of the
// young generation: without what the earlier version did to start faster.
import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import pg from 'pg'
import { startEmbedded } from '../dist/warehouse/embedded/server.js'
import { buildVersion } from '../scripts/build-version.mjs'
import { cpuSeconds } from './measure.mjs'

const { values: options } = parseArgs({
  options: {
    // The last commit before days were compared with control totals.
    old: { type: 'string', default: '864e371' },
    rounds: { type: 'string', default: '7' },
    days: { type: 'string', default: '240' },
    bare: { type: 'boolean', default: false },
  },
})
const root = fileURLToPath(new URL('..', import.meta.url))
const day = (ago) => new Date(Date.now() - ago * 86_400_000).toISOString().slice(0, 10)
const [from, to] = [day(Number(options.days) + 9), day(10)]
const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-first-load-'))

const CHANGED = '10 % changed'
const WORK = ['first load', 'same again', CHANGED]

/** Changes every tenth row of the reports, so that the next backfill has to change it back. */
async function changeRows(connectionString) {
  const client = new pg.Client({ connectionString })
  await client.connect()
  const { rows } = await client.query(
    `select table_name as name from information_schema.columns join information_schema.tables using (table_schema, table_name)
     where table_schema = 'visibility' and table_type = 'BASE TABLE' and column_name = 'mention_count'`,
  )
  for (const { name } of rows)
    await client.query(
      `update visibility.${name} t set mention_count = mention_count + 1 where hashtext(t::text) % 10 = 0`,
    )
  await client.end()
}

function backfill(place, env) {
  const command = options.bare
    ? ['--semi-space-growth-factor=1', join(place, 'dist/command/main.cjs')]
    : [join(place, 'bin/visibility-sync.js')]
  const before = cpuSeconds(process.pid, true) - cpuSeconds(process.pid)
  const { status, stderr } = spawnSync(process.execPath, [...command, 'backfill', '--from', from, '--to', to], {
    cwd: folder,
    env: { PATH: process.env.PATH, LOG_LEVEL: 'warn', ...env },
    encoding: 'utf8',
  })
  if (status !== 0) throw new Error(`the backfill exited ${status}: ${stderr.slice(-1000)}`)
  return cpuSeconds(process.pid, true) - cpuSeconds(process.pid) - before
}

const versions = { old: buildVersion(options.old), new: root }
const server = await startEmbedded({ folder: join(folder, 'data') })
const admin = new pg.Client({ connectionString: server.url })
await admin.connect()
const service = spawn(
  process.execPath,
  [join(root, 'bin/visibility-sync.js'), 'reference', '--port', '0', '--fault', 'rate_limit=null', '--json'],
  { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] },
)
const { url, company_key, projects } = JSON.parse(
  await new Promise((done) => service.stdout.once('data', (data) => done(String(data)))),
)
const file = join(folder, 'sync.yaml')
writeFileSync(
  file,
  // Earlier versions read no extras without being asked.
  JSON.stringify({
    start_date: from,
    earliest_date: from,
    end_date: to,
    extras: 'off',
    source: { requests_per_minute: 100_000 },
  }),
)

try {
  const costs = Object.fromEntries(WORK.map((work) => [work, { old: [], new: [] }]))
  for (let round = 0; round < Number(options.rounds); round++) {
    for (const version of round % 2 === 0 ? ['old', 'new'] : ['new', 'old']) {
      const database = `${version}_${round}`
      await admin.query(`create database ${database}`)
      const address = new URL(server.url)
      address.pathname = `/${database}`
      const env = {
        ...{ VISIBILITY_API_URL: url, VISIBILITY_API_KEY: company_key, VISIBILITY_CONFIG: file },
        ...{ VISIBILITY_PROJECTS: projects.map(({ id }) => id).join(','), DATABASE_URL: address.href },
      }
      for (const work of WORK) {
        if (work === CHANGED) await changeRows(address.href)
        costs[work][version].push(backfill(versions[version], env))
      }
      await admin.query(`drop database ${database}`).catch(() => {})
    }
  }
  const mean = (list) => list.reduce((sum, seconds) => sum + seconds, 0) / list.length
  process.stdout.write(`CPU seconds of the command, means of ${options.rounds} alternating rounds\n\n`)
  process.stdout.write(`| work | ${options.old} | now | ratio | least of each | ratio |\n|---|---|---|---|---|---|\n`)
  for (const [work, { old, new: now }] of Object.entries(costs)) {
    const numbers = [mean(old), mean(now), mean(now) / mean(old)].map((number) => number.toFixed(2))
    const least = [Math.min(...old), Math.min(...now)]
    process.stdout.write(
      `| ${work} | ${numbers.join(' | ')} | ${least.map((number) => number.toFixed(2)).join(', ')} | ${(least[1] / least[0]).toFixed(2)} |\n`,
    )
  }
} finally {
  service.kill()
  await admin.end()
  await server.release()
  rmSync(folder, { recursive: true, force: true })
}
