import { beforeAll, expect, test } from '@jest/globals'
import { DEFAULT_REPORTS } from '../src/core/config/schema.ts'
import { type Assistant, openOverStdio } from './support/assistant.ts'
import { type Setup, setUp } from './support/setup.ts'

/* The tools for assistants, asked by a real client over standard input and output. Every number is compared with SQL. */

let setup: Setup
let assistant: Assistant
let first: { id: string; name: string }

beforeAll(async () => {
  setup = await setUp({
    world: { projects: 2, prompts: 16, models: 3, brands: 5 },
    config: { start_date: '2026-01-26', end_date: '2026-03-31', reports: DEFAULT_REPORTS },
  })
  await setup.sync()
  const [project] = setup.service.world.projects
  ;[first] = (await setup.database.rows<{ id: string; name: string }>(
    'select project_id as id, name from visibility.projects where project_id = $1',
    [project!.id],
  )) as [typeof first]
  assistant = await openOverStdio({ env: setup.env, config: setup.fileConfig })
})

test('the tools say what they are for, that they only read, and what comes back', async () => {
  const { tools } = await assistant.client.listTools()
  expect(tools.map(({ name }) => name)).toContain('check_data')
  for (const { annotations, inputSchema, outputSchema, description } of tools) {
    expect(annotations).toMatchObject({ readOnlyHint: true, destructiveHint: false })
    expect(inputSchema.additionalProperties).toBe(false)
    expect(outputSchema?.required).toEqual(expect.arrayContaining(['rows', 'notes', 'left_out']))
    expect(description!.length).toBeLessThan(400)
  }
  expect(assistant.client.getInstructions()).toContain('list_projects')
})

test('projects come with their brands, channels and topics, and with the days that are complete', async () => {
  const { data, text } = await assistant.ask('list_projects')
  expect(data.rows.length).toBe(2)
  const row = data.rows.find(({ id }: { id: string }) => id === first.id)
  const brands = await setup.database.rows<{ name: string; is_own: boolean }>(
    'select name, is_own from visibility.brands where project_id = $1 order by name',
    [first.id],
  )
  const names = (isOwn: boolean) => brands.filter(({ is_own }) => is_own === isOwn).map(({ name }) => name)
  expect([row.own_brands, row.rivals]).toEqual([names(true), names(false)])
  expect(row.channels.length).toBe(3)
  const [days] = await setup.database.rows<{ from: string; to: string }>(
    `select min(date) as from, max(date) as to from visibility.data_status
     where project_id = $1 and stream = 'brand_daily' and state = 'read' and read_at::date > date`,
    [first.id],
  )
  expect([row.complete_from, row.complete_to]).toEqual([days!.from, days!.to])
  expect(text).toContain(`complete from ${days!.from} to ${days!.to}`)
})

test('the state of the data is that of the views and of the ledger', async () => {
  const { data, text } = await assistant.ask('check_data', { project: first.name })
  const streams = await setup.database.rows(
    `select stream, missing_days, held_days, quarantined_rows, unreconciled_days, is_stale
     from visibility.freshness where project_id = $1 order by stream`,
    [first.id],
  )
  const byStream = (a: any, b: any) => (a.stream < b.stream ? -1 : 1)
  expect(data.rows.sort(byStream)).toEqual(streams.map((row) => expect.objectContaining(row)))
  const [run] = await setup.database.rows('select run_id, command, outcome from visibility_ops.runs')
  expect(text).toContain(`Run ${run!.run_id as number}, sync: ${run!.outcome as string}, began`)
})

test('a project that is not named or not known is answered with those that are there', async () => {
  const none = await assistant.ask('check_data')
  expect([none.isError, none.text]).toEqual([true, expect.stringContaining('there are several projects')])
  const wrong = await assistant.ask('check_data', { project: `${first.name}x` })
  expect(wrong.text).toContain(`did you mean "${first.name}"?`)
})
