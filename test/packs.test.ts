import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { parse } from 'yaml'
import { readQuestions } from '../src/cli/metabase/questions.ts'
import { PACK_FOLDERS, packFiles } from '../src/cli/packs/pack-files.ts'
import { RULES } from '../src/cli/packs/prometheus.ts'
import { relations } from '../src/cli/packs/relations.ts'
import { DEFAULT_REPORTS } from '../src/core/config/schema.ts'
import { createMetrics } from '../src/observe/metrics.ts'
import { type Setup, setUp } from './support/setup.ts'

/* What is made from the catalogue for other tools, and the questions: current, and true of a real warehouse. */

const root = fileURLToPath(new URL('..', import.meta.url))
const files = packFiles()

test('the packs are what the catalogue makes, and their folders hold nothing else', () => {
  const stale = Object.entries(files).filter(([path, text]) => readFileSync(join(root, path), 'utf8') !== text)
  expect(stale.map(([path]) => path)).toEqual([])
  const there = PACK_FOLDERS.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name).slice(root.length)),
  )
  expect(there.filter((path) => !(path in files))).toEqual([])
})

test('rules and dashboards name only metrics that there are', async () => {
  const text = await createMetrics(['brand_daily']).text({
    database: { up: true } as never,
    ledger: undefined,
    ledgerAgeMs: 0,
    budgets: new Map(),
    now: new Date(),
  })
  const known = new Set([...text.matchAll(/^# TYPE (\w+)/gm)].map((match) => match[1]))
  const named = [
    ...`${JSON.stringify(RULES)}${files['packs/grafana/operations.json']}`.matchAll(/visibility_sync_\w+/g),
  ].map(([name]) => name.replace(/_bucket$/, ''))
  expect(named.length).toBeGreaterThan(20)
  expect(named.filter((name) => !known.has(name))).toEqual([])
})

test('the recipe for Kestra is well formed and names the image of this version', () => {
  const recipe = parse(readFileSync(join(root, 'packs/orchestrators/kestra.yml'), 'utf8'))
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  expect(recipe.tasks[0].containerImage).toBe(`visibility-sync:${version}`)
})

describe('against a warehouse with several projects, own brands and names that repeat', () => {
  let setup: Setup
  beforeAll(async () => {
    setup = await setUp({
      world: { projects: 2, prompts: 6, models: 2, brands: 4 },
      config: { start_date: '2026-03-02', end_date: '2026-03-29', reports: DEFAULT_REPORTS },
    })
    const { projects } = setup.service.world
    // Two own brands in each project: Acme and Beta in the first, and in the second two that are both called Acme.
    const names = ['Acme', 'Beta', 'Acme', 'Acme']
    const brands = projects.flatMap((project) =>
      project.brands.slice(0, 2).map(({ id }) => [id, { own: true, name: names.shift() }]),
    )
    const tags = projects.flatMap(({ prompts }) => prompts.flatMap(({ tagIds }) => tagIds.map((id) => [id, 'Branded'])))
    Object.assign(setup.config, {
      labels: {
        brands: Object.fromEntries(brands),
        topics: {},
        tags: Object.fromEntries(tags.slice(0, -1)),
      },
    })
    expect((await setup.sync()).outcome).toBe('complete')
  })
  afterAll(() => setup.close())

  test('every column has the type that the catalogue says, in the order in which it says it', async () => {
    const found = await setup.database.rows<{ place: string; type: string }>(
      `select c.relname || '.' || a.attname as place, format_type(a.atttypid, null) as type
       from pg_attribute a join pg_class c on c.oid = a.attrelid
       where c.relnamespace = 'visibility'::regnamespace and c.relkind in ('r', 'p', 'v') and a.attnum > 0 and not a.attisdropped`,
    )
    const types = new Map(found.map(({ place, type }) => [place, type]))
    const wrong = relations().flatMap(({ name, columns }) =>
      columns
        .map((column) => `${name}.${column.name} ${column.type}`)
        .filter((text) => `${text.split(' ')[0]} ${types.get(text.split(' ')[0]!)}` !== text)
        .map((text) => `${text}, in Postgres ${types.get(text.split(' ')[0]!)}`),
    )
    expect(wrong).toEqual([])
  })

  test('keys are unique, columns that are required are never null, and the rules of the contract hold', async () => {
    const contract = parse(files['contract/visibility.odcs.yaml']!)
    const queries = [
      ...relations().flatMap(({ name, columns }) =>
        columns
          .filter(({ required }) => required)
          .map((column) => `select count(*) from visibility.${name} where ${column.name} is null`),
      ),
      ...contract.schema.flatMap((object: { name: string; quality: { query: string }[] }) =>
        object.quality.map(({ query }) =>
          query
            .replaceAll('${table}', `visibility.${object.name}`)
            .replaceAll('from freshness', 'from visibility.freshness'),
        ),
      ),
    ]
    expect(queries.length).toBeGreaterThan(150)
    const counts = await setup.database.rows<{ query: string; count: string }>(
      queries.map((query, index) => `select ${index} as query, (${query})::int as count`).join(' union all '),
    )
    expect(counts.filter(({ count }) => Number(count) !== 0).map(({ query }) => queries[Number(query)])).toEqual([])
  })

  test('each plotted point is one row: no chart adds up projects, brands, weeks or tags', async () => {
    const drawn = readQuestions('visibility').filter(({ dimensions }) => dimensions.length > 0)
    expect(drawn.map(({ name }) => Number.parseInt(name, 10))).toEqual([1, 2, 3, 7, 10, 11])
    for (const { name, sql, dimensions, metrics, view } of drawn) {
      const rows = await setup.database.rows<Record<string, unknown>>(sql)
      const points = rows.map((row) => JSON.stringify(dimensions.map((column) => row[column])))
      expect({ name, doubled: points.length - new Set(points).size }).toEqual({ name, doubled: 0 })
      // Both projects, and in each of them both own brands.
      expect({
        name,
        series: new Set(rows.map(({ project, series }) => `${project} ${String(series).split(',')[0]}`)).size,
      }).toEqual({ name, series: view === 'share_of_voice_daily' ? 8 : 4 })
      const time = dimensions[0] === 'date' ? 'date' : 'week'
      const own = view === 'share_of_voice_daily' ? 'true' : 'is_own'
      const values = await setup.database.rows<Record<string, unknown>>(
        `select ${time}, project, brand, ${metrics[0]} as value from visibility.${view} where ${own}`,
      )
      const known = new Set(values.map((row) => JSON.stringify([row[time], row.project, row.brand, row.value])))
      const made = rows.map((row) => JSON.stringify([row[time], row.project, row.brand, row[metrics[0]!]]))
      expect(made.filter((point) => !known.has(point))).toEqual([])
      expect(made.length).toBe(dimensions[0] === time ? values.length : values.length / 4)
    }
  })

  test('a chart that would be cut at 2,000 rows keeps the newest days, whole', async () => {
    const { sql } = readQuestions('visibility').find(({ name }) => name.startsWith('2.'))!
    const rows = await setup.database.rows<{ date: string }>(sql.replace('<= 2000', '<= 100'))
    expect([rows.length, rows.at(-1)!.date, rows[0]!.date]).toEqual([96, '2026-03-18', '2026-03-29'])
    expect((await setup.database.rows(sql.replace('<= 2000', '<= 3'))).length).toBe(8)
  })

  test('every statement of the dashboards for Grafana runs, and gives one value for each time and series', async () => {
    const { panels, templating } = JSON.parse(files['packs/grafana/visibility.json']!)
    const [projects, brands] = await Promise.all(
      ['project', 'brand'].map(async (name) => {
        const rows = await setup.database.rows<{ name: string }>(
          `select distinct ${name} as name from visibility.visibility_weekly`,
        )
        return rows.map((row) => `'${row.name.replaceAll("'", "''")}'`).join(',')
      }),
    )
    const filled = (sql: string) =>
      sql
        .replaceAll('${schema}', 'visibility')
        .replaceAll('${project:sqlstring}', projects!)
        .replaceAll('${brand:sqlstring}', brands!)
        .replaceAll(/\$__timeFilter\(([^)]+)\)/g, "$1 between '2026-01-01' and '2026-12-31'")
    for (const { query } of templating.list.filter(
      (variable: any) => typeof variable.query === 'string' && variable.type === 'query',
    ))
      expect((await setup.database.rows(filled(query))).length).toBeGreaterThan(1)
    for (const { title, targets } of panels) {
      const rows = await setup.database.rows<{ time?: Date; metric?: string }>(filled(targets[0].rawSql))
      expect({ title, rows: rows.length > 0 }).toEqual({ title, rows: true })
      if (targets[0].format !== 'time_series') continue
      const points = rows.map(({ time, metric }) => `${time?.toISOString()} ${metric}`)
      expect({ title, doubled: points.length - new Set(points).size }).toEqual({ title, doubled: 0 })
    }
  })
})
