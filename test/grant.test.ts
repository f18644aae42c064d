import { randomBytes } from 'node:crypto'
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals'
import { DEFAULT_REPORTS } from '../src/core/config/schema.ts'
import { CHANNEL_TWINS } from '../src/warehouse/schema/catalogue.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { verifyReader } from '../src/warehouse/schema/verify-reader.ts'
import { unusedRelations } from '../src/warehouse/schema/views.ts'
import { runCli } from './support/cli.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { configOf } from './support/setup.ts'

/* grant and check claim nothing of privileges that the database does not confirm. */

let database: TestDatabase
let name: string
const tail = randomBytes(4).toString('hex')
const reader = `reader_${tail}`
const group = `group_${tail}`
const other = `other_${tail}`
const settings = () => ({ env: { DATABASE_URL: database.url }, config: {} })
const CLOSED = ['visibility_ops', 'visibility_queue']
/** Undoes what a test did. */
const undo: string[] = []

beforeAll(async () => {
  database = await createDatabase('migrated')
  name = new URL(database.url).pathname.slice(1)
  await migrate(database.warehouse, configOf({}))
  await database.rows('create schema visibility_queue')
  await database.rows('create table visibility_queue.job (id int)')
  for (const role of [reader, group, other]) await database.rows(`create role ${role} login password 'secret-of-tests'`)
})
afterEach(async () => {
  for (const statement of undo.splice(0).reverse()) await database.rows(statement)
})
afterAll(async () => {
  for (const role of [reader, group, other]) {
    await database.rows(`grant ${role} to current_user`)
    await database.rows(`drop owned by ${role}`)
    await database.rows(`drop role ${role}`)
  }
  await database.drop()
})

async function given(statement: string, undoing: string): Promise<void> {
  await database.rows(statement)
  undo.push(undoing)
}
const grant = async () => {
  const result = await runCli(['grant', '--role', reader, '--json'], settings())
  return { code: result.code, ...result.json() } as {
    code: number
    ok: boolean
    problems: string[]
    relations: number
    closed: string[]
  }
}

test('a role that reads what it should and nothing else is confirmed, with what was looked at', async () => {
  expect(await grant()).toMatchObject({ code: 0, ok: true, problems: [], relations: 42, closed: CLOSED })
  const told = await runCli(['grant', '--role', reader], settings())
  expect([told.code, told.stdout]).toEqual([0, expect.stringContaining('reads 42 tables and views')])
  expect(told.stdout).toContain('visibility_ops and visibility_queue are closed to it')
})

test('streams that are not configured are left out until they are', async () => {
  const seen = async () =>
    (
      await database.rows<{ name: string }>(
        `select c.relname::text as name from pg_class c where relnamespace = 'visibility'::regnamespace
           and relkind in ('r', 'p', 'v') and has_table_privilege($1, oid, 'select') order by 1`,
        [reader],
      )
    ).map(({ name }) => name)
  const { left_out } = (await runCli(['grant', '--role', reader, '--json'], settings())).json() as {
    left_out: string[]
  }
  expect(left_out).toEqual(expect.arrayContaining(['chat_contents', 'model_channels', 'sources_weekly']))
  const before = await seen()
  expect(before.filter((name) => left_out.includes(name))).toEqual([])
  expect(before.length).toBeLessThanOrEqual(42)
  const sources = [{ name: 'domain_daily', of: 'domains', dimensions: ['date'] }]
  const config = { extras: 'auto', chat_contents: { share: 0.1 }, reports: [...DEFAULT_REPORTS, ...sources] }
  await database.rows("insert into visibility.model_channels (project_id, model_channel_id) values ('p', 'c')")
  expect((await runCli(['grant', '--role', reader], { ...settings(), config })).code).toBe(0)
  const more = (await seen()).filter((name) => !before.includes(name))
  expect(more).toEqual(expect.arrayContaining(['chat_contents', 'domain_daily', 'model_channels', 'sources_weekly']))
  expect(more).toEqual(expect.arrayContaining(Object.values(CHANNEL_TWINS)))
  expect(more).not.toContain('cited_pages_weekly')
})

test('reports by channel are left out only if there are the same by model', () => {
  const byChannel = DEFAULT_REPORTS.filter(({ name }) => name === 'brand_daily_by_channel')
  const unused = unusedRelations(configOf({ reports: byChannel }))
  expect(unused.filter((name) => name.includes('channel'))).toEqual(['model_channels'])
})

