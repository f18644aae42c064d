import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { runCli } from './support/cli.ts'
import { FOUR_GRAINS, type Setup, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

let setup: Setup
const range = { from: '2026-03-01', to: '2026-03-31' }

beforeAll(async () => {
  setup = await setUp({ world: { projects: 2, awkward: true, prompts: 8, models: 2, brands: 8 } })
})
afterAll(() => setup.close())

async function rowVersions(): Promise<string[]> {
  const tables = await setup.database.rows<{ name: string }>(
    "select table_name as name from information_schema.tables where table_schema = 'visibility' and table_type = 'BASE TABLE'",
  )
  const versions: string[] = []
  for (const { name } of tables) {
    const rows = await setup.database.rows<{ version: string }>(
      `select xmin::text || ' ' || ctid::text as version from visibility.${name}`,
    )
    versions.push(...rows.map(({ version }) => `${name} ${version}`))
  }
  return versions.sort()
}

test('two projects at four grains equal the service row for row, and a second sync changes no row version', async () => {
  const options = { env: setup.env, config: setup.fileConfig }
  const first = await runCli(['sync', '--json'], options)
  expect(first.stderr).not.toContain('"level":"error"')
  expect(first.code).toBe(0)
  await expectExact(setup.database, { world: setup.service.world, range, reports: FOUR_GRAINS })

  const before = await rowVersions()
  const second = await runCli(['sync'], options)
  expect(second.code).toBe(0)
  expect(second.stdout).toContain('nothing to change')
  expect(await rowVersions()).toEqual(before)
})

test('names with quotes, tabs, backslashes and other scripts arrive unharmed', async () => {
  const names = await setup.database.rows<{ name: string }>('select name from visibility.brands')
  expect(names.map(({ name }) => name)).toEqual(
    expect.arrayContaining(['O\'Neill "Pro"', 'Tab\there', 'Back\\slash\\N', '東京ランナー', 'line\nbreak', 'عداء']),
  )
})

test('prompts without a topic and brands without a mention are nulls, not zeros', async () => {
  const [counts] = await setup.database.rows<{ no_topic: number; no_position: number; odd: number }>(
    `select (select count(*) from visibility.by_topic where topic_id is null)::int as no_topic,
       (select count(*) from visibility.by_prompt where position is null and sentiment is null)::int as no_position,
       (select count(*) from visibility.by_prompt where position is null and position_count > 0)::int as odd`,
  )
  expect(counts!.no_topic).toBeGreaterThan(0)
  expect(counts!.no_position).toBeGreaterThan(0)
  expect(counts!.odd).toBe(0)
})
