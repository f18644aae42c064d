import { afterEach, expect, test } from '@jest/globals'
import { some } from './support/long.ts'
import { type Setup, setUp } from './support/setup.ts'

/* Lists are read whole. One that did not change is told by its digest, so whatever differs must show in it. */

let setup: Setup
afterEach(() => setup.close())

const LISTS = ['project_profile', 'prompts', 'prompt_suggestions', 'domain_classifications']
const TABLES = [
  'project_profiles',
  'prompts',
  'prompt_tags',
  'prompt_suggestions',
  'prompt_suggestion_tags',
  'domain_classifications',
]

/** All rows that are on the lists, without when they came there. */
const listed = async () => {
  const tables = TABLES.map(async (table) => {
    const rows = await setup.database.rows<{ row: Record<string, unknown> }>(
      `select to_jsonb(t) - 'first_seen_at' as row from visibility.${table} t order by (to_jsonb(t) - 'first_seen_at')::text`,
    )
    return rows.map(({ row }) => row).filter(({ removed_at }) => removed_at == null)
  })
  return Promise.all(tables)
}

const read = async (disabled: Setup['config']['disabled'] = []) => {
  setup.services.config = { ...setup.config, disabled }
  const report = await setup.sync({ streams: setup.services.streams.named(LISTS) })
  expect(report.outcome).toBe('complete')
  return report.streams.reduce((sum, { inserted, updated, deleted }) => sum + inserted + updated + deleted, 0)
}

const FIRST = '(select min(prompt_id) from visibility.prompts)'
const BY_HAND = [
  `update visibility.prompts set text = text || '.' where prompt_id = ${FIRST}`,
  `update visibility.prompts set text = '' where prompt_id = ${FIRST}`,
  `update visibility.prompts set messages = '[]' where prompt_id = ${FIRST}`,
  `update visibility.prompts set user_location = '{"city": "Nowhere"}' where prompt_id = ${FIRST}`,
  `update visibility.prompts set topic_id = null where prompt_id = ${FIRST}`,
  `update visibility.prompts set removed_at = now() where prompt_id = ${FIRST}`,
  `with moved as (select prompt_id, lead(text) over w as text from visibility.prompts window w as (order by prompt_id))
   update visibility.prompts p set text = moved.text from moved where moved.prompt_id = p.prompt_id and moved.text is not null`,
  `delete from visibility.prompts where prompt_id = ${FIRST}`,
  `insert into visibility.prompts (project_id, prompt_id, text, messages) select project_id, 'pr_more', 'More?', '[]'
   from visibility.prompts limit 1`,
  'delete from visibility.prompt_tags where ctid in (select min(ctid) from visibility.prompt_tags)',
  `update visibility.prompt_tags set tag_id = 'another' where ctid in (select min(ctid) from visibility.prompt_tags)`,
  `insert into visibility.prompt_tags (project_id, prompt_id, tag_id) select project_id, prompt_id, 'one more'
   from visibility.prompts limit 1`,
  'update visibility.project_profiles set used_prepared_profile = not used_prepared_profile',
  "update visibility.project_profiles set industry = 'another'",
  "update visibility.project_profiles set audience_distribution = '{}'",
  'delete from visibility.domain_classifications',
]

test('a list that somebody changed is as the service has it after the next run', async () => {
  setup = await setUp({ world: { projects: 2, prompts: 7, models: 2, brands: 3 }, config: { reports: [] } })
  expect(await read()).toBeGreaterThan(10)
  const before = await listed()
  expect(before.map((rows) => rows.length > 0)).toEqual(TABLES.map(() => true))
  for (const statement of some(BY_HAND, 6)) {
    await setup.database.rows(statement)
    expect({ statement, listed: await listed() }).not.toEqual({ statement, listed: before })
    await read()
    expect({ statement, listed: await listed() }).toEqual({ statement, listed: before })
    expect(await read()).toBe(0)
  }
  // Compared row by row, there is nothing to change either.
  expect(await read(['window-digest'])).toBe(0)
})
