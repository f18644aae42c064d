import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import { problemsOf, readRequests } from '../src/create/requests-file.ts'
import { lockRun } from '../src/ledger/run-lock.ts'
import { refusal } from '../src/ledger/source.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { runCli, startCli, startProcess, temporaryFolder, until } from './support/cli.ts'
import { sized } from './support/long.ts'
import { type Setup, type SetupOptions, setUp } from './support/setup.ts'

let setup: Setup

const start = async (options: SetupOptions = {}) => {
  setup = await setUp({ world: { projects: 1, prompts: 3, models: 2, brands: 2 }, ...options })
}
const project = () => setup.service.world.projects[0]!
const fileOf = (name: string, text: string) => {
  const file = join(temporaryFolder().path, name)
  writeFileSync(file, text)
  return file
}
const create = (...args: string[]) => runCli(['create', ...args], { env: setup.env, config: setup.fileConfig })
const twenty = () => {
  const lines = Array.from({ length: 20 }, (_, at) => `"Prompt, number ${at}",${at % 2 ? 'de' : 'US'},Topic ${at % 3}`)
  return fileOf('prompts.csv', `text,country,topic\n${lines.join('\n')}\n`)
}

/** The service has each thing once, and the tables say the same. */
async function expectOnce(): Promise<void> {
  const made = project().prompts.filter(({ text }) => text.startsWith('Prompt, number'))
  expect(made.map(({ text, country }) => `${text} ${country}`).sort()).toEqual(
    Array.from({ length: 20 }, (_, index) => `Prompt, number ${index} ${index % 2 ? 'DE' : 'US'}`).sort(),
  )
  const topics = project().topics.filter(({ name }) => name.startsWith('Topic '))
  expect(topics.map(({ name }) => name).sort()).toEqual(['Topic 0', 'Topic 1', 'Topic 2'])
  const rows = await setup.database.rows<{ prompt_id: string; text: string; topic_id: string }>(
    "select prompt_id, text, topic_id from visibility.prompts where removed_at is null and text like 'Prompt, number%'",
  )
  const key = (prompt: { id: string; text: string; topic: string | null }) =>
    `${prompt.id} ${prompt.text} ${prompt.topic}`
  expect(rows.map(({ prompt_id, text, topic_id }) => key({ id: prompt_id, text, topic: topic_id })).sort()).toEqual(
    made.map(({ id, text, topicId }) => key({ id, text, topic: topicId })).sort(),
  )
  const [open] = await setup.database.rows<{ n: number }>(
    "select count(*)::int as n from visibility_ops.creations where state = 'sent'",
  )
  expect(open).toEqual({ n: 0 })
}

test('one prompt, topic and classification of each kind are created, printed, and in the tables', async () => {
  await start()
  const words = ['prompt', '--text', 'Which trail shoe lasts longest?', '--country', 'DE', '--topic', 'Trail']
  const prompt = await create(...words, '--json')
  expect(prompt.code).toBe(0)
  expect(prompt.json()).toMatchObject({
    created: 1,
    results: [{ status: 'created', id: expect.stringMatching(/^pr_/) }],
  })
  expect((await create('url-classification', '--name', 'Reviews')).stdout).toContain('Created: Reviews')
  const again = await create(...words)
  expect([again.code, again.stdout]).toEqual([0, expect.stringContaining('Exists already: pr_')])
  for (const [table, name] of [
    ['topics', 'Trail'],
    ['url_classifications', 'Reviews'],
  ])
    expect(await setup.database.rows(`select 1 from visibility.${table} where name = $1`, [name])).toHaveLength(1)
  expect(await setup.database.rows("select 1 from visibility.prompts where text like 'Which trail%'")).toHaveLength(1)
  // The next sync agrees.
  const sync = await runCli(['sync', '--stream', 'prompts', '--json'], {
    env: setup.env,
    config: setup.fileConfig,
  })
  expect(sync.json().streams).toMatchObject([{ inserted: 0, updated: 0, deleted: 0 }])
})

