import { beforeAll, expect, test } from '@jest/globals'
import { CompiledQuery } from 'kysely'
import { DEFAULT_REPORTS } from '../src/core/config/schema.ts'
import { quote } from '../src/core/identifier.ts'
import { openDesk, type Tool } from '../src/mcp/question.ts'
import { compareBrands, getVisibility } from '../src/mcp/tools/brands.ts'
import { findChanges, findGaps } from '../src/mcp/tools/changes.ts'
import { checkData, explainDay, listProjects } from '../src/mcp/tools/data.ts'
import type { Warehouse } from '../src/warehouse/connect.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { html } from '../src/web/html.ts'
import { type PagePath, readFilters } from '../src/web/insights/filters.ts'
import { readAll, readPage, SECTIONS } from '../src/web/insights/read-page.ts'
import { insightsPage } from '../src/web/pages/insights-page.ts'
import { openWarehouse } from './support/postgres.ts'
import { type Setup, setUp } from './support/setup.ts'

/* Pages, files and tools over a schema and things whose names are full of what means something in SQL. */

const SCHEMA = 'Odd "Schema" $1'
const HOSTILE = `O'Neil "x" \\' $1 $$ {project} -- /* ; %s`
const range = { from: '2026-03-02', to: '2026-03-29' }
const today = '2026-03-31'
const SOURCES = [
  { name: 'domains_daily', of: 'domains', dimensions: ['date'] },
  { name: 'domains_by_prompt', of: 'domains', dimensions: ['date', 'prompt_id', 'model_id'] },
  { name: 'urls_daily', of: 'urls', dimensions: ['date'] },
]
let setup: Setup
let warehouse: Warehouse
let own: string
let rival: string

beforeAll(async () => {
  setup = await setUp({
    world: { projects: 1, prompts: 6, models: 2, brands: 5 },
    extras: 'all',
    emptyDatabase: true,
    config: { start_date: '2026-02-02', end_date: today, extras: 'auto', reports: [...DEFAULT_REPORTS, ...SOURCES] },
  })
  warehouse = await openWarehouse(setup.database.url, { schema: SCHEMA, connections: 6 })
  setup.services.warehouse = warehouse
  await migrate(warehouse, setup.config)
  expect((await setup.sync()).outcome).toBe('complete')
  const tables = await setup.database.rows<{ name: string; columns: string[] }>(
    `select c.relname as name, array_agg(a.attname::text) as columns from pg_class c join pg_attribute a on a.attrelid = c.oid
     where c.relnamespace = to_regnamespace(quote_ident($1)) and c.relkind in ('r', 'p') and not c.relispartition
       and c.relname <> 'brand_history' and (
         a.attname in ('brand_id', 'topic_id', 'prompt_id', 'model_id', 'model_channel_id', 'domain', 'chat_id')
         or (c.relname, a.attname) in (('brands', 'name'), ('topics', 'name'), ('model_channels', 'name'), ('prompts', 'text')))
     group by 1`,
    [SCHEMA],
  )
  expect(tables.length).toBeGreaterThan(10)
  for (const { name, columns } of tables)
    await setup.database.rows(
      `update ${quote(SCHEMA, name)} set ${columns.map((column) => `${column} = ${column} || $1`).join()}`,
      [HOSTILE],
    )
  // The weakest, so that there are gaps.
  const byStrength = setup.service.world.projects[0]!.brands.toSorted((a, b) => a.strength - b.strength)
  ;[own, rival] = byStrength.map(({ id }) => id + HOSTILE) as [string, string]
  await setup.database.rows(`update ${quote(SCHEMA, 'brands')} set is_own = brand_id = $1`, [own])
  // What is made anew is summed anew.
  await setup.database.rows(`delete from ${quote(`${SCHEMA}_ops`, 'views')}`)
  await migrate(warehouse, setup.config)
})

/** The first of the names or ids in a table. */
async function idIn(table: string, column: string): Promise<string> {
  const [row] = await setup.database.rows<{ id: string }>(`select min(${column}) as id from ${quote(SCHEMA, table)}`)
  expect(row!.id.endsWith(HOSTILE)).toBe(true)
  return row!.id
}

