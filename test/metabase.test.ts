import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { connectionDetails, metabase } from '../src/cli/commands/metabase.ts'
import { messageOf } from '../src/core/errors.ts'
import { readQuestions } from '../src/packs/metabase/cards.ts'
import { runCli } from './support/cli.ts'
import { configOf } from './support/config.ts'
import { bodyOf, listen, type MetabaseServer, startMetabase } from './support/metabase-server.ts'

/* Provisioning, against a server that is as strict as Metabase's own source. */

let server: MetabaseServer
beforeEach(async () => {
  server = await startMetabase()
})
afterEach(() => server.close())

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

test('connection, questions, models, metrics and a dashboard are made once, and brought up to date after that', async () => {
  const first = await run()
  expect([first.error, server.problems]).toEqual(['', []])
  expect(first.stdout).toContain('12 questions made, 0 updated')
  expect(first.stdout).toContain('6 models made, 0 updated')
  expect(first.stdout).toContain('5 metrics made, 0 updated')
  const { store } = server
  expect(store.database[0]!.details).toMatchObject({
    host: 'db',
    port: 5433,
    dbname: 'wh',
    user: 'reader',
    password: 's@cret',
    'schema-filters-patterns': 'visibility',
  })
  expect(store.card.filter(({ type }) => type === 'question').map(({ name }) => name)).toEqual(
    readQuestions('visibility').map(({ name }) => name),
  )
  expect(dashboardOf().dashcards.length).toBe(12)
  const ours = store.collection.at(-1)!
  expect(ours).toMatchObject({ name: 'AI visibility', location: '/', personal_owner_id: null })

  // Meanwhile people changed things.
  Object.assign(store.database[0]!, { is_on_demand: true, cache_ttl: 12 })
  cardOf('1. ').display = 'pie'
  const theirs = { id: 500, name: 'their own', collection_id: ours.id, type: 'question', display: 'pie' }
  store.card.push(theirs)
  // One of ours was moved into the dashboard, another was made a model.
  cardOf('9. ').dashboard_id = dashboardOf().id
  cardOf('8. ').type = 'model'

  const second = await run()
  expect([second.error, server.problems]).toEqual(['', []])
  expect(second.stdout).toContain('Connection updated, 0 fields described')
  expect(second.stdout).toContain('0 questions made, 12 updated')
  expect([store.database.length, store.collection.length, store.card.length, store.dashboard.length]).toEqual([
    1, 3, 24, 1,
  ])
  expect(store.database[0]).toMatchObject({ is_on_demand: true, cache_ttl: 12, details: { ssl: true } })
  expect(cardOf('1. ').display).toBe('line')
  expect([cardOf('8. ').type, cardOf('9. ').dashboard_id]).toEqual(['model', dashboardOf().id])
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
    id: 99,
    card_id: cardOf('7. ').id,
    row: 50,
    col: 3,
    size_x: 4,
    size_y: 5,
    dashboard_tab_id: 901,
    parameter_mappings: [
      { parameter_id: 'theirs', card_id: cardOf('7. ').id, target: ['variable', ['template-tag', 'x']] },
    ],
    visualization_settings: { 'card.title': 'Mine' },
    inline_parameters: ['theirs'],
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
  expect(field('prompts', 'project_id').fk_target_field_id).toBe(field('projects', 'project_id').id)
  expect(field('head_to_head_weekly', 'rival_brand_id').fk_target_field_id).toBe(field('brands', 'brand_id').id)
  expect(field('brands', 'brand_id').semantic_type).toBeNull()
  for (const [table, name] of [
    ['sample_sizes_daily', 'margin_of_error'],
    ['visibility_weekly', 'change'],
  ] as const)
    expect(field(table, name).semantic_type).toBe('type/Percentage')
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
  expect(dashboardOf().parameters[1].default).toBe('past90days~')
  expect(dashboardOf().parameters[2]).toMatchObject({
    values_source_type: 'card',
    values_source_config: {
      card_id: cardOf('Visibility by week').id,
      value_field: ['field', field('visibility_weekly', 'brand').id, null],
    },
  })
  for (const card of dashboardOf().dashcards) {
    const { native } = server.store.card.find(({ id }) => id === card.card_id)!.dataset_query
    expect(card.parameter_mappings.map((one: any) => one.target[1][1])).toEqual(Object.keys(native['template-tags']))
    expect(Object.keys(native['template-tags'])).toEqual(expect.arrayContaining(['project', 'dates']))
    for (const name of Object.keys(native['template-tags'])) expect(native.query).toContain(`[[and {{${name}}}]]`)
  }
})