test("limits are checked before anything is sent, and the service's warning is shown", async () => {
  await start()
  const before = project().prompts.length
  for (const [args, told] of [
    [['prompt', '--text', 'x'.repeat(701), '--country', 'DE'], '700'],
    [['prompt', '--text', 'fine', '--country', 'UK'], 'did you mean "GB"?'],
    [['topic', '--name', 'x'.repeat(65)], '64'],
    [['url-classification', '--name', 'x', '--color', 'beige'], 'colour'],
    [['prompt', '--text', 'a', '--from', 'prompts.csv'], '--text: cannot be used with --from'],
    [
      ['prompt', '--from', fileOf('good.csv', 'text,country\nGood,DE\n'), '--results', '/nowhere/results.csv', '--yes'],
      '/nowhere/results.csv cannot be written',
    ],
  ] as const) {
    const result = await create(...args)
    expect([result.code, result.stderr]).toEqual([2, expect.stringContaining(told)])
  }
  // Every bad line of a file is named.
  const file = fileOf('bad.csv', `text,country\nGood,DE\n${'x'.repeat(701)},DE\nGood too,XX\n,US\n`)
  const result = await create('prompt', '--from', file, '--yes')
  expect(result.code).toBe(2)
  for (const told of ['line 3', '700', 'line 4', 'XX', 'line 5', 'nothing was sent'])
    expect(result.stderr).toContain(told)
  expect(() => readRequests(fileOf('a.csv', 'text,country,price\nx,DE,7\n'), 'prompt')).toThrow('price')
  expect(project().prompts.length).toBe(before)
  expect((await create('prompt', '--text', 'Short', '--country', 'DE')).stdout).toContain('Warning: ')
})

test('files are read as spreadsheets write them: quotes, newlines, a BOM, semicolons, JSON lines', () => {
  const expected = [
    {
      line: 2,
      kind: 'prompt',
      text: 'He said "yes",\nthen; no',
      country: 'DE',
      tags: ['tg_1', 'tg_2'],
      topic: 'Töpfe',
    },
    { line: 4, kind: 'prompt', text: 'Plain', country: 'US' },
  ]
  const csv = 'text,country,tags,topic\r\n"He said ""yes"",\nthen; no",DE,tg_1|tg_2,Töpfe\r\nPlain,US,,\r\n'
  expect(readRequests(fileOf('a.csv', csv), 'prompt')).toEqual(expected)
  const semicolons =
    '\uFEFFText;Country_Code;Tags;Topic\r\n"He said ""yes"",\nthen; no";DE;tg_1 tg_2;Töpfe\r\nPlain;US;;\r\n'
  expect(readRequests(fileOf('b.csv', semicolons), 'prompt')).toEqual(expected)
  const lines = `${JSON.stringify({ text: 'He said "yes",\nthen; no', country_code: 'DE', tags: ['tg_1', 'tg_2'], topic: 'Töpfe' })}\n\n\n{"text":"Plain","country":"US"}\n`
  expect(readRequests(fileOf('c.jsonl', lines), 'prompt')).toEqual([{ ...expected[0], line: 1 }, expected[1]])
})

test('a topic is an id, or a name of 1 to 64 characters', () => {
  const problems = (topic: string) => problemsOf({ line: 1, kind: 'prompt', text: 'Plain', country: 'US', topic })
  expect([problems('to_1f0c9a52'), problems('Shoes'), problems('x'.repeat(64))]).toEqual([[], [], []])
  for (const topic of ['', 'x'.repeat(65)])
    expect(problems(topic)).toEqual([expect.stringContaining('a name of 1 to 64 characters')])
})

test('a warehouse of synthetic rows is kept apart from a service, and the other way round', () => {
  expect(refusal('reference', 'https://a.example/v1')).toContain('so that synthetic and real rows never mix')
  expect(refusal('https://a.example/v1', 'reference')).toContain('unset DATABASE_URL')
  expect(refusal('https://a.example/v1', 'https://b.example/v1')).toContain('migrate --move-source')
})