const subjects: [PagePath, () => Promise<Record<string, string>>][] = [
  ['/insights', async () => ({ brand: own, rival })],
  ['/insights', async () => ({ week: '2026-03-16', compare: 'none', grain: 'day' })],
  ['/insights/topic', async () => ({ topic: await idIn('topics', 'topic_id') })],
  ['/insights/model', async () => ({ model: await idIn('models', 'model_id') })],
  ['/insights/channel', async () => ({ channel: await idIn('model_channels', 'model_channel_id') })],
  ['/insights/prompt', async () => ({ prompt: await idIn('prompts', 'prompt_id') })],
  ['/insights/source', async () => ({ domain: await idIn('source_gaps', 'domain') })],
]

const request = (path: PagePath, query: Record<string, string>) => {
  const known = { projects: setup.projects, interest: { from: '2026-02-02', to: today }, today }
  return { reports: setup.config.reports, filters: readFilters({ ...range, ...query }, known, path) }
}

test.each(subjects)(
  '%s and its files show names as they are, and the SQL that is shown gives the same rows',
  async (path, subject) => {
    const asked = request(path, await subject())
    const found = await readPage(warehouse, asked)
    const page = insightsPage({ version: '', now: new Date(), projects: [], filters: asked.filters, found })
    expect(page).toContain(html`${HOSTILE}`.text)
    for (const section of SECTIONS[path]) {
      const { sql, rows, missing } = found.sections[section]
      expect([section, missing]).toEqual([section, missing && expect.stringContaining('Nothing is compared')])
      if (missing !== undefined) continue
      expect(sql).toContain(`from ${quote(SCHEMA)}.`)
      expect([
        section,
        await warehouse.db.executeQuery<object>(CompiledQuery.raw(sql)).then((result) => result.rows),
      ]).toEqual([section, rows])
      const { header, rows: cells } = await readAll(warehouse, asked, section)
      expect(cells.length).toBeGreaterThanOrEqual(rows.length)
      if (rows.length > 0) expect(header).toEqual(Object.keys(rows[0]!))
    }
    const shown = Object.values(found.sections).filter(({ rows }) => rows.length > 0)
    expect(shown.length).toBeGreaterThanOrEqual(SECTIONS[path].length / 2)
  },
)

test('a file without rows has the columns of one with rows', async () => {
  for (const [path, subject] of subjects.slice(2)) {
    const names = await subject()
    const nobody = Object.fromEntries(Object.keys(names).map((name) => [name, `nobody ${HOSTILE}`]))
    for (const section of SECTIONS[path]) {
      const whole = await readAll(warehouse, request(path, names), section)
      const empty = await readAll(warehouse, request(path, nobody), section)
      expect([section, empty.header, empty.rows]).toEqual([section, whole.header, []])
    }
  }
})

test('tools answer about such names, and their SQL runs as it is shown', async () => {
  const topic = await idIn('topics', 'name')
  const channel = await idIn('model_channels', 'name')
  const prompt = await idIn('prompts', 'text')
  const calls: [Tool, object][] = [
    [listProjects, {}],
    [checkData, {}],
    [explainDay, { day: '2026-03-20' }],
    ...['none', 'week', 'topic', 'channel', 'prompt', 'tag'].map((by): [Tool, object] => [
      getVisibility,
      { by, brands: [own, rival] },
    ]),
    ...[{ topic }, { channel }, { prompt }].map((one): [Tool, object] => [
      getVisibility,
      { by: 'none', brands: ['all'], ...one },
    ]),
    [compareBrands, { by: 'none' }],
    [compareBrands, { by: 'topic', rival }],
    [findChanges, { direction: 'both', brand: own, compare: 'before' }],
    ...['prompts', 'sources', 'pages'].map((kind): [Tool, object] => [findGaps, { kind }]),
  ]
  for (const [tool, asked] of calls) {
    const desk = await openDesk(warehouse, setup.config.reports, today)
    const { rows, total = rows.length } = await tool.answer(desk, { limit: 50, offset: 0, include_sql: true, ...asked })
    const results = []
    for (const statement of desk.statements) results.push(await setup.database.rows(statement))
    expect([tool.name, asked, tool === findChanges || total > 0]).toEqual([tool.name, asked, true])
    // The last statement is that of the rows, but for these, which read more.
    if (![explainDay, checkData, listProjects].includes(tool)) expect(results.at(-1)!.length).toBe(rows.length)
  }
})
