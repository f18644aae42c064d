// The same rows, read and loaded in different ways.
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { finished } from 'node:stream/promises'
import { fileURLToPath } from 'node:url'
import { got } from 'got'
import { Kysely, PostgresDialect } from 'kysely'
import pg from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import * as z from 'zod'
import { cpuSeconds, watchMemory } from './measure.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
export const TABLE = 'fine'
const DIMENSIONS = ['date', 'prompt_id', 'model_id', 'country_code']
const METRICS =
  'mention_count visibility visibility_count visibility_total share_of_voice sentiment sentiment_sum sentiment_count position position_sum position_count'.split(
    ' ',
  )
const COLUMNS = ['project_id', 'date', 'brand_id', 'prompt_id', 'model_id', 'country_code', ...METRICS]
const DAY_MS = 86_400_000
const day = (number) => new Date(number * DAY_MS).toISOString().slice(0, 10)

/** Windows of ten days, as long as a page allows at 990 rows a day. */
export function* windows({ from, to }, length = 10) {
  for (let start = Date.parse(from) / DAY_MS; start <= Date.parse(to) / DAY_MS; start += length) {
    yield { start_date: day(start), end_date: day(Math.min(start + length - 1, Date.parse(to) / DAY_MS)) }
  }
}

const ask = (url, window) => ({
  json: { ...window, dimensions: DIMENSIONS, limit: 10_000 },
  headers: { 'x-api-key': 'k' },
  url: `${url}/reports/brands`,
})

/** Fetch and parse, nothing else. */
export async function floorOfReading({ url, range }) {
  let rows = 0
  for (const window of windows(range)) {
    const { url: address, ...options } = ask(url, window)
    rows += JSON.parse((await got.post(address, { ...options, responseType: 'buffer' })).body.toString()).data.length
  }
  return { rows }
}

async function makeTable(client) {
  await client.query('create schema if not exists visibility')
  await client.query(
    `create table if not exists visibility.${TABLE} (project_id text collate "C" not null, date date not null, brand_id text collate "C" not null,
       prompt_id text collate "C", model_id text collate "C", country_code text collate "C", ${METRICS.map((name) => `${name} double precision`).join(', ')},
       changed_at timestamptz not null default now()) with (fillfactor = 90)`,
  )
  await client.query(
    `create unique index if not exists ${TABLE}_key on visibility.${TABLE}
       (project_id, date desc, brand_id, prompt_id, model_id, country_code) nulls not distinct`,
  )
}

/**
 * Renders the COPY text beforehand; what is measured is sending it, over one connection, a transaction for each window,
 * newest first as the product does: the other way round it is slower.
 */
export async function prepareWriting({ url, range }) {
  const pages = []
  for (const window of [...windows(range)].reverse()) {
    const { url: address, ...options } = ask(url, window)
    const { data } = JSON.parse((await got.post(address, { ...options, responseType: 'buffer' })).body.toString())
    pages.push(
      Buffer.from(
        data
          .map(
            (row) =>
              `${flat(row)
                .map((value) => value ?? '\\N')
                .join('\t')}\n`,
          )
          .join(''),
      ),
    )
  }
  return pages
}

export async function floorOfWriting({ databaseUrl, pages }) {
  const client = new pg.Client({ connectionString: databaseUrl })
  await client.connect()
  await makeTable(client)
  const startedAt = performance.now()
  for (const page of pages) {
    const stream = client.query(copyFrom(`copy visibility.${TABLE} (${COLUMNS.join(', ')}) from stdin`))
    stream.end(page)
    await finished(stream)
  }
  const seconds = (performance.now() - startedAt) / 1000
  await client.end()
  return { seconds }
}

function flat(row) {
  return [
    'or_bench',
    row.date,
    row.brand.id,
    row.prompt?.id ?? null,
    row.model?.id ?? null,
    row.country_code ?? null,
    ...METRICS.map((name) => row[name] ?? null),
  ]
}

const naiveRow = z.object({
  brand: z.object({ id: z.string(), name: z.string() }).transform(({ id }) => id),
  date: z.iso.date(),
  prompt: z
    .object({ id: z.string() })
    .nullish()
    .transform((value) => value?.id ?? null),
  model: z
    .object({ id: z.string() })
    .nullish()
    .transform((value) => value?.id ?? null),
  country_code: z
    .string()
    .nullish()
    .transform((value) => value ?? null),
  ...Object.fromEntries(
    METRICS.map((name) => [
      name,
      z
        .number()
        .nullish()
        .transform((value) => value ?? null),
    ]),
  ),
})

