import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { type ReferenceService, startReference } from '../src/reference/server.ts'
import { COMPANY_KEY, createWorld } from '../src/reference/world.ts'

/* The extras of the reference service, with the oddities that were measured on the live one. */

type Row = Record<string, any>
let service: ReferenceService
beforeAll(async () => {
  const clock = () => new Date('2026-03-31T12:00:00Z')
  const world = createWorld({ projects: 1, prompts: 12, models: 3, brands: 4, restating: false, clock })
  service = await startReference({ world, extras: 'all', faults: { rate_limit: null } })
})
afterAll(() => service.close())

const project = () => service.world.projects[0]!
async function ask(path: string, body?: Row): Promise<{ status: number; data: Row[]; body: Row }> {
  const get = body === undefined ? `?project_id=${project().id}` : ''
  const answer = await fetch(`${service.url}/${path}${get}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: { 'x-api-key': COMPANY_KEY, 'content-type': 'application/json' },
    ...(body !== undefined && { body: JSON.stringify({ project_id: project().id, ...DAYS, ...body }) }),
  })
  const json = (await answer.json()) as Row
  return { status: answer.status, data: json.data ?? [], body: json }
}
const DAYS = { start_date: '2026-03-01', end_date: '2026-03-31', limit: 10_000 }
const sum = (rows: Row[], field: string) => rows.reduce((total, row) => total + row[field], 0)

test('weeks and months are dimensions, and their counts are those of their days', async () => {
  for (const report of ['brands', 'urls']) {
    const field = report === 'brands' ? 'mention_count' : 'retrievals'
    const days = await ask(`reports/${report}`, { dimensions: ['date'] })
    for (const unit of ['week', 'month']) {
      const { data } = await ask(`reports/${report}`, { dimensions: [unit] })
      expect(sum(data, field)).toBe(sum(days.data, field))
      expect([...new Set(data.map((row) => row[unit]))].sort()).toEqual(
        unit === 'month'
          ? ['2026-03-01']
          : ['2026-02-23', '2026-03-02', '2026-03-09', '2026-03-16', '2026-03-23', '2026-03-30'],
      )
    }
  }
})

test('having leaves the denominators alone, as a filter does not', async () => {
  const all = await ask('reports/brands', { dimensions: ['date'] })
  const most = Math.max(...all.data.map(({ mention_count }) => mention_count))
  const some = await ask('reports/brands', {
    dimensions: ['date'],
    having: [{ field: 'mention_count', operator: 'gte', value: most }],
  })
  expect(some.data).toEqual(all.data.filter(({ mention_count }) => mention_count >= most))
  expect(some.data.length).toBeLessThan(all.data.length)
})

test('slices by classification have more rows than the whole; slices by a dimension of the report do not', async () => {
  const dimensions = ['date', 'model_id']
  const whole = await ask('reports/urls', { dimensions })
  const slices = async (field: string, values: string[]) => {
    let rows = 0
    for (const value of values)
      rows += (await ask('reports/urls', { dimensions, filters: [{ field, operator: 'in', values: [value] }] })).data
        .length
    return rows
  }
  const kinds = [...new Set(whole.data.map(({ classification }) => classification)), 'OTHER']
  expect(await slices('classification', kinds)).toBeGreaterThan(whole.data.length)
  expect(await slices('model_id', service.world.models)).toBe(whole.data.length)
})

test('the same rows come in another order each time, and only metrics order them', async () => {
  const [one, two] = [await ask('reports/domains', {}), await ask('reports/domains', {})]
  const texts = ({ data }: { data: Row[] }) => data.map((row) => JSON.stringify(row))
  expect(texts(one)).not.toEqual(texts(two))
  expect(texts(one).sort()).toEqual(texts(two).sort())
  const ordered = await ask('reports/domains', { order_by: [{ field: 'citation_count' }] })
  const counts = ordered.data.map(({ citation_count }) => citation_count)
  expect(counts).toEqual(counts.toSorted((a, b) => b - a))
  expect((await ask('reports/domains', { order_by: [{ field: 'domain' }] })).status).toBe(400)
})

test('a limit above 10,000 and an id that is null are refused', async () => {
  expect((await ask('reports/urls', { limit: 15_000 })).status).toBe(400)
  expect((await ask('reports/urls', { project_id: null })).status).toBe(400)
})

test('the model behind a channel changes, the channel stays', async () => {
  const before = (await ask('model-channels')).data
  const change = { action: 'move_channel', project_id: project().id, channel_id: before[0]!.id, model_id: 'famA-next' }
  await fetch(`${new URL(service.url).origin}/control/world`, { method: 'POST', body: JSON.stringify(change) })
  const after = (await ask('model-channels')).data
  expect(after.map(({ id }) => id)).toEqual(before.map(({ id }) => id))
  expect(after[0]).toMatchObject({ model: { id: 'famA-next' } })
  expect((await ask('models')).data.map(({ id }) => id)).toEqual(service.world.models)
})

test('without extras none of it is there', async () => {
  service.setExtras([])
  for (const path of ['projects', 'models', 'brands', 'chats/ch_1/content']) expect((await ask(path)).status).toBe(404)
  for (const more of [{ dimensions: ['week'] }, { having: [] }])
    expect((await ask('reports/brands', more)).status).toBe(400)
  service.setExtras('all')
})
