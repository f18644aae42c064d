import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { monotonic } from '../src/core/waiting.ts'
import { pruneLedger } from '../src/ledger/retention.ts'
import { runCli } from './support/cli.ts'
import { type Setup, setUp } from './support/setup.ts'

/* What the ledger forgets, and what it must not. */

let setup: Setup
beforeAll(async () => {
  setup = await setUp({
    world: { projects: 1, prompts: 4, models: 2, brands: 3 },
    config: { start_date: '2026-03-25' },
  })
  await setup.sync()
})
afterAll(() => setup.close())

const NOW = new Date('2026-06-01T00:00:00Z')
const rows = <T = Record<string, unknown>>(sql: string) => setup.database.rows<T>(sql)
const prune = (batch?: number, limitMs = 60_000) =>
  pruneLedger(setup.database.warehouse, setup.config.retention, {
    now: NOW,
    monotonic,
    limitMs,
    ...(batch === undefined ? {} : { batch }),
  })

test('runs and restatements that are older than retention says go in batches, and others stay', async () => {
  await rows('truncate visibility_ops.restatements')
  await rows(`insert into visibility_ops.runs (command, started_at, ended_at, outcome, host, pid, version, source)
    select 'sync', at, at, case when n % 50 = 0 then null else 'complete' end, 'h', 1, 'v', 's'
    from (select n, timestamptz '2026-06-01' - n * interval '1 day' as at from generate_series(1, 400) n order by n desc) old`)
  await rows("update visibility_ops.runs set started_at = timestamptz '2025-01-01' where run_id = 1")
  await rows(`insert into visibility_ops.restatements
    select 'p', 'chats', date '2026-03-01', 1, 0, 0, timestamptz '2026-06-01' - n * interval '1 day', 1
    from generate_series(1, 200) n`)
  const pruned = await prune(7)
  expect(pruned).toMatchObject({ restatements: 110 })
  expect(await rows('select count(*)::int as kept from visibility_ops.restatements')).toEqual([{ kept: 90 }])
  // 180 days by default; those that are not known to be over stay, whatever their age.
  const [kept] = await rows<{ ended: number; open: number }>(
    `select count(*) filter (where outcome is not null)::int as ended, count(*) filter (where outcome is null)::int as open
     from visibility_ops.runs where started_at > timestamptz '2025-02-01'`,
  )
  expect(kept).toEqual({ ended: 177, open: 8 })
  expect(await prune(7)).toEqual({})
})

test('a little is removed in each run, so that years do not hold up one', async () => {
  await rows(`insert into visibility_ops.restatements
    select 'p', 'chats', date '2026-03-01', 1, 0, 0, timestamptz '2025-01-01', 1 from generate_series(1, 50)`)
  const left = async () =>
    (
      await rows<{ n: number }>(
        "select count(*)::int as n from visibility_ops.restatements where seen_at < '2025-06-01'",
      )
    )[0]!.n
  await prune(10, 0)
  expect(await left()).toBe(50)
  let now = 0
  const { warehouse } = setup.database
  await pruneLedger(warehouse, setup.config.retention, { now: NOW, monotonic: () => now++, limitMs: 3, batch: 10 })
  expect(await left()).toBeLessThan(50)
  expect(await left()).toBeGreaterThan(0)
  const stopped = { now: NOW, monotonic, limitMs: 60_000, signal: AbortSignal.abort() }
  expect(await pruneLedger(warehouse, setup.config.retention, stopped)).toEqual({})
  await prune()
  expect(await left()).toBe(0)
})

test('of the quarantine, what is resolved goes; what is open, and what was dismissed, stays', async () => {
  await rows(`insert into visibility_ops.quarantine (project_id, stream, reason, raw, fingerprint, run_id, resolved_at, dismissed_at)
    values ('p', 'chats', 'r', '{}', 'open', 1, null, null),
      ('p', 'chats', 'r', '{}', 'resolved long ago', 1, '2026-01-01', null),
      ('p', 'chats', 'r', '{}', 'resolved lately', 1, '2026-05-01', null),
      ('p', 'chats', 'r', '{}', 'dismissed long ago', 1, '2026-01-01', '2026-01-01')`)
  expect(await prune()).toEqual({ quarantine: 1 })
  const kept = await rows<{ fingerprint: string }>('select fingerprint from visibility_ops.quarantine order by 1')
  expect(kept.map(({ fingerprint }) => fingerprint)).toEqual(['dismissed long ago', 'open', 'resolved lately'])
})