test('a command of a role that lacks privileges exits with 2 and says where they are listed', async () => {
  await given(`grant connect on database ${name} to ${other}`, `revoke connect on database ${name} from ${other}`)
  const url = new URL(database.url)
  Object.assign(url, { username: other, password: 'secret-of-tests' })
  for (const words of ['status', 'plan', 'quarantine list']) {
    const env = { DATABASE_URL: url.href, VISIBILITY_API_URL: 'reference' }
    const { code, stderr } = await runCli(words.split(' '), { env, config: {} })
    expect([words, code, stderr]).toEqual([words, 2, expect.stringContaining('docs/how-to/database-role.md')])
  }
})

test('the role reads in UTC and without compiling queries, unless its settings are to be kept', async () => {
  const of = async () =>
    (await database.rows(`select setconfig from pg_db_role_setting where setrole = '${reader}'::regrole`)).flatMap(
      (row) => row.setconfig,
    )
  await given(
    `alter role ${reader} in database ${name} reset all`,
    `alter role ${reader} in database ${name} reset all`,
  )
  const kept = await runCli(['grant', '--role', reader, '--keep-settings', '--json'], settings())
  expect(kept.json()).toMatchObject({ time_zone: 'kept', jit: 'kept' })
  expect(await of()).toEqual([])
  const result = await runCli(['grant', '--role', reader, '--json'], settings())
  expect(result.json()).toMatchObject({ time_zone: 'UTC', jit: 'off' })
  expect(await of()).toEqual(['TimeZone=UTC', 'jit=off'])
})

test('what PUBLIC may do counts for the role, in the ledger, in the queue and in the tables', async () => {
  await given('grant usage on schema visibility_ops to public', 'revoke usage on schema visibility_ops from public')
  expect(await grant()).toMatchObject({
    code: 1,
    ok: false,
    problems: [`${reader} can look into visibility_ops, which should be closed to it, through PUBLIC`],
  })
  await given(
    'grant select (error) on visibility_ops.runs to public',
    'revoke select (error) on visibility_ops.runs from public',
  )
  expect((await grant()).problems).toEqual([
    `${reader} can read or write visibility_ops.runs, which should be closed to it, through PUBLIC`,
  ])
  await given('grant usage on schema visibility_queue to public', 'revoke usage on schema visibility_queue from public')
  await given('grant delete on visibility_queue.job to public', 'revoke delete on visibility_queue.job from public')
  expect((await grant()).problems[1]).toBe(
    `${reader} can read or write visibility_queue.job, which should be closed to it, through PUBLIC`,
  )
  await given('grant update on visibility.brands to public', 'revoke update on visibility.brands from public')
  await given('grant create on schema visibility to public', 'revoke create on schema visibility from public')
  const told = await runCli(['grant', '--role', reader], settings())
  expect(told.code).toBe(1)
  expect(told.stdout).toContain(`✗ ${reader} can write to visibility.brands, through PUBLIC`)
  expect(told.stdout).toContain(`✗ ${reader} can make tables in visibility, through PUBLIC`)
  expect(told.stdout).not.toContain('Checked:')
})

test.each(['inherit true', 'inherit false'])(
  'what a role may do through a membership with %s counts',
  async (option) => {
    const [{ version }] = (await database.rows<{ version: number }>(
      "select current_setting('server_version_num')::int as version",
    )) as [{ version: number }]
    // Before Postgres 16 the role as a whole inherits or does not.
    const inherits = option === 'inherit true' ? 'inherit' : 'noinherit'
    if (version < 160_000) await given(`alter role ${reader} ${inherits}`, `alter role ${reader} inherit`)
    await given(
      `grant ${group} to ${reader}${version < 160_000 ? '' : ` with ${option}`}`,
      `revoke ${group} from ${reader}`,
    )
    await given(
      `grant usage on schema visibility_ops to ${group}`,
      `revoke usage on schema visibility_ops from ${group}`,
    )
    await given(`grant select on visibility_ops.runs to ${group}`, `revoke select on visibility_ops.runs from ${group}`)
    expect(await grant()).toMatchObject({
      code: 1,
      problems: [`${reader} can read or write visibility_ops.runs, which should be closed to it, through ${group}`],
    })
  },
)

