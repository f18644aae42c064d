import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import { parse } from 'yaml'
import { metabase } from '../src/cli/commands/metabase.ts'
import { pack } from '../src/cli/commands/pack.ts'
import { DEFAULT_REPORTS } from '../src/core/config/schema.ts'
import { messageOf, UsageError } from '../src/core/errors.ts'
import { createMetrics } from '../src/observe/metrics.ts'
import { readQuestions } from '../src/packs/metabase/cards.ts'
import { packFiles, type Tool } from '../src/packs/pack-files.ts'
import { relationsOf } from '../src/packs/relations.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { unusedRelations } from '../src/warehouse/schema/views.ts'
import { runCli, temporaryFolder } from './support/cli.ts'
import { type MetabaseServer, startMetabase } from './support/metabase-server.ts'
import { createDatabase, openWarehouse, type TestDatabase } from './support/postgres.ts'
import { listening } from './support/proxy.ts'
import { configOf, FOUR_GRAINS, type Setup, setUp } from './support/setup.ts'

describe('files for other tools', () => {
  /* The files for other tools, and the questions: they fit the configuration, and every statement in them runs. */

  const tools: Tool[] = ['dbt', 'superset', 'grafana', 'prometheus', 'contract']
  const usual = configOf({ reports: DEFAULT_REPORTS })
  const folder = temporaryFolder()

  /** The statements of the contract, of Grafana and of Superset's filters, and the staging models of dbt. */
  function statementsOf(config: ReturnType<typeof configOf>, projects: string[] = [], names = "'any'"): string[] {
    const schema = config.warehouse.schema
    const contract = parse(packFiles('contract', config)['visibility.odcs.yaml']!)
    const { panels, templating } = JSON.parse(packFiles('grafana', config, projects)['visibility.json']!)
    const choices = packFiles('superset', config, projects)['datasets/AI_visibility/brands_of_projects.yaml']!
    const dbt = Object.entries(packFiles('dbt', config)).filter(([path]) => path.startsWith('models/staging/stg_'))
    return [
      ...contract.schema.flatMap((object: { name: string; quality: { query: string }[] }) =>
        object.quality.map(({ query }) => query.replaceAll('${table}', `"${schema}"."${object.name}"`)),
      ),
      ...[
        ...templating.list.flatMap(({ query, type }: any) => (type === 'query' ? query : [])),
        ...panels.map(({ targets }: any) => targets[0].rawSql),
      ].map((sql: string) =>
        sql
          .replaceAll(/\$\{(project|brand):sqlstring\}/g, names)
          .replaceAll(/\$__timeFilter\(([^)]+)\)/g, "$1 between '2026-01-01' and '2026-12-31'"),
      ),
      parse(choices).sql,
      ...dbt.map(([, sql]) =>
        sql
          .replaceAll(/\{\{ source\('visibility', '(\w+)'\) \}\}/g, `"${schema}"."$1"`)
          .replaceAll('{{ visibility_sync.in_visibility_projects() }}', 'true'),
      ),
    ]
  }

  /** Columns whose type or name differs from the one in Postgres. */
  async function wrongColumns(database: TestDatabase, config: ReturnType<typeof configOf>): Promise<string[]> {
    const found = await database.rows<{ place: string; type: string; required: boolean }>(
      `select c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, null) as place
     from pg_attribute a join pg_class c on c.oid = a.attrelid
     where c.relnamespace = '"${config.warehouse.schema}"'::regnamespace and a.attnum > 0 and not a.attisdropped`,
    )
    const there = new Set(found.map(({ place }) => place))
    return relationsOf(config, [])
      .flatMap(({ name, columns }) => columns.map((column) => `${name}.${column.name} ${column.type}`))
      .filter((place) => !there.has(place))
  }

  test('the contract finds a halved count, a deleted day, and a ratio that differs from its parts', async () => {
    const setup = await setUp({
      world: { projects: 1, prompts: 4, models: 2, brands: 3 },
      faults: { rate_limit: null },
    })
    const { database, config } = setup
    const contract = parse(packFiles('contract', config)['visibility.odcs.yaml']!)
    const broken = async () => {
      const found: string[] = []
      for (const { name, quality } of contract.schema)
        for (const rule of quality as { name: string; query: string; severity: string }[]) {
          const [row] = await database.rows<{ count: string }>(
            rule.query.replaceAll('${table}', `visibility."${name}"`),
          )
          if (rule.severity === 'error' && Number(row!.count) > 0) found.push(`${name}: ${rule.name}`)
        }
      return found
    }
    expect((await setup.sync()).outcome).toBe('complete')
    expect(await broken()).toEqual([])
    const fine = FOUR_GRAINS.at(-1)!.name
    for (const [change, day, rule] of [
      ['visibility_count = visibility_count / 2, visibility = visibility / 2', '2026-03-10', `${fine}: adds up`],
      ['visibility = 0.987', '2026-03-11', `${fine}: ratio of parts`],
    ]) {
      await database.rows(`update visibility.${fine} set ${change} where date = '${day}' and visibility_count > 0`)
      expect(await broken()).toContain(rule)
    }
    await database.rows(`delete from visibility.${fine} where date = '2026-03-12'`)
    expect(await broken()).toContain(`${fine}: rows of days`)
  })

  describe('a configuration of its own', () => {
    const column = (name: string, type: string) => ({ name, path: name, type })
    // Names that SQL reserves, other reports than the usual ones, and custom streams.
    const own = configOf({
      warehouse: { schema: 'order' },
      streams: ['prompts'],
      serve: { port: 9000, max_staleness: '3d' },
      reports: [
        { name: 'user', dimensions: ['date'] },
        { name: 'pages', of: 'urls', dimensions: ['date', 'model_id'] },
      ],
      custom_streams: [
        {
          ...{ name: 'cited', path: 'reports/domains', method: 'POST', by: 'day', dimensions: ['date'] },
          ...{
            key: ['date', 'group'],
            columns: [column('date', 'date'), column('group', 'text'), column('end', 'number')],
          },
        },
      ],
    })
    const names = relationsOf(own, unusedRelations(own)).map(({ name }) => name)

    test('every table and view is the one in Postgres, and every statement runs', async () => {
      const database = await createDatabase('empty')
      await migrate(await openWarehouse(database.url, { schema: 'order' }), own)
      expect(await wrongColumns(database, own)).toEqual([])
      expect(names).toEqual(expect.arrayContaining(['user', 'pages', 'cited', 'visibility_weekly']))
      expect(names).not.toContain('topics_weekly')
      for (const sql of statementsOf(own, ['or_1'])) await database.rows(sql)
    })

    test('dashboards have no chart of a view that is not there, and settings are filled in', () => {
      const files = Object.fromEntries(tools.map((tool) => [tool, packFiles(tool, own)])) as Record<Tool, any>
      const titles = JSON.parse(files.grafana['visibility.json']).panels.map(({ title }: any) => title)
      expect(titles).toEqual(['Visibility by week', 'Share of voice by week', 'Answers by day', 'Freshness'])
      expect(parse(files.dbt['dbt_project.yml']).vars).toMatchObject({ visibility_schema: 'order' })
      expect(files.dbt['models/marts/brand_days.sql']).toContain("ref('stg_user')")
      expect(files.prometheus['alerts.yml']).toContain('> 259200')
      for (const text of Object.values(files).flatMap((pack) => Object.values(pack as object)))
        expect(text).not.toMatch(/<<\w+>>/)
    })

    test('no configured text becomes code, whatever it holds', () => {
      const parts = [
        'a\nselect 1; --\r\u2028b\u0085c\u0000d\u007f\ufffe {{ run_query("drop table x") }}{% do exit() %}{# {{{%',
        '"]\n      - targets: ["evil:1',
        `'; drop table x; -- " \\ $$ \${x} <<schema>> %s & <b>`,
      ]
      const HOSTILE = [parts.join(' '), '- yes: [no, *a, &b, !!c] # d']
      const of = (about: string, host: string) => {
        const stream = own.custom_streams[0]!
        const columns = stream.columns.map((one) => ({ ...one, about }))
        const config = { ...own, serve: { ...own.serve, host }, custom_streams: [{ ...stream, about, columns }] }
        return Object.fromEntries(tools.map((tool) => [tool, packFiles(tool, config)])) as Record<Tool, any>
      }
      const plain = of('about', '::1')
      expect(parse(plain.prometheus['prometheus.yml']).scrape_configs[0].static_configs[0].targets).toEqual([
        '[::1]:9000',
      ])
      for (const text of HOSTILE) {
        const files = of(text, text)
        expect(parse(files.prometheus['prometheus.yml'])).toEqual({
          ...parse(plain.prometheus['prometheus.yml']),
          scrape_configs: [{ job_name: 'visibility-sync', static_configs: [{ targets: [`${text}:9000`] }] }],
        })
        const contract = parse(files.contract['visibility.odcs.yaml'])
        const cited = contract.schema.find(({ name }: { name: string }) => name === 'cited')
        expect(cited.properties[2]).toMatchObject({ name: 'group', description: text })
        // dbt renders the text back.
        const rendered = (description: string) => description.replaceAll(/\{\{ '(\{[{%#])' \}\}/g, '$1')
        const unescaped = (description: string) => description.replaceAll(/\{\{ '\{[{%#]' \}\}/g, '')
        for (const [path, list] of [
          ['models/sources.yml', 'sources'],
          ['models/staging/staging.yml', 'models'],
        ] as const) {
          const document = parse(files.dbt[path])
          const found = (list === 'sources' ? document.sources[0].tables : document.models).find(
            ({ name }: { name: string }) => /^(stg_)?cited$/.test(name),
          )
          expect(found.columns[1].name).toBe('date')
          expect([found.description, found.columns[1].description].map(rendered)).toEqual([text, text])
          expect(unescaped(found.description)).not.toMatch(/\{[{%#]/)
        }
        const [comment, ...statement] = files.dbt['models/staging/stg_cited.sql'].split('\n')
        expect(statement).toEqual(plain.dbt['models/staging/stg_cited.sql'].split('\n').slice(1))
        expect(unescaped(comment)).toMatch(/^-- (?!.*\{[{%#])[^\p{Cc}\u2028\u2029]*$/u)
        // Nothing else has any of it.
        for (const tool of ['grafana', 'superset'] as const) expect(files[tool]).toEqual(plain[tool])
        for (const [path, content] of Object.entries(files.dbt))
          if (!/sources.yml|staging.yml|stg_cited.sql/.test(path)) expect(content).toBe(plain.dbt[path])
        for (const setting of [
          { warehouse: { schema: text } },
          { reports: [{ name: text, dimensions: ['date'] }] },
          { custom_streams: [{ ...own.custom_streams[0]!, name: text }] },
          { custom_streams: [{ ...own.custom_streams[0]!, path: text }] },
          { custom_streams: [{ ...own.custom_streams[0]!, columns: [{ ...column('date', 'date'), name: text }] }] },
          { custom_streams: [{ ...own.custom_streams[0]!, columns: [{ ...column('date', 'date'), path: text }] }] },
          { serve: { max_staleness: text } },
        ])
          expect(() => configOf(setting)).toThrow(UsageError)
        const projects = packFiles('dbt', usual, [text])['dbt_project.yml']!
        expect(parse(projects).vars.visibility_projects).toEqual([text])
        const alerts = packFiles('prometheus', usual, [text])['alerts.yml']!
        expect(parse(alerts).groups[0].rules.length).toBe(
          parse(packFiles('prometheus', usual)['alerts.yml']!).groups[0].rules.length,
        )
      }
    })

    test('named projects limit dashboards, models and alerts; the contract has no projects', () => {
      const of = (tool: Tool, path: string) => packFiles(tool, usual, ['or_1', 'or.2'])[path]!
      expect(of('grafana', 'visibility.json')).toContain("project_id in ('or_1', 'or.2')")
      expect(parse(of('dbt', 'dbt_project.yml')).vars.visibility_projects).toEqual(['or_1', 'or.2'])
      expect(of('prometheus', 'alerts.yml')).toContain('visibility_sync_held_dates{project=~"or_1|or\\\\.2"}')
      expect(() => of('contract', '')).toThrow('--project')
    })
  })

  describe('the command', () => {
    const run = async (tool: Tool, out: string, options: object = {}, config = usual) => {
      let printed: any
      const print = (document: unknown) => (printed = document)
      // Nothing listens there. Without an address, the command would start the database of this folder if it has one.
      const warehouse = { ...config.warehouse, url: 'postgres://nobody@127.0.0.1:1/none' }
      await pack({ config: { ...config, warehouse }, print, log: { warn() {} } } as never, { out, ...options }, tool)
      return printed
    }

    test('needs neither a service nor a database, and prints the written files and the next step', async () => {
      const env = {
        VISIBILITY_API_URL: 'http://127.0.0.1:9/v1',
        VISIBILITY_API_KEY: 'key',
        VISIBILITY_PROJECTS: 'all',
        DATABASE_URL: 'postgres://nobody@127.0.0.1:9/none',
      }
      const out = join(folder.path, 'real')
      const first = await runCli(['pack', 'contract', '--out', out], { env, config: {} })
      expect([first.code, first.stderr]).toEqual([0, expect.stringContaining('what the warehouse has is not known')])
      expect(first.stdout).toContain(`Wrote 1 file to ${out}:\n  visibility.odcs.yaml\nNext: fill in host and database`)
      expect((await runCli(['pack', 'tableau', '--out', out], { env, config: {} })).code).toBe(2)
    })

    test('updates its own files, and overwrites nothing else without --force', async () => {
      const out = join(folder.path, 'dbt')
      const path = (name: string) => join(out, name)
      expect(await run('dbt', out)).toMatchObject({
        tool: 'dbt',
        folder: out,
        removed: [],
        next: expect.stringContaining(out),
      })
      // A report that is no longer configured takes its files with it; a file of somebody else stays.
      writeFileSync(path('mine.txt'), 'mine')
      const few = configOf({ reports: DEFAULT_REPORTS.slice(0, 1) })
      expect((await run('dbt', out, {}, few)).removed).toContain('models/staging/stg_brand_daily_by_tag.sql')
      expect([existsSync(path('models/staging/stg_brand_daily_by_tag.sql')), existsSync(path('mine.txt'))]).toEqual([
        false,
        true,
      ])
      writeFileSync(path('dbt_project.yml'), 'changed')
      await expect(run('dbt', out)).rejects.toThrow('dbt_project.yml changed')
      expect(readFileSync(path('dbt_project.yml'), 'utf8')).toBe('changed')
      await run('dbt', out, { force: true })
      expect(readFileSync(path('dbt_project.yml'), 'utf8')).toContain('visibility_schema')
      await expect(run('grafana', folder.path)).rejects.toThrow('is not empty')
      const config = configOf({ projects: [{ id: 'or_1' }] })
      await expect(run('grafana', out, { project: ['or_2'] }, config)).rejects.toThrow('configured are: or_1')
    })
  })

  test('rules and dashboards name only metrics that exist', async () => {
    const text = await createMetrics(['brand_daily']).text({
      database: { up: true } as never,
      ledger: undefined,
      ledgerAgeMs: 0,
      budgets: new Map(),
      now: new Date(),
    })
    const known = new Set([...text.matchAll(/^# TYPE (\w+)/gm)].map((match) => match[1]))
    const files = `${packFiles('prometheus', usual)['alerts.yml']}${packFiles('grafana', usual)['operations.json']}`
    const named = [...files.matchAll(/visibility_sync_\w+/g)].map(([name]) => name.replace(/_bucket$/, ''))
    expect(named.length).toBeGreaterThan(20)
    expect(named.filter((name) => !known.has(name))).toEqual([])
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
      const tags = projects.flatMap(({ prompts }) =>
        prompts.flatMap(({ tagIds }) => tagIds.map((id) => [id, 'Branded'])),
      )
      Object.assign(setup.config, {
        labels: {
          brands: Object.fromEntries(brands),
          topics: {},
          tags: Object.fromEntries(tags.slice(0, -1)),
        },
      })
      expect((await setup.sync()).outcome).toBe('complete')
    })

    test('columns have the types of the catalogue, keys are unique, and required columns are never null', async () => {
      expect(await wrongColumns(setup.database, usual)).toEqual([])
      const queries = [
        ...relationsOf(usual, []).flatMap(({ name, columns }) =>
          columns
            .filter(({ required }) => required)
            .map((column) => `select count(*) from visibility.${name} where ${column.name} is null`),
        ),
        ...statementsOf(usual).filter((sql) => sql.startsWith('select count(*)')),
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

    test('every statement of the packs has rows, and Grafana gets one value for each time and series', async () => {
      const names = await setup.database.rows<{ name: string }>(
        'select project as name from visibility.visibility_weekly union select brand from visibility.visibility_weekly',
      )
      const quoted = names.map(({ name }) => `'${name.replaceAll("'", "''")}'`).join(',')
      const statements = statementsOf(usual, [], quoted).filter((sql) => !sql.startsWith('select count(*)'))
      for (const sql of statements) {
        const rows = await setup.database.rows<{ time?: Date; metric?: string }>(sql)
        expect({ sql, rows: rows.length > 0 }).toEqual({ sql, rows: true })
        const points = rows.flatMap(({ time, metric }) => (time === undefined ? [] : `${time.toISOString()} ${metric}`))
        expect({ sql, doubled: points.length - new Set(points).size }).toEqual({ sql, doubled: 0 })
      }
    })
  })
})

describe('Metabase', () => {
  /* Provisioning, against a server that is as strict as Metabase's own source. */

  let server: MetabaseServer
  beforeEach(async () => {
    server = await startMetabase()
  })

  const env = {
    METABASE_API_KEY: 'mb_key',
    METABASE_DATABASE_URL: 'postgres://reader:s%40cret@db:5433/wh',
    // Nothing listens there. Without an address, the command would start the database of this folder if it has one.
    DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none',
  }
  /** The command in this process; its error is the text that people would see. */
  async function run(over: Record<string, string> = {}, url = server.url, settings = {}) {
    const config = configOf(settings, { ...env, ...over })
    let [stdout, error] = ['', '']
    const print = (document: unknown, text: string) => {
      stdout = config.redactor.text(`${text}${JSON.stringify(document)}`)
    }
    await metabase({ config, print, log: { warn() {} } } as never, { url }).catch((problem: unknown) => {
      error = config.redactor.text(messageOf(problem))
    })
    return { stdout, error }
  }

  const dashboardOf = () => server.store.dashboard[0]!
  const cardOf = (name: string) => server.store.card.find((card) => card.name.includes(name))!

  test('connection, questions, models, metrics and a dashboard are created once, and then updated', async () => {
    const first = await run()
    expect([first.error, server.problems]).toEqual(['', []])
    expect(first.stdout).toContain('12 questions made, 0 updated')
    const { store } = server
    expect(store.database[0]!.details).toMatchObject({
      host: 'db',
      port: 5433,
      password: 's@cret',
      'schema-filters-patterns': 'visibility',
    })
    expect(dashboardOf().dashcards.length).toBe(12)
    const ours = store.collection.at(-1)!
    expect(ours).toMatchObject({ name: 'AI visibility', location: '/', personal_owner_id: null })

    // Meanwhile people changed things.
    Object.assign(store.database[0]!, { is_on_demand: true, cache_ttl: 12 })
    cardOf('1. ').display = 'pie'
    const theirs = { id: 500, name: 'their own', collection_id: ours.id, type: 'question', display: 'pie' }
    store.card.push(theirs)

    const second = await run()
    expect([second.error, server.problems]).toEqual(['', []])
    expect(second.stdout).toContain('0 questions made, 12 updated')
    expect([store.database.length, store.collection.length, store.card.length, store.dashboard.length]).toEqual([
      1, 3, 24, 1,
    ])
    expect(store.database[0]).toMatchObject({ is_on_demand: true, cache_ttl: 12, details: { ssl: true } })
    expect(cardOf('1. ').display).toBe('line')
    expect(theirs.display).toBe('pie')
    expect(dashboardOf().dashcards).toHaveLength(12)
  })

  test('tabs, cards and filters that people added stay when a later run adds a card', async () => {
    await run()
    const dashboard = dashboardOf()
    const tabs = [
      { id: 901, name: 'First' },
      { id: 902, name: 'Second' },
    ]
    for (const card of dashboard.dashcards) card.dashboard_tab_id = 902
    const mine = {
      ...{ id: 99, card_id: cardOf('7. ').id, row: 50, col: 3, size_x: 4, size_y: 5, dashboard_tab_id: 901 },
      parameter_mappings: [
        { parameter_id: 'theirs', card_id: cardOf('7. ').id, target: ['variable', ['template-tag', 'x']] },
      ],
      visualization_settings: { 'card.title': 'Mine' },
      series: [{ id: cardOf('1. ').id }],
    }
    const text = { id: 98, card_id: null, row: 0, col: 0, size_x: 24, size_y: 1, dashboard_tab_id: 901 }
    const parameter = { id: 'theirs', type: 'category', slug: 'theirs', name: 'Theirs' }
    // Their cards stand first, and one of ours is gone.
    dashboard.tabs = tabs
    dashboard.parameters.push(parameter)
    dashboard.dashcards = [mine, text, ...dashboard.dashcards.filter((card: any) => card.card_id !== cardOf('2. ').id)]

    const again = await run()
    expect([again.error, server.problems]).toEqual(['', []])
    expect(dashboard.tabs).toEqual(tabs)
    expect(dashboard.parameters).toContainEqual(parameter)
    const own = { parameter_mappings: expect.arrayContaining(mine.parameter_mappings) }
    expect(dashboard.dashcards).toContainEqual({ ...mine, ...own })
    expect(dashboard.dashcards).toContainEqual(expect.objectContaining(text))
    expect(dashboard.dashcards).toHaveLength(14)
    const added = dashboard.dashcards.find((card: any) => card.card_id === cardOf('2. ').id)
    expect(added).toMatchObject({ dashboard_tab_id: 901, row: 55, col: 0 })
  })

  test('after the first sync fields get their meaning, models describe columns, metrics are sums over sums, every question is filtered', async () => {
    server.looksUntilSynced = 2
    expect((await run()).error).toBe('')
    const tables = server.store.database[0]!.tables
    const field = (table: string, name: string) =>
      tables.find((one: any) => one.name === table).fields.find((one: any) => one.name === name)
    expect(field('brand_daily', 'brand_id')).toMatchObject({
      semantic_type: 'type/FK',
      fk_target_field_id: field('brands', 'brand_id').id,
    })
    expect(field('brands', 'brand_id').semantic_type).toBeNull()
    expect(field('visibility_weekly', 'change').semantic_type).toBe('type/Percentage')
    expect(field('position_by_model_weekly', 'change').semantic_type).toBeNull()

    const columns = cardOf('Visibility by week').result_metadata
    expect(columns.find((column: any) => column.name === 'visibility')).toMatchObject({
      display_name: 'Visibility',
      semantic_type: 'type/Percentage',
      description: expect.stringContaining('Share of answers'),
    })
    const view = tables.find((table: any) => table.name === 'visibility_daily')
    const ref = (name: string) => ['field', view.fields.find((field: any) => field.name === name).id, null]
    expect(cardOf('Visibility of own').dataset_query.query).toEqual({
      'source-table': view.id,
      filter: ['=', ref('is_own'), true],
      aggregation: [
        [
          'aggregation-options',
          ['/', ['sum', ref('visibility_count')], ['sum', ref('answers')]],
          { name: 'visibility', 'display-name': 'Visibility' },
        ],
      ],
      breakout: [['field', ref('date')[1], { 'temporal-unit': 'week' }]],
    })
    expect(dashboardOf().parameters.map(({ slug }: any) => slug)).toEqual(['project', 'dates', 'brand'])
    for (const card of dashboardOf().dashcards) {
      const { native } = server.store.card.find(({ id }) => id === card.card_id)!.dataset_query
      expect(card.parameter_mappings.map((one: any) => one.target[1][1])).toEqual(Object.keys(native['template-tags']))
      expect(Object.keys(native['template-tags'])).toEqual(expect.arrayContaining(['project', 'dates']))
      for (const name of Object.keys(native['template-tags'])) expect(native.query).toContain(`[[and {{${name}}}]]`)
    }
  })

  test('tables that Metabase does not know yet are skipped and named; an aborted Metabase sync ends the command', async () => {
    server.without.add('answers_daily').add('visibility_by_tag_weekly')
    const without = await run()
    expect([without.error, server.problems]).toEqual(['', []])
    expect(without.stdout).toContain('11 questions made')
    expect(without.stdout).toContain('answers_daily: Answers')
    server.syncEnds = 'aborted'
    expect((await run()).error).toContain('was aborted')
  })

  test('a user and a password work like a key; a wrong login is reported without showing it', async () => {
    const login = { METABASE_API_KEY: '', METABASE_USER: 'ann@example.com' }
    expect((await run({ ...login, METABASE_PASSWORD: 'right' })).error).toBe('')
    const wrong = await run({ ...login, METABASE_PASSWORD: 'very-wrong-word' })
    expect(wrong.error).toContain('METABASE_PASSWORD')
    expect(wrong.error).not.toContain('very-wrong-word')
  })

  test('no key, password or session reaches the output if Metabase repeats its requests', async () => {
    const secrets = ['mb/key+"of=tests', 'pass word%of"tests', 'session-of-the-tests', 'reader/of the"tests']
    for (const status of [400, 200]) {
      for (const failing of ['session', 'database']) {
        const echo = createServer((request, response) => {
          void text(request).then((body) => {
            const odd = JSON.stringify({ headers: request.headers, body, told: secrets })
            const synced = { initial_sync_status: 'complete', tables: [] }
            const sound = request.url!.includes('session')
              ? { id: secrets[2] }
              : request.method !== 'GET'
                ? { id: 1 }
                : request.url!.includes('database/')
                  ? synced
                  : []
            if (request.url!.includes(failing)) response.writeHead(status, { location: `/${secrets[2]}` }).end(odd)
            else response.writeHead(200).end(JSON.stringify(sound))
          })
        })
        const { origin: address } = await listening(echo)
        // A session is a secret from the answer on that opens it.
        const opened = failing === 'session' ? [] : [secrets[2]!]
        const login = { METABASE_API_KEY: '', METABASE_USER: 'ann', METABASE_PASSWORD: secrets[1]! }
        const database = `postgres://reader:${encodeURIComponent(secrets[3]!)}@db/wh`
        const withLogin = await run({ ...login, METABASE_DATABASE_URL: database }, address)
        const withKey = await run({ METABASE_API_KEY: secrets[0]!, METABASE_DATABASE_URL: database }, address)
        expect(withLogin.error).toContain(`/api/${failing}`)
        for (const secret of [secrets[1]!, secrets[3]!, ...opened]) {
          expect(withLogin.error).not.toContain(secret)
          expect(withLogin.error).not.toContain(JSON.stringify(secret).slice(1, -1))
        }
        for (const secret of [secrets[0]!, secrets[3]!]) expect(withKey.error).not.toContain(secret)
      }
    }
  })

  test('an address where nothing listens is printed, with what to do', async () => {
    expect((await run({}, 'http://user:hunter22@127.0.0.1:1/bi')).error).toBe(
      'Metabase: GET /api/database: http://127.0.0.1:1 does not answer: the connection was refused: nothing listens ' +
        'there (ECONNREFUSED). Start Metabase, or correct --url',
    )
  })

  test('missing or unsafe options are named before anything is sent', async () => {
    expect((await run({ METABASE_DATABASE_URL: '' })).error).toContain('METABASE_DATABASE_URL')
    expect((await run({ METABASE_API_KEY: '' })).error).toContain('METABASE_API_KEY')
    // Plain http to another machine takes a setting.
    expect((await run({}, 'http://metabase.example.com')).error).toContain('--url: got an http:// address of another')
    expect(server.calls).toEqual([])
  })

  test('the questions are the same as on the BI page', () => {
    const page = readFileSync(new URL('../docs/reference/questions.md', import.meta.url), 'utf8')
    const questions = readQuestions('visibility')
    expect(questions.length).toBe(12)
    for (const { name, sql } of questions) expect(page).toContain(`-- ${name}\n${sql}`)
  })
})
