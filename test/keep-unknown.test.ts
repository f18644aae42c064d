import { expect, test } from '@jest/globals'
import { StreamSet } from '../src/streams/registry.ts'
import { runCli } from './support/cli.ts'
import { startRewriter } from './support/proxy.ts'
import { configOf, NO_LIMIT, type Setup, type SetupOptions, setUp } from './support/setup.ts'

/* Fields that the API does not document, with `keep_unknown_fields`. */

const SENT = { is_archived: false, sampling: { weight: 1 } }
const start = (keep: boolean | string[], more: SetupOptions = {}) =>
  setUp({
    world: { projects: 1, prompts: 4, models: 2, brands: 3 },
    faults: { ...NO_LIMIT, extra_fields: true },
    ...more,
    config: { start_date: '2026-03-20', keep_unknown_fields: keep, ...more.config },
  })

async function extrasIn({ database }: Setup, table: string): Promise<unknown[]> {
  const rows = await database.rows<{ extra: unknown }>(`select distinct extra from visibility.${table} order by 1`)
  return rows.map(({ extra }) => extra)
}

async function effectOf(setup: Setup, stream: string) {
  const report = await setup.sync({ streams: setup.services.streams.named([stream]) })
  const [{ inserted, updated, deleted, unchanged } = {} as never] = report.streams
  return { outcome: report.outcome, inserted, updated, deleted, unchanged }
}

test('they are stored with the rows of lists, chats and reports, and are no drift', async () => {
  const setup = await start(true)
  expect((await setup.sync()).outcome).toBe('complete')
  for (const table of ['prompts', 'chats', 'brand_daily', 'by_prompt'])
    expect(await extrasIn(setup, table)).toEqual([SENT])
  const status = await runCli(['status', '--json'], { env: setup.env, config: setup.fileConfig })
  expect(status.json().drift.filter((note: { kind: string }) => note.kind === 'field')).toEqual([])
  const audit = await runCli(['audit', '--json'], { env: setup.env, config: setup.fileConfig })
  expect(audit.code).toBe(0)
  setup.service.setFaults(NO_LIMIT)
  expect(await effectOf(setup, 'prompts')).toMatchObject({ outcome: 'complete', updated: 4 })
  expect(await extrasIn(setup, 'prompts')).toEqual([null])
})

test.each([
  ['by a digest', {}],
  ['row by row', { VISIBILITY_DISABLE: 'window-digest' }],
])('rows are compared with them %s: equal ones are not written, a changed field is an update', async (_, env) => {
  const setup = await start(['chats', 'by_topic'])
  setup.services.config = configOf(setup.fileConfig, { ...setup.env, ...env })
  await setup.sync()
  const nothing = { outcome: 'complete', inserted: 0, updated: 0, deleted: 0 }
  for (const stream of ['chats', 'by_topic']) expect(await effectOf(setup, stream)).toMatchObject(nothing)
  const [row] = await setup.database.rows<{ chat_id: string }>(
    "select chat_id from visibility.chats where date = '2026-03-30' limit 1",
  )
  // The service writes the same fields in another order, and one of them is new in one row.
  const rewriter = await startRewriter(setup.service.url, (text, { url }) => {
    if (!url?.includes('/chats'))
      return text.replaceAll(
        '"is_archived":false,"sampling":{"weight":1}',
        '"sampling":{"weight":1},"is_archived":false',
      )
    const answer = JSON.parse(text)
    for (const item of answer.data) if (item.id === row!.chat_id) item.sampling = { z: '✓ \\ "', 'a b': [1, 2.5, null] }
    return JSON.stringify(answer)
  })
  await setup.through(rewriter.url, async () => {
    expect(await effectOf(setup, 'by_topic')).toMatchObject(nothing)
    expect(await effectOf(setup, 'chats')).toMatchObject({ ...nothing, updated: 1 })
    expect(await effectOf(setup, 'chats')).toMatchObject(nothing)
  })
  const changed = await setup.database.rows(`select extra from visibility.chats where chat_id = '${row!.chat_id}'`)
  expect(changed).toEqual([{ extra: { is_archived: false, sampling: { z: '✓ \\ "', 'a b': [1, 2.5, null] } } }])
})

test('only the named streams keep them; a stream without them has no column, and its fields are drift', async () => {
  const setup = await start(['chats'])
  await setup.sync()
  expect(await extrasIn(setup, 'chats')).toEqual([SENT])
  await expect(extrasIn(setup, 'prompts')).rejects.toThrow('extra')
  const { drift } = (await runCli(['status', '--json'], { env: setup.env, config: setup.fileConfig })).json()
  const streams = new Set(drift.map((note: { stream: string }) => note.stream))
  expect([streams.has('prompts'), streams.has('chats')]).toEqual([true, false])
  expect(() => new StreamSet(configOf({ keep_unknown_fields: ['chat'] }))).toThrow(
    'keep_unknown_fields: got "chat"; configured are:',
  )
})

test('it may be turned on and off later: days get the fields when they are read again', async () => {
  const setup = await start(false)
  const run = (args: string[], keep: boolean, more: object = {}) =>
    runCli(args, { env: setup.env, config: { ...setup.fileConfig, keep_unknown_fields: keep, ...more } })
  await run(['sync'], false)
  expect((await run(['sync'], true)).code).toBe(0)
  expect(await extrasIn(setup, 'chats')).toEqual([SENT, null])
  expect((await run(['backfill', '--from', '2026-03-20', '--to', '2026-03-31'], true)).code).toBe(0)
  expect(await extrasIn(setup, 'chats')).toEqual([SENT])
  const moved = await run(['partition', '--json'], true, { warehouse: { partition: 'month' } })
  expect(moved.json()).toMatchObject({ complete: true })
  expect(await extrasIn(setup, 'brand_daily')).toEqual([SENT])
  expect((await run(['sync'], false)).code).toBe(0)
  expect((await run(['check'], true)).stdout).toContain('✓ tables')
})
