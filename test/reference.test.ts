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
    for (const dimensions of [['date'], ['date', 'model_id'], ['prompt_id', 'model_id', 'country_code'], ['chat_id']]) {
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

  test('filters narrow by in and not_in, and a brand filter shrinks the denominator', async () => {
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
    const own = (await report({ filters: [{ field: 'brand_id', operator: 'in', values: [brand!.id] }] })).body.data
    expect(own.map((row: any) => row.share_of_voice)).toEqual([1])
  })

  test('pages and defaults are as documented, and what the API forbids is refused', async () => {
    const all = (await report({ dimensions: ['date', 'prompt_id'], limit: 10_000 })).body.data
    expect((await report({ dimensions: ['date', 'prompt_id', 'model_id'] })).body.data.length).toBe(1000)
    const second = (await report({ dimensions: ['date', 'prompt_id'], limit: 10, offset: 10 })).body.data
    expect(second).toEqual(all.slice(10, 20))
    // What the API forbids is refused.
    for (const [answer, status] of [
      [await call('/prompts', { key: null }), 401],
      [await call('/prompts', { query: { project_id: '' } }), 403],
      [await call('/chats', { query: { limit: '10001' } }), 400],
      [await call('/chats', { query: { start_date: '2026-02-29' } }), 400],
      [await report({ dimensions: ['brand'] }), 400],
    ] as const)
      expect([answer.status, typeof answer.body.message]).toEqual([status, 'string'])
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

  test('history is rewritten, prompts deleted and brands renamed on request', async () => {
    const project = service.world.projects[1]!
    const post = async (body: object) => {
      const response = await fetch(service.url.replace('/v1', '/control/world'), {
        method: 'POST',
        body: JSON.stringify({ project_id: project.id, ...body }),
      })
      return response
    }
    const change = async (body: object) => (await post(body)).status
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
    const wrong = await post({ action: 'drop_chat', project_id: undefined, chat_id: 7 })
    expect(await wrong.json()).toEqual({ message: expect.stringMatching(/at project_id[\s\S]*at chat_id/) })
    const nowhere = await post({ action: 'drop_chat', project_id: 'or_none', chat_id: 'x' })
    expect([nowhere.status, await nowhere.json()]).toEqual([400, { message: 'project_id: there is no such project' }])
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
    service.setFaults({ rate_limit: null })
  })
})
