import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { runCli } from './support/cli.ts'
import { type Setup, setUp } from './support/setup.ts'

/* check --spec: a published description of the service, compared with what is sent and read. */

let setup: Setup
const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-spec-'))
beforeAll(async () => {
  setup = await setUp({ world: { projects: 1, prompts: 6 }, extras: 'all', config: { extras: 'auto' } })
})
afterAll(async () => {
  await setup.close()
  rmSync(folder, { recursive: true })
})

type Node = Record<string, any>
const published = async () => (await (await fetch(`${setup.service.url}/openapi.json`)).json()) as Node
const check = (from: string) =>
  runCli(['check', '--spec', from, '--json'], { env: setup.env, config: setup.fileConfig })

/** What the command says of the published description after a change. */
async function changed(change: (spec: Node) => void) {
  const spec = await published()
  change(spec)
  const file = join(folder, 'spec.json')
  writeFileSync(file, JSON.stringify(spec))
  const { code, json } = await check(file)
  return { code, ...(json() as { gone: string[]; different: string[]; added: string[] }) }
}
const itemOf = (spec: Node, path: string, method: string) =>
  spec.paths[path][method].responses[200].content['application/json'].schema.properties.data.items

test('the description of a service that offers everything has all that is used', async () => {
  const { code, json } = await check(`${setup.service.url}/openapi.json`)
  expect([code, json()]).toMatchObject([0, { ok: true, gone: [] }])
  setup.service.setExtras([])
  const few = await check(`${setup.service.url}/openapi.json`)
  setup.service.setExtras('all')
  expect([few.code, few.json().gone]).toEqual([0, []])
  expect(few.json().different).toContain('GET topics: no such operation')
  // Each dimension is used by a report, though not by every one.
  expect((json().added as string[]).filter((text) => text.includes('topic_id'))).toEqual([])
})

test.each<[string, string, (spec: Node) => void]>([
  ['an operation', 'GET chats: no such operation', (spec) => delete spec.paths['/chats']],
  [
    'a parameter',
    'GET prompts: no parameter offset',
    ({ paths }) => {
      const { get } = paths['/prompts']
      get.parameters = get.parameters.filter(({ name }: Node) => name !== 'offset')
    },
  ],
  [
    'a dimension',
    'POST reports/brands: dimensions has no topic_id',
    ({ paths }) => {
      const { properties } = paths['/reports/brands'].post.requestBody.content['application/json'].schema
      properties.dimensions.items.enum = properties.dimensions.items.enum.filter((name: string) => name !== 'topic_id')
    },
  ],
  [
    'a field',
    'POST reports/brands: no field mention_count in the answer',
    (spec) => delete itemOf(spec, '/reports/brands', 'post').properties.mention_count,
  ],
])('%s that is used and gone is named, and the exit code is 1', async (_, text, change) => {
  const { code, gone } = await changed(change)
  expect([code, gone]).toEqual([1, [text]])
})

test('what is new or has another type is listed, with exit code 0', async () => {
  const { code, gone, different, added } = await changed((spec) => {
    itemOf(spec, '/chats', 'get').properties.cost = { type: 'number' }
    itemOf(spec, '/reports/brands', 'post').properties.sentiment = { type: 'string' }
    delete itemOf(spec, '/reports/brands', 'post').properties.position
    spec.paths['/queries/search'] = { post: {} }
  })
  expect([code, gone]).toEqual([0, []])
  expect(different).toEqual(
    expect.arrayContaining([
      'POST reports/brands: the field sentiment is string, read as number',
      'POST reports/brands: no field position in the answer',
    ]),
  )
  expect(added).toEqual(
    expect.arrayContaining(['GET chats: the answer also has cost', 'POST queries/search: not used']),
  )
})

test('references, shared parameters, alternatives and a common start of all paths are followed', async () => {
  const { code, gone } = await changed((spec) => {
    const { get } = spec.paths['/chats']
    spec.components = {
      schemas: { Chat: itemOf(spec, '/chats', 'get') },
      parameters: { Limit: { name: 'limit', in: 'query' } },
    }
    get.responses[200].content['application/json'].schema = {
      allOf: [{ properties: { data: { type: 'array', items: { $ref: '#/components/schemas/Chat' } } } }],
    }
    spec.paths['/chats'].parameters = [{ $ref: '#/components/parameters/Limit' }]
    get.parameters = get.parameters.filter(({ name }: Node) => name !== 'limit')
    spec.paths = Object.fromEntries(Object.entries(spec.paths).map(([path, of]) => [`/customer/v1${path}`, of]))
    spec.paths['/health'] = { get: {} }
  })
  expect([code, gone]).toEqual([0, []])
})

test('what is no description is refused with the reason', async () => {
  const file = join(folder, 'bad.json')
  for (const [text, reason] of [
    ['{', 'neither JSON nor YAML'],
    ['{"a": 1}', 'has no paths'],
  ] as const) {
    writeFileSync(file, text)
    const { code, stderr } = await check(file)
    expect([code, stderr]).toEqual([2, expect.stringContaining(reason)])
  }
  expect((await check(join(folder, 'nothing.json'))).code).toBe(2)
})
