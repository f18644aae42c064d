import { describe, expect, test } from '@jest/globals'
import { CreationJournal } from '../src/create/creation-journal.ts'
import { type CreationRequest, idempotencyKey } from '../src/create/creation-request.ts'
import type { CreationKind } from '../src/ledger/creations.ts'
import { withRun } from '../src/ledger/with-run.ts'
import { startProxy } from './support/proxy.ts'
import { type Setup, setUp } from './support/setup.ts'

const TEXT = 'Which shoe lasts?'

/** A project with one prompt, of which the service sends no country. */
async function start(): Promise<Setup> {
  const setup = await setUp({ world: { projects: 1, prompts: 1 }, config: { source: { max_attempts: 1 } } })
  Object.assign(promptOf(setup), { text: TEXT, country: null })
  return setup
}

const promptOf = ({ service }: Setup) => service.world.projects[0]!.prompts[0]!

/** What work with a journal gives, in a run. */
function inJournal<T>(
  { services, projects }: Setup,
  kind: CreationKind,
  work: (journal: CreationJournal) => T | Promise<T>,
): Promise<T> {
  const { warehouse, log, source } = services
  const begin = { command: 'create', version: 'test', source, projectStreams: [] }
  return withRun(warehouse, begin, { log }, async ({ runId, signal }) => {
    const journal = new CreationJournal(services, projects[0]!, runId, signal)
    await journal.open([kind])
    return { result: await work(journal), outcome: 'complete' as const }
  })
}

const prompt = (country: string, text = TEXT): CreationRequest => ({ line: 1, kind: 'prompt', text, country })

interface Attempt {
  of: CreationRequest
  state?: string
  id?: string
  /** When it was sent, from now. */
  sent?: string
}

async function saveAttempts({ database, projects }: Setup, attempts: readonly Attempt[]): Promise<void> {
  for (const { of, state = 'sent', id = null, sent = '-1 hour' } of attempts)
    await database.rows(
      `insert into visibility_ops.creations (project_id, kind, identity, request, state, id, sent_at)
       values ($1, 'prompt', $2, '{}', $3, $4, now() + $5::interval)`,
      [projects[0]!.id, idempotencyKey(of), state, id, sent],
    )
}

describe('if the service sends no countries, a prompt is taken for one whose answer was lost', () => {
  test('if it has its text and appeared after it was sent', async () => {
    const setup = await start()
    await saveAttempts(setup, [{ of: prompt('DE') }])
    expect(await inJournal(setup, 'prompt', (journal) => journal.isThere(prompt('DE')))).toBe(true)
  })

  const others: [string, (id: string) => Attempt[]][] = [
    ['has another text', () => [{ of: prompt('DE', 'Which lasts?') }]],
    ['was there before it was sent', () => [{ of: prompt('DE'), sent: '1 hour' }]],
    ['was refused', () => [{ of: prompt('DE'), state: 'failed' }]],
    ['belongs to another creation', (id) => [{ of: prompt('US'), state: 'created', id }, { of: prompt('DE') }]],
  ]
  test.each(others)('and not one that %s', async (_, attemptsOf) => {
    const setup = await start()
    const attempts = attemptsOf(promptOf(setup).id)
    await saveAttempts(setup, attempts)
    expect(await inJournal(setup, 'prompt', (journal) => journal.isThere(attempts.at(-1)!.of))).toBe(false)
  })

  test('for one of several', async () => {
    const setup = await start()
    const wanted = [prompt('DE'), prompt('US')]
    await saveAttempts(
      setup,
      wanted.map((of) => ({ of })),
    )
    const there = await inJournal(setup, 'prompt', (journal) => wanted.filter((item) => journal.isThere(item)))
    expect(there).toHaveLength(1)
  })
})

test('a prompt that was removed, or is in another project, does not exist', async () => {
  const setup = await start()
  Object.assign(promptOf(setup), { country: 'DE' })
  await setup.database.rows(
    `insert into visibility.prompts (project_id, prompt_id, text, country_code, removed_at)
     values ($1, 'pr_1', $2, 'US', now()), ('or_other', 'pr_2', $2, 'FR', null)`,
    [setup.projects[0]!.id, TEXT],
  )
  const countries = ['DE', 'US', 'FR']
  const there = await inJournal(setup, 'prompt', (journal) => countries.filter((one) => journal.isThere(prompt(one))))
  expect(there).toEqual(['DE'])
})

const named: [CreationKind, string, string][] = [
  ['topic', 'topics', 'topic_id'],
  ['url-classification', 'url_classifications', 'color'],
]
test.each(named)('a %s that was removed, or is in another project, does not exist', async (kind, table, column) => {
  const setup = await start()
  const insert = `insert into visibility.${table} (project_id, ${column}, name, removed_at) values`
  await setup.database.rows(
    `${insert} ($1, 'to_1', 'there', null), ($1, 'to_2', 'gone', now()), ('or_other', 'to_3', 'elsewhere', null)`,
    [setup.projects[0]!.id],
  )
  const names = ['there', 'gone', 'elsewhere']
  const there = await inJournal(setup, kind, (journal) => names.filter((name) => journal.isThere({ kind, name })))
  expect(there).toEqual(['there'])
})

describe('a creation that is refused', () => {
  test.each([
    [400, false],
    [402, true],
    [403, true],
    [422, false],
  ])('with %d is stored as failed with the reason, and stops the others: %s', async (status, stops) => {
    const setup = await start()
    const proxy = await startProxy(
      setup.service.url,
      ({ method, url }) => method === 'POST' && url!.includes('/topics'),
      status,
    )
    const item: CreationRequest = { line: 1, kind: 'topic', name: 'New' }
    const made = await setup.through(proxy.url, () => inJournal(setup, 'topic', (journal) => journal.create(item)))
    expect([made.status, made.stop ?? false]).toEqual(['failed', stops])
    expect(await setup.database.rows('select identity, state, error from visibility_ops.creations')).toEqual([
      { identity: 'New', state: 'failed', error: made.message },
    ])
  })
})

test('each attempt is counted, and what was sent last is stored', async () => {
  const setup = await start()
  const proxy = await startProxy(setup.service.url, ({ method }) => method === 'POST', 422)
  const create = (color: string) =>
    setup.through(proxy.url, () =>
      inJournal(setup, 'url-classification', (journal) =>
        journal.create({ line: 1, kind: 'url-classification', name: 'New', color }),
      ),
    )
  await create('red')
  await create('blue')
  const [stored] = await setup.database.rows('select attempts, request from visibility_ops.creations')
  expect(stored).toEqual({ attempts: 2, request: { name: 'New', color: 'blue' } })
})

test('nothing is sent for a run that another command took over', async () => {
  const setup = await start()
  const made = await inJournal(setup, 'topic', async (journal) => {
    await setup.database.rows("update visibility_ops.runs set outcome = 'interrupted' where command = 'create'")
    return journal.create({ line: 1, kind: 'topic', name: 'New' })
  })
  expect(made).toMatchObject({ status: 'failed', stop: true, message: expect.stringContaining('took over') })
  expect(setup.service.requests.filter(({ method }) => method === 'POST')).toEqual([])
  expect(await setup.database.rows('select from visibility_ops.creations')).toEqual([])
})