test('a file that is not UTF-8 is refused, not read with other letters', () => {
  const file = join(temporaryFolder().path, 'latin-1.csv')
  writeFileSync(file, Buffer.from('text,country\nTöpfe,DE\n', 'latin1'))
  expect(() => readRequests(file, 'topic')).toThrow(`--from: ${file} cannot be read as UTF-8 text`)
})

test('a file is previewed first, and without --yes nothing is sent where nobody can be asked', async () => {
  await start()
  const file = twenty()
  const asked = await create('prompt', '--from', file)
  expect([asked.code, project().prompts.length]).toEqual([2, 3])
  expect(asked.stdout).toContain('20 lines: 20 to create, 0 there already')
  expect(asked.stdout).toContain('3 topics to create first')
  const done = await create('prompt', '--from', file, '--yes')
  expect([done.code, done.stdout]).toEqual([0, expect.stringContaining('20 created')])
  const results = readFileSync(`${file}.results.csv`, 'utf8').trim().split('\r\n')
  expect(results.length).toBe(21)
  expect(results[1]).toMatch(/^2,created,pr_/)
  const again = await create('prompt', '--from', file, '--yes')
  expect([again.code, again.stdout]).toEqual([0, expect.stringContaining('0 created, 20 there already')])
  await expectOnce()
})

test('killed again and again in the middle of twenty lines, each is created exactly once', async () => {
  await start({ faults: { rate_limit: null, latency_ms: 25 } })
  const file = twenty()
  // The id of a topic whose creation was cut off is told by no part of the API, so these are made in peace.
  for (const name of ['Topic 0', 'Topic 1', 'Topic 2']) expect((await create('topic', '--name', name)).code).toBe(0)
  const settings = { env: setup.env, config: setup.fileConfig }
  const mostKills = sized(2, 20)
  let kills = 0
  for (let step = 0; project().prompts.length < 23 && kills < mostKills; step++) {
    const before = project().prompts.length + project().topics.length
    const running = startProcess(['create', 'prompt', '--from', file, '--yes'], settings)
    // At the moment the service has acted, before, or after the answer came back.
    const enough = before + 1 + (step % 4)
    let over = false
    void running.done.then(() => {
      over = true
    })
    while (!over && project().prompts.length + project().topics.length < enough)
      await new Promise((done) => setTimeout(done, 2))
    if (!over) {
      running.child.kill('SIGKILL')
      kills++
    }
    await running.done
  }
  const last = await create('prompt', '--from', file, '--yes')
  expect([last.code, last.stdout]).toEqual([0, expect.stringContaining('0 failed')])
  expect(kills).toBeGreaterThan(1)
  await expectOnce()
})

test('answers that are lost after the service has created something cause no duplicate', async () => {
  await start({ faults: { rate_limit: null, drop_after_create: 0.3, seed: 5 } })
  const file = twenty()
  let result = await create('prompt', '--from', file, '--yes')
  for (let attempt = 0; attempt < 5 && result.code !== 0; attempt++)
    result = await create('prompt', '--from', file, '--yes')
  // A topic whose answer was lost has no id that anyone could tell; its lines say so, and nothing is doubled.
  const topics = project().topics.filter(({ name }) => name.startsWith('Topic '))
  expect(topics.length).toBe(3)
  const made = project().prompts.filter(({ text }) => text.startsWith('Prompt, number'))
  expect(new Set(made.map(({ text }) => text)).size).toBe(made.length)
  if (result.code === 0) await expectOnce()
  else expect(result.stdout).toContain('give its id')
})

