import { describe, expect, test } from '@jest/globals'
import { neighboursOf } from '../src/ledger/runs.ts'
import { byStream, emptyReport, type StreamReport } from '../src/sync/run/report.ts'
import { analyzeChanged } from '../src/warehouse/schema/summaries.ts'
import { Cache } from '../src/web/cache.ts'
import { readLastRuns } from '../src/web/run-summaries.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { setUp } from './support/setup.ts'

async function saveRun(
  { rows }: TestDatabase,
  summary: unknown,
  { command = 'sync', outcome = 'complete' as string | null } = {},
) {
  const [run] = await rows<{ run_id: number }>(
    `insert into visibility_ops.runs (command, host, pid, version, source, outcome, summary)
     values ($1, '', 1, '', '', $2, $3) returning run_id`,
    [command, outcome, JSON.stringify(summary)],
  )
  return run!.run_id
}

test('a run is linked to the runs before and after it that are left', async () => {
  const database = await createDatabase('migrated')
  const ids: number[] = []
  for (let run = 0; run < 5; run++) ids.push(await saveRun(database, []))
  await database.rows('delete from visibility_ops.runs where run_id = any($1)', [[ids[1], ids[3]]])
  const of = (id: number) => neighboursOf(database.warehouse, id)
  expect(await of(ids[0]!)).toEqual({ previous: null, next: ids[2] })
  expect(await of(ids[2]!)).toEqual({ previous: ids[0], next: ids[4] })
  expect(await of(ids[4]!)).toEqual({ previous: ids[2], next: null })
})

describe('the summaries of the last runs', () => {
  const read = (database: TestDatabase, limit = 10) => readLastRuns(database.warehouse, limit, new Cache(() => 0))
  const summaryOf = async (summary: unknown) => {
    const database = await createDatabase('migrated')
    await saveRun(database, summary)
    return (await read(database))[0]!.summary as StreamReport[]
  }
  const report = (at: number, changes: Partial<StreamReport> = {}): StreamReport => ({
    ...emptyReport(`p${at % 100}`, `s${at % 5}`),
    ...{ rows_read: at, inserted: 2 * at, ...changes },
  })
  const failed = [{ range: '2026-03-01', error: 'no', code: 'error' as const }]
  const many = (count: number, of: (at: number) => StreamReport) => Array.from({ length: count }, (_, at) => of(at))

  test('are shortened without changing a sum, and what failed keeps its project', async () => {
    const summary = many(500, (at) => report(at, at % 6 === 0 ? { failed } : {}))
    const short = await summaryOf(summary)
    const named = short.filter(({ project_id }) => project_id !== '')
    expect([named.length, short.length]).toEqual([50, 55])
    expect(named.every((entry) => entry.failed.length > 0)).toBe(true)
    const totals = (list: StreamReport[]) =>
      byStream(list)
        .map(({ stream, rows_read, inserted, failed: all }) => [stream, rows_read, inserted, all.length])
        .sort()
    expect(totals(short)).toEqual(totals(summary))
  })

  test.each<[string, Partial<StreamReport>]>([
    ['failed', { failed }],
    ['held', { held: [{ from: '2026-03-01', to: '2026-03-01', present: 2, vanishing: 2 }] as never }],
    ['did not add up', { unreconciled: ['2026-03-01'] as never }],
    ['was quarantined', { quarantined: 1 }],
  ])('keep the project of what %s', async (_, trouble) => {
    const short = await summaryOf(many(60, (at) => report(at, at === 33 ? trouble : {})))
    expect(short.filter(({ project_id }) => project_id !== '').map(({ project_id }) => project_id)).toEqual(['p33'])
  })

  test('of up to 50 entries, or of none, are as they were', async () => {
    const summary = many(50, (at) => report(at))
    expect(await summaryOf(summary)).toEqual(summary)
    expect(await summaryOf(null)).toBeNull()
  })

  test('of audits have what differs', async () => {
    const audit = Array.from({ length: 80 }, (_, at) => ({
      project_id: 'p',
      stream: `s${at}`,
      differing: at < 70 ? ['d'] : [],
    }))
    expect(await summaryOf(audit)).toEqual(audit.slice(0, 50))
  })

  test('are those of the newest runs that created nothing, and a run in progress has none', async () => {
    const database = await createDatabase('migrated')
    const [, second] = [await saveRun(database, [1]), await saveRun(database, [2])]
    await saveRun(database, [3], { command: 'create prompt' })
    const running = await saveRun(database, [4], { outcome: null })
    expect((await read(database, 2)).map(({ run_id, summary }) => [run_id, summary])).toEqual([
      [running, null],
      [second, [2]],
    ])
  })
})

describe('statistics for the planner', () => {
  const knownRows = async ({ rows }: TestDatabase, table: string) =>
    (
      await rows<{ n: number }>('select reltuples as n from pg_class where oid = $1::regclass', [`visibility.${table}`])
    )[0]!.n

  test('are made of tables of which a run changed many rows', async () => {
    const setup = await setUp({ world: { projects: 1, prompts: 12, models: 2, brands: 3 } })
    await setup.sync()
    expect(await knownRows(setup.database, 'by_prompt')).toBeGreaterThan(1000)
    expect(await knownRows(setup.database, 'brand_daily')).toBe(-1)
  })

  test('are made from a thousand changes of any kind on, which count together for all projects', async () => {
    const database = await createDatabase('reports')
    const change = (stream: string, inserted: number, updated: number, deleted: number) => ({
      stream,
      inserted,
      updated,
      deleted,
    })
    const changes = [
      change('brand_daily', 400, 300, 100),
      change('brand_daily', 100, 50, 50),
      change('by_model', 999, 0, 0),
      change('unknown', 5000, 0, 0),
    ]
    await analyzeChanged(database.warehouse, changes, (stream) => (stream === 'unknown' ? undefined : stream))
    expect([await knownRows(database, 'brand_daily'), await knownRows(database, 'by_model')]).toEqual([0, -1])
  })

  test('are made where a tenth of a table changed, of the columns that have an index', async () => {
    const database = await createDatabase('reports')
    const { warehouse, rows } = database
    const insert = (from: number, to: number) =>
      rows(
        `insert into visibility.brand_daily (project_id, date, brand_id)
         select 'or_1', date '2026-01-01' - n, 'kw_1' from generate_series($1::int, $2) n`,
        [from, to],
      )
    const analyze = (inserted: number) =>
      analyzeChanged(warehouse, [{ stream: 'brand_daily', inserted, updated: 0, deleted: 0 }], (stream) => stream)
    const known = () => knownRows(database, 'brand_daily')
    await insert(1, 20_000)
    await analyze(20_000)
    expect(await known()).toBe(20_000)
    await insert(20_001, 21_999)
    await analyze(1999)
    expect(await known()).toBe(20_000)
    await insert(22_000, 22_000)
    await analyze(2000)
    expect(await known()).toBe(22_000)
    const columns = await rows("select attname as name from pg_stats where tablename = 'brand_daily' order by 1")
    expect(columns.map(({ name }) => name)).toEqual(['brand_id', 'date', 'project_id'])
  })
})