test('what Metabase does not know yet is left out and named; a sync that was aborted ends the command', async () => {
  server.without.add('answers_daily').add('visibility_by_tag_weekly')
  const without = await run()
  expect([without.error, server.problems]).toEqual(['', []])
  expect(without.stdout).toContain('11 questions made')
  expect(without.stdout).toContain('visibility_by_tag_weekly: 10. Branded or not')
  expect(without.stdout).toContain('answers_daily: Answers')
  server.syncEnds = 'aborted'
  expect((await run()).error).toContain('was aborted')
})

test('SSL is asked for only where the address says so, and plans are not compiled unless it says so', () => {
  const details = (query: string) => connectionDetails(`postgres://u:p@db/wh${query}`, 'visibility')
  expect(details('')).not.toHaveProperty('ssl')
  expect(details('?sslmode=prefer')).not.toHaveProperty('ssl')
  expect(details('?sslmode=disable')).toMatchObject({ ssl: false })
  expect(details('?sslmode=verify-full')).toMatchObject({ ssl: true, 'ssl-mode': 'verify-full' })
  expect(() => details('?sslmode=always')).toThrow('sslmode')
  expect(details('')['additional-options']).toBe('options=-c%20jit=off')
  expect(details('?options=-c%20jit=on%20-c%20work_mem=64MB')).toMatchObject({
    'additional-options': 'options=-c%20jit=on%20-c%20work_mem=64MB',
  })
  expect(details('?options=')['additional-options']).toBe('')
})

test('a user and a password do as well as a key; a wrong login is reported without showing it', async () => {
  const login = { METABASE_API_KEY: '', METABASE_USER: 'ann@example.com' }
  expect((await run({ ...login, METABASE_PASSWORD: 'right' })).error).toBe('')
  const wrong = await run({ ...login, METABASE_PASSWORD: 'very-wrong-word' })
  expect(wrong.error).toContain('METABASE_PASSWORD')
  expect(wrong.error).not.toContain('very-wrong-word')
  const second = await run({ ...login, METABASE_USER: 'two@example.com', METABASE_PASSWORD: 'right' })
  expect(second.error).toContain('API key of the group Administrators')
})

test('a Metabase that repeats what it was sent gets no key, password or session into the output', async () => {
  const secrets = ['mb/key+"of=tests', 'pass word%of"tests', 'session-of-the-tests', 'reader/of the"tests']
  for (const status of [400, 200, 302]) {
    for (const failing of ['session', 'database', 'collection']) {
      const echo = createServer((request, response) => {
        void bodyOf(request).then((body) => {
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
      const address = await listen(echo)
      // A session is a secret from the answer on that opens it.
      const opened = failing === 'session' ? [] : [secrets[2]!]
      const login = { METABASE_API_KEY: '', METABASE_USER: 'ann', METABASE_PASSWORD: secrets[1]! }
      const database = `postgres://reader:${encodeURIComponent(secrets[3]!)}@db/wh`
      const withLogin = await run({ ...login, METABASE_DATABASE_URL: database }, address)
      const withKey = await run({ METABASE_API_KEY: secrets[0]!, METABASE_DATABASE_URL: database }, address)
      await new Promise((done) => echo.close(done))
      expect(withLogin.error).toContain(`/api/${failing}`)
      for (const secret of [secrets[1]!, secrets[3]!, ...opened]) {
        expect(withLogin.error).not.toContain(secret)
        expect(withLogin.error).not.toContain(JSON.stringify(secret).slice(1, -1))
      }
      for (const secret of [secrets[0]!, secrets[3]!]) expect(withKey.error).not.toContain(secret)
    }
  }
})

test('what is missing or unsafe is named before anything is sent', async () => {
  expect((await run({ METABASE_DATABASE_URL: '' })).error).toContain('METABASE_DATABASE_URL')
  expect((await run({ METABASE_API_KEY: '' })).error).toContain('METABASE_API_KEY')
  expect((await run({}, 'http://127.0.0.1:9')).error).toContain('ECONNREFUSED')
  // Plain http to another machine takes a setting.
  expect((await run({}, 'http://metabase.example.com')).error).toContain('--url: got an http:// address of another')
  expect((await run({}, 'http://metabase.invalid', { allow_http: true })).error).toContain('GET /api/database')
  expect((await runCli(['metabase', '--url', 'nonsense'], { env })).code).toBe(2)
  expect(server.calls).toEqual([])
})

test('the questions are those of the BI page, word for word', () => {
  const page = readFileSync(new URL('../docs/reference/questions.md', import.meta.url), 'utf8')
  const questions = readQuestions('visibility')
  expect(questions.length).toBe(12)
  for (const { name, sql } of questions) expect(page).toContain(`-- ${name}\n${sql}`)
})