test('a conflict counts as existing, and exhausted credits stop the command', async () => {
  await start()
  project().credits = 4
  const file = twenty()
  const stopped = await create('prompt', '--from', file, '--yes')
  expect(stopped.code).toBe(1)
  expect(stopped.stdout).toContain('4 created, 0 there already, 1 failed, 15 not sent')
  expect(stopped.stdout).toContain('the credits are used up')
  project().credits = 100
  expect((await create('prompt', '--from', file, '--yes')).stdout).toContain('16 created, 4 there already')
  await expectOnce()
  // A topic that exists in the service, and that nobody here knows of.
  project().topics.push({ id: 'to_elsewhere', name: 'Made elsewhere' })
  const known = await create('topic', '--name', 'Made elsewhere')
  expect([known.code, known.stdout]).toEqual([0, expect.stringContaining('Exists already')])
  // No topic is created for prompts that exist already.
  const [prompt] = project().prompts
  Object.assign(prompt!, { country: 'DE' })
  const before = project().topics.length
  const line = JSON.stringify({ text: prompt!.text, country: 'DE', topic: 'Nobody needs this' })
  const result = await create('prompt', '--from', fileOf('one.jsonl', line), '--yes')
  expect([result.code, result.stdout]).toEqual([0, expect.stringContaining('0 created, 1 there already')])
  expect(project().topics.length).toBe(before)
})

test('a stop in the middle reports what was created, and a rerun continues', async () => {
  await start({ faults: { rate_limit: null, latency_ms: 40 } })
  const file = twenty()
  const running = startCli(['create', 'prompt', '--from', file, '--yes'], {
    env: setup.env,
    config: setup.fileConfig,
  })
  while (project().prompts.length < 10) await new Promise((done) => setTimeout(done, 5))
  running.stop()
  const stopped = await running.done
  setup.service.setFaults({ rate_limit: null })
  expect(stopped.code).toBe(1)
  expect(stopped.stdout).toMatch(/\d+ created, 0 there already, \d+ failed, \d+ not sent/)
  expect(readFileSync(`${file}.results.csv`, 'utf8')).toContain('created,pr_')
  const last = await create('prompt', '--from', file, '--yes')
  expect([last.code, last.stdout]).toEqual([0, expect.stringContaining('0 failed')])
  await expectOnce()
})

test('create waits for a sync that is loading the prompts', async () => {
  await start()
  const { warehouse } = setup.database
  await migrate(warehouse, setup.config)
  const pair = { projectId: project().id, stream: 'prompts' }
  const start_ = { command: 'sync', version: 'test', source: setup.service.url }
  const other = await lockRun(warehouse, [pair], start_, { log: setup.services.log })
  const before = project().prompts.length
  const running = create('prompt', '--text', 'Is anyone there at all today?', '--country', 'DE')
  const begun = "select from visibility_ops.runs where command = 'create prompt'"
  await until('it has begun', async () => (await setup.database.rows(begun)).length > 0)
  expect(project().prompts.length).toBe(before)
  await other.release()
  expect((await running).stdout).toContain('Created: pr_')
})

test('without countries in answers nothing is sent again, and a lost answer is not taken for another prompt', async () => {
  await start({ config: { source: { max_attempts: 1, patience_seconds: 1 } } })
  for (const prompt of project().prompts) Object.assign(prompt, { country: null })
  const hide = () => {
    for (const prompt of project().prompts) if (prompt.text.startsWith('Same')) Object.assign(prompt, { country: null })
  }
  expect((await create('prompt', '--text', 'Same words in both', '--country', 'US')).code).toBe(0)
  hide()
  const again = await create('prompt', '--text', 'Same words in both', '--country', 'US')
  expect(again.stdout).toContain('Exists already: pr_')
  expect(await setup.database.rows('select attempts from visibility_ops.creations')).toEqual([{ attempts: 1 }])
  // The answer is lost before the service has acted: the other country's prompt is not this one.
  setup.service.setFaults({ rate_limit: null, server_error: 1 })
  const result = await create('prompt', '--text', 'Same words in both', '--country', 'DE')
  expect([result.code, result.stdout + result.stderr]).toEqual([1, expect.not.stringContaining('Created')])
})