test('of creations, what is needed to know that something exists stays', async () => {
  await rows(`insert into visibility.prompts (project_id, prompt_id, text, country_code) values
    ('p', 'with-country', 't', 'DE'), ('p', 'without-country', 't', null)`)
  await rows(`insert into visibility_ops.creations (project_id, kind, identity, request, state, id, sent_at, settled_at)
    select 'p', kind, identity, '{}', state, id, coalesce(settled_at, now()), settled_at from (values
      ('prompt', 'a', 'created', 'with-country', timestamptz '2025-01-01'),
      ('prompt', 'b', 'created', 'without-country', timestamptz '2025-01-01'),
      ('prompt', 'c', 'failed', null, timestamptz '2025-01-01'),
      ('prompt', 'd', 'sent', null, null),
      ('prompt', 'e', 'created', 'with-country', timestamptz '2026-05-01'),
      ('topic', 'f', 'existing', null, timestamptz '2025-01-01')) made (kind, identity, state, id, settled_at)`)
  expect(await prune()).toEqual({ creations: 3 })
  const kept = await rows<{ identity: string }>('select identity from visibility_ops.creations order by 1')
  expect(kept.map(({ identity }) => identity)).toEqual(['b', 'd', 'e'])
})

test('of the queue, windows that were given up and results that nobody took go; those of a run that goes on stay', async () => {
  const [open] = await rows<{ run_id: number }>(
    `insert into visibility_ops.runs (command, host, pid, version, source) values ('sync', 'h', 1, 'v', 's') returning run_id`,
  )
  await rows(`insert into visibility_ops.dead_windows (run_id, project_id, stream, reason, failed_at)
    values (1, 'p', 'chats', 'r', '2026-01-01'), (1, 'p', 'chats', 'r', '2026-05-31')`)
  await rows(`insert into visibility_ops.run_windows (window_id, run_id, queue, project_id, stream, priority, request, queued_at)
    values (gen_random_uuid(), 1, 'q', 'p', 'chats', 0, '{}', '2026-01-01'),
      (gen_random_uuid(), ${open!.run_id}, 'q', 'p', 'chats', 0, '{}', '2026-01-01')`)
  expect(await prune()).toEqual({ dead_windows: 1, run_windows: 1 })
  expect(await rows('select run_id from visibility_ops.run_windows')).toEqual([open])
  await rows('truncate visibility_ops.run_windows, visibility_ops.dead_windows')
  await rows('delete from visibility_ops.runs where outcome is null')
})

test('a sync prunes when it ends, and status shows how large the ledger is', async () => {
  await rows(`insert into visibility_ops.restatements
    select 'p', 'chats', date '2026-03-01', 1, 0, 0, timestamptz '2020-01-01', 1 from generate_series(1, 20)`)
  const env = { ...setup.env, LOG_LEVEL: 'info' }
  const synced = await runCli(['sync', '--stream', 'chats', '--json'], { env, config: setup.fileConfig })
  expect(synced.code).toBe(0)
  expect(synced.stderr).toMatch(/"restatements":\d+.*"ledger pruned"/)
  expect(await rows("select from visibility_ops.restatements where seen_at < '2021-01-01'")).toEqual([])
  const status = await runCli(['status', '--json'], { env, config: setup.fileConfig })
  const { ledger } = status.json()
  expect(ledger.bytes).toBe(ledger.tables.reduce((sum: number, table: { bytes: number }) => sum + table.bytes, 0))
  expect(ledger.tables.map(({ name }: { name: string }) => name)).toEqual(
    expect.arrayContaining(['runs', 'coverage', 'restatements']),
  )
  expect((await runCli(['status'], { env, config: setup.fileConfig })).stdout).toMatch(
    /Ledger\n {2}[\d.]+ [kM]B: \w+ [\d.]+ [kM]B/,
  )
})
