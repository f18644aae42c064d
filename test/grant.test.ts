import { randomBytes } from 'node:crypto'
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals'
import { Client } from 'pg'
import { DEFAULT_REPORTS } from '../src/core/config/schema.ts'
import { migrate } from '../src/warehouse/schema/migrate.ts'
import { runCli } from './support/cli.ts'
import { closeLater } from './support/close-later.ts'
import { startMetabase } from './support/metabase-server.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { configOf, type Setup, setUp } from './support/setup.ts'

/** Names, texts and addresses of which the planner has statistics, in tables with policies and in their partitions and indexes. */
const STATISTICS_OF_TEXTS = `
  select tablename::text, attname::text from pg_stats where (schemaname = 'visibility' or tablename ~ '_(20\\d\\d_\\d\\d|rest)')
    and attname ~ '^(name|text|url|domain|title|channel_title|classification|regex|md5|occupation|industry)$'`

describe('grant', () => {
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
    for (const role of [reader, group, other])
      await database.rows(`create role ${role} login password 'secret-of-tests'`)
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

  test('a role with exactly the needed access is confirmed, with a list of what was checked', async () => {
    expect(await grant()).toMatchObject({ code: 0, ok: true, problems: [], relations: 43, closed: CLOSED })
    const told = await runCli(['grant', '--role', reader], settings())
    expect([told.code, told.stdout]).toEqual([0, expect.stringContaining('reads 43 tables and views')])
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
    expect(left_out).toEqual(expect.arrayContaining(['chat_contents', 'url_classifications', 'sources_weekly']))
    const before = await seen()
    expect(before.filter((name) => left_out.includes(name))).toEqual([])
    expect(before.length).toBeLessThanOrEqual(43)
    const sources = [{ name: 'domain_daily', of: 'domains', dimensions: ['date'] }]
    const config = { extras: 'auto', chat_contents: { share: 0.1 }, reports: [...DEFAULT_REPORTS, ...sources] }
    await database.rows("insert into visibility.model_channels (project_id, model_channel_id) values ('p', 'c')")
    expect((await runCli(['grant', '--role', reader], { ...settings(), config })).code).toBe(0)
    const more = (await seen()).filter((name) => !before.includes(name))
    expect(more).toEqual(expect.arrayContaining(['chat_contents', 'domain_daily', 'sources_weekly']))
  })

  test('tables and views that have rows are not left out, though nothing fills them now', async () => {
    const used = ['brand_daily_by_channel', 'visibility_by_channel_weekly', 'prompt_suggestions', 'chat_contents']
    const config = { extras: 'off', streams: ['prompts'], reports: [...DEFAULT_REPORTS] }
    const leftOut = async () => {
      const { left_out } = (await runCli(['grant', '--role', reader, '--json'], { ...settings(), config })).json()
      return used.filter((name) => left_out.includes(name))
    }
    await database.rows(`revoke all on all tables in schema visibility from ${reader}`)
    expect(await leftOut()).toEqual(used)
    await given(
      `insert into visibility.brand_daily_by_channel (project_id, date, model_channel_id, brand_id, visibility_count)
       values ('p', '2026-01-01', null, 'b', 1)`,
      'truncate visibility.brand_daily_by_channel',
    )
    await given(
      "insert into visibility.prompt_suggestions (project_id, suggestion_id, text) values ('p', 's', 'best shoes?')",
      'truncate visibility.prompt_suggestions cascade',
    )
    await given(
      "insert into visibility.chat_contents (project_id, chat_id) values ('p', 'c')",
      'truncate visibility.chat_contents',
    )
    expect(await leftOut()).toEqual([])
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

  test('privileges of PUBLIC count for the role, in the ledger and in the tables', async () => {
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
    await given('grant update on visibility.brands to public', 'revoke update on visibility.brands from public')
    const told = await runCli(['grant', '--role', reader], settings())
    expect(told.code).toBe(1)
    expect(told.stdout).toContain(`${reader} can read or write visibility_ops.runs, which should be closed to it`)
    expect(told.stdout).toContain(`✗ ${reader} can write to visibility.brands, through PUBLIC`)
    expect(told.stdout).not.toContain('Checked:')
  })

  test('privileges through a membership that is not inherited count', async () => {
    const [{ version }] = (await database.rows<{ version: number }>(
      "select current_setting('server_version_num')::int as version",
    )) as [{ version: number }]
    // Before Postgres 16 the role as a whole inherits or does not.
    if (version < 160_000) await given(`alter role ${reader} noinherit`, `alter role ${reader} inherit`)
    await given(
      `grant ${group} to ${reader}${version < 160_000 ? '' : ' with inherit false'}`,
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
  })

  test('tables that the role cannot read, and views that read such tables, are named', async () => {
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

  test('check covers the schema of the queue if a queue is configured', async () => {
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
    await given(
      `grant usage, create on schema visibility_queue to ${other}`,
      `revoke all on schema visibility_queue from ${other}`,
    )
    expect(await verdict({ queue: { mode: 'pg-boss' } })).toMatchObject({
      ok: false,
      detail: expect.stringContaining('select, insert, update, delete on visibility_queue.job'),
    })
  })
})

describe('restricted readers', () => {
  /* An agency keeps several clients in one warehouse. The login of a client sees that client alone. */

  const tail = randomBytes(4).toString('hex')
  const [first, second, everybody] = ['first', 'second', 'all'].map((name) => `${name}_${tail}`) as [
    string,
    string,
    string,
  ]
  const REPORTS = [
    { name: 'brand_daily', dimensions: ['date'] },
    { name: 'by_model', dimensions: ['date', 'model_id'] },
    { name: 'by_topic', dimensions: ['date', 'topic_id'] },
    { name: 'by_prompt', dimensions: ['date', 'prompt_id', 'model_id'] },
    { name: 'by_topic_and_model', dimensions: ['date', 'topic_id', 'model_id'] },
    { name: 'domains', of: 'domains', dimensions: ['date'] },
    { name: 'urls', of: 'urls', dimensions: ['date'] },
  ]
  let setup: Setup
  let relations: string[]
  /** What only one project has: its id, its name, and the ids of its brands, prompts and topics. */
  let marksOf: (project: string) => string[]
  const clients = new Map<string, Client>()
  const cli = (...args: string[]) => runCli(args, { env: setup.env, config: setup.fileConfig })
  const ids = () => setup.service.world.projects.map(({ id }) => id) as [string, string, string]

  async function connect(role: string): Promise<Client> {
    const url = new URL(setup.database.url)
    url.username = role
    url.password = 'secret'
    const client = new Client({ connectionString: url.href })
    await client.connect()
    clients.set(role, client)
    return client
  }

  beforeAll(async () => {
    setup = await setUp({
      world: { projects: 3, prompts: 5, models: 3, brands: 3 },
      extras: 'all',
      config: {
        start_date: '2026-03-23',
        extras: 'auto',
        reports: REPORTS,
        chat_contents: { share: 0.05, requests_per_day: 5 },
      },
    })
    for (const role of [first, second, everybody])
      await setup.database.rows(`create role ${role} login password 'secret'`)
    const [a, b] = ids()
    // Before Postgres 18, only a superuser could remove statistics from before the first restriction.
    expect((await cli('grant', '--role', first, '--project', a)).code).toBe(0)
    await cli('sync')
    expect((await cli('grant', '--role', everybody)).code).toBe(0)
    expect((await cli('grant', '--role', first, '--project', a)).code).toBe(0)
    expect((await cli('grant', '--role', second, '--project', a, '--project', b)).code).toBe(0)
    relations = (
      await setup.database.rows<{ name: string }>(
        `select relname::text as name from pg_class where relnamespace = 'visibility'::regnamespace and relkind in ('r', 'p', 'v')
         and relname <> all('{source_gaps,url_classifications}') order by 1`,
      )
    ).map(({ name }) => name)
    marksOf = (id) => {
      const { name, brands, prompts, topics } = setup.service.world.projects.find((project) => project.id === id)!
      return [id, name, ...[...brands, ...prompts, ...topics].map((one) => one.id)]
    }
    for (const role of [first, second, everybody]) await connect(role)
  }, 180_000)
  afterAll(async () => {
    for (const client of clients.values()) await client.end()
    for (const role of [first, second, everybody]) {
      await setup.database.rows(`grant ${role} to current_user`)
      await setup.database.rows(`drop owned by ${role}`)
      await setup.database.rows(`drop role ${role}`)
    }
  })

  /** Everything that an answer or an error shows, as one text. */
  async function shown(role: string, sql: string): Promise<string> {
    const client = clients.get(role)!
    const notices: string[] = []
    const hear = (notice: { message?: string | undefined }) => notices.push(notice.message ?? '')
    client.on('notice', hear)
    try {
      const { rows } = (await client.query(sql)) as { rows: unknown[] }
      return [JSON.stringify(rows), ...notices].join('\n')
    } catch (error) {
      return [String(error), ...notices].join('\n')
    } finally {
      client.off('notice', hear)
    }
  }

  const foreignTo = (role: string) => (role === first ? ids().slice(1) : ids().slice(2))

  /** The ways to read a relation. Each may show rows of the reader's own projects, and nothing else. */
  const WAYS: Record<string, (name: string) => string> = {
    directly: (name) => `select * from visibility.${name}`,
    'with explain': (name) => `explain (analyze, verbose, costs off, timing off) select * from visibility.${name}`,
    'with a function that tells what it is given': (name) =>
      `select count(*) from visibility.${name} t where pg_temp.tell(t::text)`,
    'with an error that shows a value': (name) =>
      `select count(*) from visibility.${name} t where (t::text)::integer > 0`,
  }

  test.each(Object.keys(WAYS))(
    'a reader of some projects sees nothing of others in any table or view, read %s',
    async (way) => {
      for (const role of [first, second]) {
        await clients.get(role)!.query(
          `create or replace function pg_temp.tell(text) returns boolean language plpgsql cost 0.0001 as $$
       begin raise notice '%', $1; return true; end $$`,
        )
        const marks = foreignTo(role).flatMap(marksOf)
        for (const name of relations) {
          const text = await shown(role, WAYS[way]!(name))
          expect([role, name, marks.filter((mark) => text.includes(mark))]).toEqual([role, name, []])
        }
      }
    },
    180_000,
  )

  test('a restricted reader sees the same rows of its projects as an unrestricted one', async () => {
    for (const name of relations) {
      const [{ has }] = (await setup.database.rows<{ has: boolean }>(
        `select exists (select from pg_attribute where attrelid = 'visibility.${name}'::regclass and attname = 'project_id') as has`,
      )) as [{ has: boolean }]
      const rows = async (role: string, condition = 'true') =>
        (
          await clients
            .get(role)!
            .query(`select to_jsonb(t)::text as row from visibility.${name} t where ${condition} order by 1`)
        ).rows
      const own = has ? `project_id = '${ids()[0]}'` : 'true'
      expect([name, await rows(first)]).toEqual([name, await rows(everybody, own)])
    }
  })

  test('the ledger is closed, the settings of row-level security included, and nothing can be written', async () => {
    const client = clients.get(first)!
    const refused = async (sql: string) => ((await client.query(sql).catch((error) => error)) as { code?: string }).code
    expect(await refused('select * from visibility_ops.coverage')).toBe('42501')
    expect(await refused('select * from visibility_ops.sums_of($$x$$, $$week$$, current_date)')).toBe('42501')
    expect(await refused('delete from visibility.brands')).toBe('42501')
    expect(await refused('alter table visibility.brands disable row level security')).toBe('42501')
    expect(await refused(`set role ${everybody}`)).toBe('42501')
    expect(await shown(first, `select * from pg_stats where schemaname like 'visibility%'`)).not.toContain(ids()[2])
    await client.query('set row_security = off')
    expect(await refused('select * from visibility.brands')).toBe('42501')
    await client.query('reset row_security')
  })

  /** Finds a value that the planner's statistics have, by nothing but the rows that it expects of comparisons. */
  async function searchByExplain(role: string, table: string, column: string): Promise<string | undefined> {
    const expected = async (comparison: '<' | '<=', value: string) => {
      const plan = await shown(role, `explain select from ${table} where ${column} ${comparison} '${value}'`)
      return Number(/ rows=(\d+) /.exec(plan)![1])
    }
    const CHARACTERS = [...'-./0123456789:?_abcdefghijklmnopqrstuvwxyz~']
    let found = ''
    while (found.length < 200) {
      const counts: number[] = []
      for (const character of CHARACTERS) counts.push(await expected('<', found + character))
      const steps = counts.slice(1).map((rows, index) => rows - counts[index]!)
      const largest = Math.max(...steps)
      if (largest <= 0) return undefined
      found += CHARACTERS[steps.indexOf(largest)]
      if ((await expected('<=', found)) > (await expected('<', found))) return found
    }
    return undefined
  }

  test('the estimates of the planner show no value of another project', async () => {
    // Many rows of one page, as a page that is cited every day has.
    const [, b] = ids()
    const url = 'https://secret.example/of-another-client'
    await setup.database.rows(
      `insert into visibility.urls (project_id, date, url) select $1, current_date + i, $2 from generate_series(1, 3000) i`,
      [b, url],
    )
    await setup.database.rows('analyze')
    await setup.database.rows(`create table public.unprotected as table visibility.urls`)
    await setup.database.rows(
      `alter table public.unprotected enable row level security; analyze public.unprotected;
       create policy own on public.unprotected using (project_id = '${ids()[0]}'); grant select on public.unprotected to ${first}`,
    )
    expect(await searchByExplain(first, 'public.unprotected', 'url')).toBe(url)
    expect(await searchByExplain(first, 'visibility.urls', 'url')).toBeUndefined()
    expect(await setup.database.rows(STATISTICS_OF_TEXTS)).toEqual([])
  })

  test('tables and views that are made later are restricted, also those of a report in months', async () => {
    const more = [...REPORTS, { name: 'later', dimensions: ['date', 'country_code', 'model_id'] }]
    const config = { ...setup.fileConfig, reports: more, warehouse: { partition: 'month' } }
    expect((await runCli(['sync', '--stream', 'later'], { env: setup.env, config })).code).toBe(0)
    expect((await runCli(['partition'], { env: setup.env, config })).code).toBe(0)
    for (const name of ['later', 'by_prompt', 'movers_weekly']) {
      const { rows } = await clients.get(first)!.query(`select distinct project_id from visibility.${name}`)
      expect([name, rows]).toEqual([name, [{ project_id: ids()[0] }]])
    }
    expect((await clients.get(everybody)!.query('select distinct project_id from visibility.later')).rows).toHaveLength(
      3,
    )
    await setup.database.rows('analyze')
    expect(await setup.database.rows(STATISTICS_OF_TEXTS)).toEqual([])
  }, 180_000)

  test('a foreign view stays closed to a restricted reader, and a membership that grants more is reported', async () => {
    await setup.database.rows('create view visibility.somebodys as select * from visibility.brands')
    const told = await cli('grant', '--role', first, '--project', ids()[0], '--json')
    expect(told.json()).toMatchObject({ ok: true, problems: [], projects: [ids()[0]], unrestricted: [everybody] })
    expect(await shown(first, 'select * from visibility.somebodys')).toContain('permission denied')
    await setup.database.rows(`grant select on visibility.somebodys to ${first}`)
    await setup.database.rows(`grant ${everybody} to ${first}`)
    const warned = await cli('check', '--json')
    const verdict = (warned.json().verdicts as { what: string; ok: boolean; detail: string }[]).find(({ what }) =>
      what.includes(first),
    )
    expect(verdict).toMatchObject({ ok: false, detail: expect.stringContaining(`can take on the role ${everybody}`) })
    expect(verdict!.detail).toContain('somebodys')
    await setup.database.rows(`revoke ${everybody} from ${first}; drop view visibility.somebodys`)
  })

  test('a Metabase gets a connection, a collection and a dashboard of a client alone', async () => {
    const server = await startMetabase()
    const urlOf = (role: string) => setup.database.url.replace(/\/\/[^@]*@/, `//${role}:secret@`)
    const provision = (role: string) =>
      runCli(['metabase', '--url', server.url, '--project', ids()[0]], {
        env: { ...setup.env, METABASE_API_KEY: 'mb_key', METABASE_DATABASE_URL: urlOf(role) },
        config: setup.fileConfig,
      })
    const refused = await provision(second)
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('does not see this project alone')])
    expect(server.store.database).toEqual([])
    const { name } = setup.service.world.projects[0]!
    expect(await provision(first)).toMatchObject({ code: 0 })
    expect(server.store.database.map((database) => database.name)).toEqual([`AI visibility (visibility-sync): ${name}`])
    expect(server.store.collection.at(-1)).toMatchObject({ name: `AI visibility: ${name}` })
    expect(server.store.dashboard.map((dashboard) => dashboard.name)).toEqual([`AI visibility at a glance: ${name}`])
  })

  test('bad requests are refused with what is allowed', async () => {
    const unknown = await cli('grant', '--role', first, '--project', `${ids()[0]}x`)
    expect([unknown.code, unknown.stderr]).toEqual([2, expect.stringContaining(`did you mean "${ids()[0]}"`)])
    expect((await cli('grant', '--role', first, '--revoke', '--project', ids()[0])).code).toBe(2)
    const missing = await cli('grant', '--role', 'nobody_of_that_name')
    expect([missing.code, missing.stderr]).toEqual([2, expect.stringContaining('create role "nobody_of_that_name"')])
    const self = await cli('grant', '--role', new URL(setup.database.url).username)
    expect([self.code, self.stderr]).toEqual([2, expect.stringContaining('owns the warehouse')])
  })

  test('a restriction is lifted by a grant without a project, and all access by --revoke', async () => {
    const projects = async () => (await clients.get(second)!.query('select from visibility.projects')).rowCount
    expect(await projects()).toBe(2)
    expect((await cli('grant', '--role', second)).code).toBe(0)
    expect(await projects()).toBe(3)
    const revoked = await cli('grant', '--role', second, '--revoke')
    expect([revoked.code, revoked.stdout]).toEqual([0, expect.stringContaining('can no longer read visibility')])
    expect(await shown(second, 'select * from visibility.projects')).toContain('permission denied')
    // A migration does not bring anything back.
    await migrate(setup.database.warehouse, configOf(setup.fileConfig, setup.env))
    expect(await shown(second, 'select * from visibility.projects')).toContain('permission denied')
  })
})

test('statistics from before the first restriction are removed, or reported with what removes them', async () => {
  const database = await createDatabase('reports')
  const role = `client_${randomBytes(4).toString('hex')}`
  await database.rows(`create role ${role}`)
  closeLater(() => database.rows(`grant ${role} to current_user; drop owned by ${role}; drop role ${role}`))
  await database.rows(
    `insert into visibility.projects (project_id, name) select p, 'Client ' || p from unnest('{a,b}'::text[]) p;
     insert into visibility.brands (project_id, brand_id, name, is_own) select 'b', 'b' || i, 'Brand ' || i, false from generate_series(1, 100) i;
     analyze`,
  )
  const [{ removes }] = (await database.rows<{ removes: boolean }>(
    `select current_setting('server_version_num')::int >= 180000 or current_setting('is_superuser')::boolean as removes`,
  )) as [{ removes: boolean }]
  const before = await database.rows(STATISTICS_OF_TEXTS)
  const result = await runCli(['grant', '--role', role, '--project', 'a', '--json'], {
    env: { DATABASE_URL: database.url },
    config: {},
  })
  const problem = expect.stringMatching(
    /the planner has statistics of .*visibility.brands.name.*delete from pg_statistic/,
  )
  expect(result.json()).toMatchObject({ ok: removes, problems: removes ? [] : [problem] })
  expect(await database.rows(STATISTICS_OF_TEXTS)).toEqual(removes ? [] : before)
  // What the planner is to forget is not collected again.
  await database.rows('analyze')
  expect(await database.rows(STATISTICS_OF_TEXTS)).toEqual(removes ? [] : before)
})