/** What one writes on a Friday: got's json, zod row by row with transforms, Kysely VALUES with on conflict do update. */
export async function naive({ url, range, databaseUrl }) {
  const pool = new pg.Pool({ connectionString: databaseUrl, max: 2 })
  const client = await pool.connect()
  await makeTable(client)
  client.release()
  const db = new Kysely({ dialect: new PostgresDialect({ pool }) }).withSchema('visibility')
  let rows = 0
  for (const window of windows(range)) {
    const { url: address, ...options } = ask(url, window)
    const { data } = await got.post(address, options).json()
    const parsed = data.map((item) => naiveRow.parse(item))
    rows += parsed.length
    for (let start = 0; start < parsed.length; start += 1000) {
      const values = parsed.slice(start, start + 1000).map(({ brand, prompt, model, ...rest }) => ({
        project_id: 'or_bench',
        brand_id: brand,
        prompt_id: prompt,
        model_id: model,
        ...rest,
      }))
      await db
        .insertInto(TABLE)
        .values(values)
        .onConflict((conflict) =>
          conflict
            .columns(['project_id', 'date', 'brand_id', 'prompt_id', 'model_id', 'country_code'])
            .doUpdateSet((eb) => Object.fromEntries(METRICS.map((name) => [name, eb.ref(`excluded.${name}`)]))),
        )
        .execute()
    }
  }
  await db.destroy()
  return { rows }
}

/** The real command, in a process of its own, with ledger, quarantine and coverage on. */
export async function product({
  url,
  range,
  databaseUrl,
  folder,
  command = 'backfill',
  concurrency = 4,
  projects = 'or_bench',
}) {
  const config = join(folder, 'sync.yaml')
  writeFileSync(
    config,
    JSON.stringify({
      start_date: range.from,
      earliest_date: range.from,
      end_date: range.to,
      source: { compress: false, requests_per_minute: 100_000, concurrency },
      extras: 'off',
      streams: [],
      reports: [{ name: TABLE, dimensions: DIMENSIONS }],
    }),
  )
  const args = [
    join(root, 'bin/visibility-sync.js'),
    command,
    ...(command === 'backfill' ? ['--from', range.from, '--to', range.to] : []),
    '--json',
  ]
  const env = {
    PATH: process.env.PATH,
    VISIBILITY_API_URL: url,
    VISIBILITY_API_KEY: 'k',
    VISIBILITY_PROJECTS: projects,
    DATABASE_URL: databaseUrl,
    VISIBILITY_CONFIG: config,
    LOG_LEVEL: 'warn',
  }
  const startedAt = performance.now()
  const child = spawn(process.execPath, args, { cwd: folder, env, stdio: ['ignore', 'pipe', 'inherit'] })
  const memory = watchMemory(child.pid)
  let cpu = 0
  const timer = setInterval(() => {
    cpu = Math.max(cpu, cpuSeconds(child.pid))
  }, 20)
  let output = ''
  child.stdout.on('data', (data) => {
    output += data
  })
  const code = await new Promise((done) => child.on('close', done))
  clearInterval(timer)
  const seconds = (performance.now() - startedAt) / 1000
  if (code !== 0) throw new Error(`the command exited ${code}: ${output.slice(0, 2000)}`)
  const { streams } = JSON.parse(output)
  const [stream] = streams
  const sum = (field) => streams.reduce((total, row) => total + row[field], 0)
  return { seconds, rows: sum('rows_read'), requests: sum('requests'), memoryMb: memory(), cpuSeconds: cpu, stream }
}

/** dlt's REST source with merge into Postgres, installed into a virtual environment of its own; null where that cannot be. */
export function prepareDlt(folder) {
  const venv = join(folder, 'bench-venv')
  const python = join(venv, 'bin', 'python')
  try {
    if (!existsSync(python)) {
      mkdirSync(folder, { recursive: true })
      execFileSync('python3', ['-m', 'venv', venv], { stdio: 'pipe' })
      execFileSync(python, ['-m', 'pip', 'install', '--quiet', 'dlt[postgres]'], { stdio: 'pipe', timeout: 300_000 })
    }
    return {
      python,
      version: execFileSync(python, ['-c', 'import dlt; print(dlt.__version__)'], { encoding: 'utf8' }).trim(),
    }
  } catch (error) {
    return { reason: String(error.message).split('\n')[0] }
  }
}

export function dlt({ python, url, range, databaseUrl, folder }) {
  // dlt insists on a password, also where the server wants none.
  const address = new URL(databaseUrl)
  address.password ||= 'unused'
  const startedAt = performance.now()
  const result = spawnSync(python, [fileURLToPath(new URL('peers/dlt_default.py', import.meta.url))], {
    encoding: 'utf8',
    cwd: folder,
    env: {
      PATH: process.env.PATH,
      HOME: folder,
      RUNTIME__DLTHUB_TELEMETRY: 'false',
      PEER: JSON.stringify({ url, ...range, database: address.href, folder }),
    },
  })
  if (result.status !== 0) throw new Error(`dlt failed: ${result.stderr.slice(0, 400)} … ${result.stderr.slice(-1500)}`)
  return { seconds: (performance.now() - startedAt) / 1000 }
}
