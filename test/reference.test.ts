import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { type ReferenceService, startReference } from '../src/reference/server.ts'
import { COMPANY_KEY, createWorld } from '../src/reference/world.ts'

describe('the reference service', () => {
  let service: ReferenceService
  const at = { now: '2026-03-31T12:00:00Z' }
  beforeAll(async () => {
    service = await startReference({
      world: createWorld({ clock: () => new Date(at.now) }),
      faults: { rate_limit: null },
    })
  })
  afterAll(() => service.close())

  async function call(
    path: string,
    options: { query?: Record<string, string>; body?: unknown; key?: string | null; method?: string } = {},
  ) {
    const project = service.world.projects[0]!.id
    const query = new URLSearchParams(
      options.body === undefined ? { project_id: project, ...options.query } : (options.query ?? {}),
    )
    const response = await fetch(`${service.url}${path}?${query}`, {
      method: options.method ?? (options.body === undefined ? 'GET' : 'POST'),
      headers: {
        ...(options.key === null ? {} : { 'x-api-key': options.key ?? COMPANY_KEY }),
        'content-type': 'application/json',
      },
      ...(options.body === undefined ? {} : { body: JSON.stringify(options.body) }),
    })
    return { status: response.status, body: (await response.json()) as any, headers: response.headers }
  }

  const report = (body: object) =>
    call('/reports/brands', {
      body: { project_id: service.world.projects[0]!.id, start_date: '2026-01-01', end_date: '2026-01-07', ...body },
    })

  test('coarse and fine reports agree, because both are counted from the same chats', async () => {
    const total = (rows: any[], field: string) => rows.reduce((sum, row) => sum + row[field], 0)
    const coarse = (await report({ limit: 10_000 })).body.data
    for (const dimensions of [
      ['date'],
      ['date', 'model_id'],
      ['prompt_id', 'model_id', 'country_code'],
      ['topic_id'],
      ['chat_id'],
    ]) {
      const fine = (await report({ dimensions, limit: 10_000 })).body.data
      for (const field of ['mention_count', 'visibility_count', 'sentiment_sum', 'position_sum', 'visibility_total']) {
        expect([dimensions, field, total(fine, field)]).toEqual([dimensions, field, total(coarse, field)])
      }
    }
    const chats = (
      await call('/chats', { query: { start_date: '2026-01-01', end_date: '2026-01-07', limit: '10000' } })
    ).body.data
    expect(chats.length).toBe(coarse[0].visibility_total)
  })

  test('metrics follow their definitions', async () => {
    for (const row of (await report({ dimensions: ['date', 'prompt_id'], limit: 10_000 })).body.data) {
      expect(row.visibility).toBe(row.visibility_count / row.visibility_total)
      if (row.position_count === 0) expect([row.position, row.sentiment]).toEqual([null, null])
      else {
        expect(row.position).toBe(row.position_sum / row.position_count)
        expect(row.sentiment).toBeCloseTo((row.sentiment_sum / row.sentiment_count / 2 + 0.5) * 100, 10)
      }
    }
    const shares = (await report({})).body.data.map((row: any) => row.share_of_voice)
    expect(shares.reduce((a: number, b: number) => a + b)).toBeCloseTo(1, 12)
  })

  test('filters narrow by in and not_in, combine with AND, and a brand filter shrinks the denominator', async () => {
    const [brand] = service.world.projects[0]!.brands
    const models = service.world.models
    const one = (
      await report({ dimensions: ['model_id'], filters: [{ field: 'model_id', operator: 'in', values: [models[0]] }] })
    ).body.data
    const rest = (
      await report({
        dimensions: ['model_id'],
        filters: [{ field: 'model_id', operator: 'not_in', values: [models[0]] }],
      })
    ).body.data
    expect(new Set(one.map((row: any) => row.model.id))).toEqual(new Set([models[0]]))
    expect(new Set(rest.map((row: any) => row.model.id))).toEqual(new Set(models.slice(1)))
    const both = (
      await report({
        filters: [
          { field: 'model_id', operator: 'in', values: models },
          { field: 'model_id', operator: 'not_in', values: models },
        ],
      })
    ).body.data
    expect(both).toEqual([])
    const own = (await report({ filters: [{ field: 'brand_id', operator: 'in', values: [brand!.id] }] })).body.data
    expect(own.map((row: any) => row.share_of_voice)).toEqual([1])
  })

  test('pages, defaults and orders are as documented', async () => {
    const all = (await report({ dimensions: ['date', 'prompt_id'], limit: 10_000 })).body.data
    expect((await report({ dimensions: ['date', 'prompt_id', 'model_id'] })).body.data.length).toBe(1000)
    const second = (await report({ dimensions: ['date', 'prompt_id'], limit: 10, offset: 10 })).body.data
    expect(second).toEqual(all.slice(10, 20))
    const ordered = (
      await report({ dimensions: ['date'], order_by: [{ field: 'date', direction: 'asc' }, { field: 'visibility' }] })
    ).body.data
    const sortedRows = [...ordered].sort(
      (a: any, b: any) => a.date.localeCompare(b.date) || b.visibility - a.visibility,
    )
    expect(ordered).toEqual(sortedRows)
    const defaultDay = (await call('/chats', {})).body.data
    expect(new Set(defaultDay.map((chat: any) => chat.date))).toEqual(new Set(['2026-01-01']))
  })

  describe('what the API forbids is refused', () => {
    const bad: [string, () => Promise<{ status: number; body: any }>, number][] = [
      ['no key', () => call('/prompts', { key: null }), 401],
      ['a wrong key', () => call('/prompts', { key: 'x' }), 401],
      ['a company key without project', () => call('/prompts', { query: { project_id: '' } }), 403],
      ['a limit of 0', () => call('/prompts', { query: { limit: '0' } }), 400],
      ['a limit of 10001', () => call('/chats', { query: { limit: '10001' } }), 400],
      ['an impossible date', () => call('/chats', { query: { start_date: '2026-02-29' } }), 400],
      ['an unknown model', () => call('/chats', { query: { model_id: 'x' } }), 400],
      ['an unknown dimension', () => report({ dimensions: ['brand'] }), 400],
      ['an unknown path', () => call('/nothing'), 404],
      [
        'a long topic',
        () => call('/topics', { body: { name: 'x'.repeat(65) }, query: { project_id: service.world.projects[0]!.id } }),
        400,
      ],
    ]
    test.each(bad)('%s', async (_, attempt, status) => {
      const answer = await attempt()
      expect([answer.status, typeof answer.body.message]).toEqual([status, 'string'])
    })
  })

  test('creations exist afterwards, cost credits, and are refused a second time', async () => {
    const project = service.world.projects[0]!
    const query = { project_id: project.id }
    const prompt = { text: 'Which shoes suit a giant?', country_code: 'DE', topic_id: project.topics[0]!.id }
    const made = await call('/prompts', { body: prompt, query })
    expect(made.status).toBe(201)
    expect((await call('/prompts', { body: prompt, query })).status).toBe(409)
    expect(
      (await call('/prompts', { query: { topic_id: prompt.topic_id, limit: '10000' } })).body.data.map(
        (item: any) => item.id,
      ),
    ).toContain(made.body.id)
    project.credits = 0
    expect((await call('/prompts', { body: { ...prompt, country_code: 'FR' }, query })).status).toBe(402)
    expect((await call('/classifications/domains', { body: { ...query, name: 'New' } })).body).toEqual({
      name: 'New',
      color: 'orange',
    })
    expect((await call('/classifications/domains', { body: { ...query, name: 'New' } })).status).toBe(409)
  })

  test('the last days restate themselves as time passes, older ones do not', async () => {
    const read = async (day: string) =>
      JSON.stringify((await report({ start_date: day, end_date: day, dimensions: ['date'] })).body.data)
    at.now = '2026-03-31T08:00:00Z'
    const [today, yesterday, older] = [await read('2026-03-31'), await read('2026-03-30'), await read('2026-03-20')]
    expect(await read('2026-03-31')).toBe(today)
    at.now = '2026-03-31T20:00:00Z'
    expect(await read('2026-03-31')).not.toBe(today)
    expect(await read('2026-03-30')).not.toBe(yesterday)
    expect(await read('2026-03-20')).toBe(older)
    expect(await read('2026-04-02')).toBe('[]')
  })

  test('the same seed makes the same world, another seed another', () => {
    const chats = (seed: number) => {
      const world = createWorld({ seed, restating: false })
      return JSON.stringify(world.chatsOf(world.projects[0]!, '2026-01-01'))
    }
    expect(chats(1)).toBe(chats(1))
    expect(chats(1)).not.toBe(chats(2))
  })

  test('history is rewritten, prompts deleted and brands renamed on request', async () => {
    const project = service.world.projects[1]!
    const change = async (body: object) => {
      const response = await fetch(service.url.replace('/v1', '/control/world'), {
        method: 'POST',
        body: JSON.stringify({ project_id: project.id, ...body }),
      })
      return response.status
    }
    const read = async () =>
      (await report({ project_id: project.id, start_date: '2026-02-01', end_date: '2026-02-01' })).body.data
    const before = JSON.stringify(await read())
    expect(await change({ action: 'rewrite_days', days: ['2026-02-01'] })).toBe(200)
    expect(JSON.stringify(await read())).not.toBe(before)
    expect(await change({ action: 'rename_brand', brand_id: project.brands[0]!.id, name: 'Other' })).toBe(200)
    expect((await read()).map((row: any) => row.brand.name)).toContain('Other')
    const [prompt] = project.prompts
    expect(await change({ action: 'delete_prompt', prompt_id: prompt!.id })).toBe(200)
    expect((await read())[0].visibility_total).toBe(23 * 4)
    expect(await change({ action: 'explode' })).toBe(400)
  })

  test('it misbehaves on request: limits, refusals, caps, odd rows', async () => {
    const url = service.url.replace('/v1', '/control/faults')
    const told = await fetch(url, {
      method: 'POST',
      body: JSON.stringify({ rate_limit: 2, silent_cap: 3, extra_fields: true, totals: 'snake' }),
    })
    expect(told.status).toBe(200)
    const first = await call('/prompts')
    expect(first.headers.get('x-ratelimit-remaining')).toBe('1')
    expect(first.body.data.length).toBe(3)
    expect(first.body.total_count).toBeGreaterThan(3)
    expect(first.body.data[0]).toHaveProperty('is_archived')
    await call('/prompts')
    expect((await call('/prompts')).status).toBe(429)
    service.setFaults({ rate_limit: null, limit_max: 100, refuse_filters: true })
    expect((await call('/prompts', { query: { limit: '101' } })).status).toBe(400)
    expect((await report({ limit: 10, filters: [{ field: 'topic_id', operator: 'in', values: ['x'] }] })).status).toBe(
      400,
    )
    service.setFaults({ rate_limit: null, unstable_order: true })
    const orders = new Set()
    for (let index = 0; index < 4; index++)
      orders.add(JSON.stringify((await report({ dimensions: ['date'] })).body.data))
    expect(orders.size).toBeGreaterThan(1)
    service.setFaults({ rate_limit: null })
  })
})

describe('its extras', () => {
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
    const change = {
      action: 'move_channel',
      project_id: project().id,
      channel_id: before[0]!.id,
      model_id: 'famA-next',
    }
    await fetch(`${new URL(service.url).origin}/control/world`, { method: 'POST', body: JSON.stringify(change) })
    const after = (await ask('model-channels')).data
    expect(after.map(({ id }) => id)).toEqual(before.map(({ id }) => id))
    expect(after[0]).toMatchObject({ model: { id: 'famA-next' } })
    expect((await ask('models')).data.map(({ id }) => id)).toEqual(service.world.models)
  })

  test('without extras none of it is there', async () => {
    service.setExtras([])
    for (const path of ['projects', 'models', 'brands', 'chats/ch_1/content'])
      expect((await ask(path)).status).toBe(404)
    for (const more of [{ dimensions: ['week'] }, { having: [] }])
      expect((await ask('reports/brands', more)).status).toBe(400)
    service.setExtras('all')
  })
})
