import { beforeAll, expect, test } from '@jest/globals'
import { domainReport, urlReport } from '../src/reference/sources.ts'
import type { Client } from '../src/source/client.ts'
import { StreamSet } from '../src/streams/registry.ts'
import type { RunRequest } from '../src/sync/run/run.ts'
import { runSync } from '../src/sync/run/run-sync.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { openClient, startRewriter } from './support/proxy.ts'
import { configOf, NO_LIMIT, type Setup, setUp } from './support/setup.ts'

/* Streams that a person defines have the guarantees of every other stream. */

type Row = Record<string, any>
const column = (name: string, type: string, path = name) => ({ name, path, type })
const cited = {
  ...{ name: 'cited', path: 'reports/domains', method: 'POST', by: 'day', dimensions: ['date'] },
  key: ['date', 'domain'],
  columns: [column('date', 'date'), column('domain', 'text'), column('times', 'number', 'citation_count')],
}
const pages = {
  ...{ name: 'pages', path: 'reports/urls', method: 'POST', by: 'day', dimensions: ['date'] },
  ...{ key: ['date', 'url'], adds: ['used'] },
  columns: [
    column('date', 'date'),
    column('url', 'text'),
    column('title', 'text'),
    column('used', 'number', 'usage_count'),
  ],
}
const subjects = {
  ...{ name: 'subjects', path: 'topics', by: 'list', key: ['id'] },
  columns: [column('id', 'text'), column('name', 'text')],
}
const range = { from: '2026-03-30', to: '2026-03-31' }

let setup: Setup
let client: Client
/** Changes the items of an answer, by the path of its operation. */
let change: (path: string, items: Row[]) => Row[] = (_, items) => items
const rows = (sql: string) => setup.database.rows<Row>(sql)

beforeAll(async () => {
  setup = await setUp({
    world: { projects: 1, prompts: 6, models: 2, brands: 3 },
    extras: 'all',
    config: {
      ...{ start_date: range.from, end_date: range.to, streams: ['project_profile'], reports: [], max_bad_share: 0.5 },
      custom_streams: [cited, pages, subjects],
    },
  })
  const proxy = await startRewriter(setup.service.url, (text, { url }, sent) => {
    const body = JSON.parse(text) as { data?: Row[]; totalCount?: number }
    if (body.data === undefined) return text
    const { pathname, searchParams } = new URL(url!, 'http://x')
    const offset = Number(searchParams.get('offset') ?? (sent === '' ? {} : JSON.parse(sent)).offset ?? 0)
    // Everything fits one page, so there is no row after its last, whatever was changed.
    const data = offset > 0 ? [] : change(pathname.slice(4), body.data)
    return JSON.stringify({ data })
  })
  client = openClient(proxy.url)
})

function sync(
  names: string[] = [],
  more: Partial<RunRequest> = {},
  custom_streams: unknown[] = [cited, pages, subjects],
) {
  const config = configOf({ ...setup.fileConfig, custom_streams }, setup.env)
  const streams = new StreamSet(config)
  const services = { ...setup.services, config, streams, client }
  return runSync(services, { command: 'sync', projects: setup.projects, streams: streams.named(names), ...more })
}
let first: ReturnType<typeof sync> | undefined
/** The sync that fills the tables, whichever test asks for it first. */
const firstSync = () => (first ??= sync())
const of = (path: string, edit: (items: Row[]) => Row[]) => {
  change = (asked, items) => (asked === path ? edit(items) : items)
}
const asItIs = () => {
  change = (_, items) => items
}

test('rows are those of the service, and counts of equal keys add up if that is declared', async () => {
  expect((await firstSync()).outcome).toBe('complete')
  const { world } = setup.service
  const query = { range, dimensions: ['date' as const], filters: [] }
  const domains = domainReport(world, world.projects[0]!, query)
  expect(await rows('select date, domain, times from visibility.cited order by 1, 2')).toEqual(
    domains
      .map(({ date, domain, citation_count }) => ({ date, domain, times: citation_count }))
      .sort((a, b) => (`${a.date} ${a.domain}` < `${b.date} ${b.domain}` ? -1 : 1)),
  )
  const urls = urlReport(world, world.projects[0]!, query) as Row[]
  const keys = new Set(urls.map(({ date, url }) => `${date} ${url}`))
  expect(keys.size).toBeLessThan(urls.length)
  expect(await rows('select count(*)::int as n, sum(used) as used from visibility.pages')).toEqual([
    { n: keys.size, used: urls.reduce((sum, { usage_count }) => sum + usage_count, 0) },
  ])
  expect(await rows('select count(*)::int as n from visibility.subjects where removed_at is null')).toEqual([
    { n: world.projects[0]!.topics.length },
  ])
})