test('a role that reads all data is told so', async () => {
  const { problems } = await verifyReader(database.warehouse, 'pg_read_all_data', { closedSchemas: CLOSED, unused: [] })
  expect(problems.join('\n')).toMatch(/pg_read_all_data can read or write visibility_ops\.\w+, .* and \d+ more/)
})

test('a table that it cannot read, and a view that reads what it cannot, are named', async () => {
  await given('create table public.hidden_base (a int)', 'drop table public.hidden_base')
  await given(
    'create view visibility.theirs with (security_invoker = on) as select * from public.hidden_base',
    'drop view visibility.theirs',
  )
  expect(await grant()).toMatchObject({ code: 1, problems: [`${reader} cannot read theirs`] })
  await given(`grant select on public.hidden_base to ${reader}`, `revoke all on public.hidden_base from ${reader}`)
  expect((await grant()).code).toBe(0)
  await given(`revoke connect on database ${name} from public`, `grant connect on database ${name} to public`)
  expect((await grant()).problems).toEqual([`${reader} may not connect to this database: grant connect on it`])
})

test('tables that another role makes later are promised only where that role has promised them', async () => {
  await given(`grant usage, create on schema visibility to ${other}`, `revoke all on schema visibility from ${other}`)
  await given(`grant ${other} to current_user`, `revoke ${other} from current_user`)
  await database.rows(`set role ${other}; create table visibility.from_another (a int); reset role`)
  undo.push(`set role ${other}; drop table visibility.from_another; reset role`)
  const inherited = await grant()
  expect([inherited.code, inherited.problems]).toEqual([0, []])
  // A role that may not speak for the other can neither grant nor promise anything for it.
  const { problems } = await verifyReader(database.warehouse, group, { closedSchemas: CLOSED, unused: [] })
  expect(problems).toContainEqual(expect.stringContaining(`tables that`))
  expect(problems.join()).toContain(other)
  await database.rows(`set role ${other}; create table visibility.made_later (a int); reset role`)
  undo.push(`set role ${other}; drop table visibility.made_later; reset role`)
  expect(
    await database.rows('select has_table_privilege($1, $2, $3) as may', [reader, 'visibility.made_later', 'select']),
  ).toEqual([{ may: true }])
})

test('check looks at the schema of the queue where there is to be one', async () => {
  const url = new URL(database.url)
  url.username = other
  url.password = 'secret-of-tests'
  const rights = 'usage, create on schema visibility, visibility_ops'
  await given(`grant ${rights} to ${other}`, `revoke ${rights} from ${other}`)
  await given(`grant temporary on database ${name} to ${other}`, `revoke temporary on database ${name} from ${other}`)
  const tables = 'select, insert, update, delete on all tables in schema visibility, visibility_ops'
  await given(`grant ${tables} to ${other}`, `revoke ${tables} from ${other}`)
  const verdict = async (config: object) => {
    const result = await runCli(['check', '--json'], { env: { DATABASE_URL: url.href }, config })
    return result.json().verdicts.find(({ what }: { what: string }) => what === 'privileges')
  }
  expect(await verdict({})).toMatchObject({ ok: true })
  expect(await verdict({ queue: { mode: 'pg-boss' } })).toMatchObject({
    ok: false,
    detail: expect.stringContaining('usage and create on schema visibility_queue'),
  })
  await given(
    `grant usage, create on schema visibility_queue to ${other}`,
    `revoke all on schema visibility_queue from ${other}`,
  )
  expect(await verdict({ queue: { mode: 'pg-boss' } })).toMatchObject({
    ok: false,
    detail: expect.stringContaining('select, insert, update, delete on visibility_queue.job'),
  })
  await given(`grant all on visibility_queue.job to ${other}`, `revoke all on visibility_queue.job from ${other}`)
  expect(await verdict({ queue: { mode: 'pg-boss' } })).toMatchObject({
    ok: true,
    detail: expect.stringContaining('visibility_queue'),
  })
  await given(`revoke delete on visibility_ops.runs from ${other}`, `grant delete on visibility_ops.runs to ${other}`)
  expect(await verdict({})).toMatchObject({
    ok: false,
    detail: expect.stringContaining('select, insert, update, delete on visibility_ops.runs'),
  })
})
