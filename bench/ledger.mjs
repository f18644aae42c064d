// node bench/ledger.mjs: how large the ledger becomes in three years of hourly runs, with the pruning that runs do. The rows of
// each simulated day are written as runs write them: 24 runs with their summaries, the coverage of a new day and of the
// lookback, and what re-reads changed (today and yesterday of every report, in every run). Then the ledger is pruned as of that
// day. Writes bench/results/ledger.json and prints the sizes.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import pg from 'pg'
import { loadConfig } from '../dist/core/config/load.js'
import { monotonic } from '../dist/core/waiting.js'
import { pruneLedger, readLedgerSize } from '../dist/ledger/retention.js'
import { connectWarehouse } from '../dist/warehouse/connect.js'
import { startEmbedded } from '../dist/warehouse/embedded/server.js'
import { migrate } from '../dist/warehouse/schema/migrate.js'

const { values: options } = parseArgs({
  options: {
    projects: { type: 'string', default: '50' },
    days: { type: 'string', default: '1095' },
    // Of the days before the last so many, only the coverage is written, in one piece: the rest would be gone by then.
    lived: { type: 'string' },
    // Without it, to see what pruning is good for.
    keep: { type: 'boolean', default: false },
  },
})
const [projects, days] = [Number(options.projects), Number(options.days)]
const LISTS = ['project_profile', 'prompts', 'prompt_suggestions', 'domain_classifications']
const RUNS_A_DAY = 24
const RESTATED_DAYS = 2
const LOOKBACK_DAYS = 7
// Runs prune for two seconds each.
const PRUNE_MS = 2000 * RUNS_A_DAY
const say = (text) => process.stderr.write(`${text}\n`)
const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-ledger-'))
const server = await startEmbedded({ folder: join(folder, 'data') })
const warehouse = await connectWarehouse({ url: server.url, schema: 'visibility', connections: 2 })
const client = new pg.Client({ connectionString: server.url })
await client.connect()
await client.query('set synchronous_commit = off')
const config = loadConfig({ file: '/dev/null', env: {} })
await migrate(warehouse, config)
const dated = ['chats', ...config.reports.map(({ name }) => name)]
const ids = Array.from(
  { length: projects },
  (_, index) => `or_${String(index).padStart(8, '0')}-0000-4000-a000-000000000000`,
)

/** A summary as a run stores it: one entry for each project and stream. */
function summary() {
  const some = (most) => Math.floor(Math.random() * most)
  return JSON.stringify(
    ids.flatMap((project_id) =>
      [...LISTS, ...dated].map((stream) => ({
        project_id,
        stream,
        days: 7,
        windows: 1,
        rows_read: some(5000),
        inserted: some(200),
        updated: some(900),
        deleted: some(5),
        unchanged: some(5000),
        quarantined: 0,
        requests: 1 + some(2),
        seconds: Math.random(),
        held: [],
        failed: [],
      })),
    ),
  )
}

async function liveThrough(day) {
  for (let run = 0; run < RUNS_A_DAY; run++) {
    await client.query(
      `insert into visibility_ops.runs (command, started_at, ended_at, outcome, host, pid, version, source, summary)
       values ('sync', $1::timestamptz + $2 * interval '1 hour', $1::timestamptz + $2 * interval '1 hour', 'complete',
         'worker-0', 1, '0.2.0', 'https://api.example.com/v1', $3)`,
      [day, run, summary()],
    )
  }
  await client.query(
    `insert into visibility_ops.coverage
     select p, s, $1::date - d, 4000, $1::timestamptz + interval '23 hours', 1, 'read', 1, null
     from unnest($2::text[]) p cross join unnest($3::text[]) s cross join generate_series(0, $4::int - 1) d
     on conflict (project_id, stream, date) do update set rows = excluded.rows, read_at = excluded.read_at`,
    [day, ids, dated, LOOKBACK_DAYS],
  )
  await client.query(
    `insert into visibility_ops.coverage
     select p, s, $1::date, 100, $1::timestamptz + interval '23 hours', 1, 'read', 1, null
     from unnest($2::text[]) p cross join unnest($3::text[]) s on conflict do nothing`,
    [day, ids, LISTS],
  )
  await client.query(
    `insert into visibility_ops.restatements
     select p, s, $1::date - d, 12, 340, 1, $1::timestamptz + h * interval '1 hour', 1
     from generate_series(0, ${RUNS_A_DAY - 1}) h cross join unnest($2::text[]) p cross join unnest($3::text[]) s
       cross join generate_series(0, ${RESTATED_DAYS - 1}) d`,
    [day, ids, dated],
  )
}

const first = Date.now() - days * 86_400_000
const begin = days - Math.min(days, Number(options.lived ?? days))
let peak = { bytes: 0 }
try {
  await client.query(
    `insert into visibility_ops.coverage
     select p, s, $1::date + d, 4000, $1::timestamptz + d * interval '1 day' + interval '23 hours', 1, 'read', 1, null
     from unnest($2::text[]) p cross join unnest($3::text[]) s cross join generate_series(0, $4::int - 1) d`,
    [new Date(first).toISOString().slice(0, 10), ids, [...LISTS, ...dated], begin],
  )
  for (let number = begin; number <= days; number++) {
    const now = new Date(first + number * 86_400_000)
    await liveThrough(now.toISOString().slice(0, 10))
    if (!options.keep) await pruneLedger(warehouse, config.retention, { now, monotonic, limitMs: PRUNE_MS })
    // As the server does by itself, though by its own clock.
    if (number % 7 === 0)
      await client.query(
        'vacuum visibility_ops.runs, visibility_ops.restatements, visibility_ops.coverage, visibility_ops.coverage_months',
      )
    const size = await readLedgerSize(warehouse)
    if (size.bytes > peak.bytes) peak = { ...size, day: number }
    if (number % 30 === 0) say(`day ${number}: ${Math.round(size.bytes / 1e6)} MB`)
  }
  await client.query('analyze')
  const end = await readLedgerSize(warehouse)
  const result = {
    projects,
    days,
    lived: days - begin,
    runs: days * RUNS_A_DAY,
    pruned: !options.keep,
    peak_bytes: peak.bytes,
    end_bytes: end.bytes,
    tables: end.tables.slice(0, 6),
  }
  mkdirSync(fileURLToPath(new URL('results', import.meta.url)), { recursive: true })
  writeFileSync(new URL('results/ledger.json', import.meta.url), `${JSON.stringify(result, null, 2)}\n`)
  console.log(
    `${projects} projects, ${days} days, hourly: at most ${Math.round(peak.bytes / 1e6)} MB, in the end ${Math.round(end.bytes / 1e6)} MB`,
  )
  for (const { name, bytes, rows } of result.tables)
    console.log(`  ${name.padEnd(18)} ${String(Math.round(bytes / 1e6)).padStart(6)} MB ${rows} rows`)
} finally {
  await client.end()
  await warehouse.close()
  await server.release()
  rmSync(folder, { recursive: true, force: true })
}