test('invalid rows and contradicting rows stay in quarantine until they are valid', async () => {
  await firstSync()
  const [before] = await rows('select count(*)::int as n, sum(times) as times from visibility.cited')
  of('reports/domains', ([first, second, ...rest]) => [
    { ...first, citation_count: 'many' },
    second!,
    { ...second, citation_count: 999 },
    ...rest,
  ])
  const bad = await sync(['cited'])
  expect([bad.outcome, bad.streams[0]!.quarantined]).toEqual(['partial', 3])
  const reasons = await rows(
    "select reason from visibility_ops.quarantine where stream = 'cited' and resolved_at is null order by 1",
  )
  expect(reasons.map(({ reason }) => reason.slice(0, 20))).toEqual([
    'citation_count: Inva',
    'the same key stands ',
    'the same key stands ',
  ])
  // Nothing is deleted for a row that failed.
  expect(await rows('select count(*)::int as n, sum(times) as times from visibility.cited')).toEqual([before])
  of('reports/urls', ([first, ...rest]) => [first!, { ...first, title: 'another' }, ...rest])
  const odd = await sync(['pages'])
  expect([odd.outcome, odd.streams[0]!.quarantined]).toEqual(['partial', 2])
  asItIs()
  expect((await sync()).outcome).toBe('complete')
  expect(await rows('select count(*)::int as n from visibility_ops.quarantine where resolved_at is null')).toEqual([
    { n: 0 },
  ])
})

test('an answer without most of its rows is held, by day and as a list, until it is accepted', async () => {
  await firstSync()
  const counts = () =>
    rows(`select (select count(*)::int from visibility.cited) as cited,
      (select count(*)::int from visibility.subjects where removed_at is null) as subjects`)
  const before = await counts()
  setup.service.setFaults({ ...NO_LIMIT, empty: true })
  const held = await sync()
  expect(held.outcome).toBe('partial')
  expect(held.streams.filter((stream) => stream.held.length > 0).map(({ stream }) => stream)).toEqual([
    'subjects',
    'cited',
    'pages',
  ])
  expect(await counts()).toEqual(before)
  expect(await rows("select distinct state from visibility_ops.coverage where stream = 'cited'")).toEqual([
    { state: 'held' },
  ])
  await sync([], { acceptDeletes: true, range })
  expect(await counts()).toEqual([{ cited: 0, subjects: 0 }])
  setup.service.setFaults(NO_LIMIT)
  expect((await sync()).outcome).toBe('complete')
  expect(await counts()).toEqual(before)
})

test('a definition cannot change under its name; its descriptions can', async () => {
  await firstSync()
  const migrated = (custom_streams: unknown[]) =>
    migrate(setup.database.warehouse, configOf({ ...setup.fileConfig, custom_streams }, setup.env))
  await expect(migrated([{ ...cited, columns: cited.columns.slice(0, 2) }])).rejects.toThrow(
    'the definition of "cited" changed',
  )
  await expect(migrated([{ ...pages, adds: [] }])).rejects.toThrow('the definition of "pages" changed')
  await migrated([{ ...cited, about: 'Other words.' }])
  expect(await rows("select obj_description('visibility.cited'::regclass) as about")).toEqual([
    { about: 'Other words.' },
  ])
  await rows('create table visibility.theirs (id text)')
  await expect(migrated([{ ...subjects, name: 'theirs' }])).rejects.toThrow('choose another name')
})

test.each([
  ['a name that is no identifier', { ...cited, name: 'cited; drop table x' }, 'a safe table name'],
  ['the name of a table', { ...cited, name: 'chats' }, 'it is the name of another table or stream'],
  ['a key that is no column', { ...cited, key: ['date', 'other'] }, 'columns of type text or date'],
  ['a key of numbers', { ...cited, key: ['date', 'times'] }, 'columns of type text or date'],
  ['a path out of the service', { ...cited, path: '../admin' }, 'a path below the address'],
  ['an address as a path', { ...cited, path: 'https://other.example/x' }, 'a path below the address'],
  ['dimensions of a GET', { ...cited, method: 'GET' }, 'dimensions only with the method POST'],
])('%s is refused', (_, definition, message) => {
  expect(() => configOf({ custom_streams: [definition] })).toThrow(message)
})

test('two definitions cannot have one name, nor that of a report', () => {
  expect(() => configOf({ custom_streams: [cited, cited] })).toThrow('a second time')
  expect(() => configOf({ custom_streams: [{ ...cited, name: 'brand_daily' }] })).toThrow('a second time')
})
