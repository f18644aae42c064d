import { afterEach, describe, expect, test } from '@jest/globals'
import { Client } from 'pg'
import { connectWarehouse } from '../src/warehouse/connect.ts'
import { inTransaction } from '../src/warehouse/transaction.ts'
import { runCli, startCli } from './support/cli.ts'
import { some } from './support/long.ts'
import { hasPgBouncer, PGBOUNCER, type PgBouncer, startPgBouncer } from './support/pgbouncer.ts'
import { FOUR_GRAINS, NO_LIMIT, type Setup, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

/* Everything behind a pooler that hands each transaction another connection of the server. */

if (!hasPgBouncer) {
  const reason = `pooler tests need PgBouncer at ${PGBOUNCER} (apt-get install pgbouncer, or set PGBOUNCER)`
  if (process.env.REQUIRE_PGBOUNCER === '1') throw new Error(reason)
  process.stderr.write(`skipped: ${reason}\n`)
}
const behindPooler = hasPgBouncer ? describe : describe.skip

behindPooler('PgBouncer in transaction mode', () => {
  let setup: Setup
  let pooler: PgBouncer
  const range = { from: '2026-03-01', to: '2026-03-31' }

  async function start(poolSize: number, faults = NO_LIMIT) {
    setup = await setUp({ world: { projects: 2, prompts: 7, models: 2, brands: 3 }, faults })
    pooler = await startPgBouncer(setup.database.url, poolSize)
  }
  const cli = () => ({ env: { ...setup.env, DATABASE_URL: pooler.url, LOG_FORMAT: 'json' }, config: setup.fileConfig })

  afterEach(async () => {
    await pooler.close()
    await setup.close()
  })

  test.each(some([1, 8], 1))(
    'a pool of %d: commands one after the other do not lock each other out, and rows are exact',
    async (size) => {
      await start(size)
      for (const command of [['sync'], ['backfill', ...days], ['audit', '--repair'], ['sync'], ['status'], ['check']]) {
        const result = await runCli([...command, '--json'], cli())
        expect({ command, code: result.code, stderr: result.code === 0 ? '' : result.stderr }).toEqual({
          command,
          code: 0,
          stderr: '',
        })
      }
      await expectExact(setup.database, { world: setup.service.world, range, reports: FOUR_GRAINS })
    },
  )
  const days = ['--from', '2026-03-01', '--to', '2026-03-31']

  test.each(some([1, 8], 1))(
    'a pool of %d: a run on the queue and a worker share it, and rows are exact',
    async (size) => {
      await start(size)
      const queued = { ...cli(), config: { ...setup.fileConfig, queue: { mode: 'pg-boss' } } }
      const worker = startCli(['worker', '--json'], queued)
      await worker.saw('worker_id')
      const result = await runCli(['sync', '--json'], queued)
      expect({ code: result.code, stderr: result.code === 0 ? '' : result.stderr }).toEqual({ code: 0, stderr: '' })
      worker.stop()
      expect((await worker.done).code).toBe(0)
      await expectExact(setup.database, { world: setup.service.world, range, reports: FOUR_GRAINS })
    },
  )

  test.each(some([1, 8], 1))('a pool of %d: of two backfills at once one exits 3', async (size) => {
    await start(size, { ...NO_LIMIT, latency_ms: 300 })
    const first = startCli(['backfill', ...days], cli())
    await first.saw('run started')
    const second = await runCli(['backfill', ...days], cli())
    expect([second.code, second.stderr]).toEqual([3, expect.stringContaining('is being synced by run 1')])
    expect((await first.done).code).toBe(0)
  })

  test.each(some([1, 8], 1))(
    'a pool of %d: two commands that create the same prompt at once create it once',
    async (size) => {
      await start(size)
      const [project] = setup.service.world.projects
      const args = [
        'create',
        'prompt',
        '--project',
        project!.id,
        '--text',
        'Which one is made once?',
        '--country',
        'DE',
      ]
      await Promise.all([runCli(args, cli()), runCli(args, cli()), runCli(args, cli())])
      expect(project!.prompts.filter(({ text }) => text === 'Which one is made once?')).toHaveLength(1)
    },
  )

  test('settings and temporary tables do not leak to other clients', async () => {
    await start(1)
    const other = new Client({ connectionString: pooler.url })
    await other.connect()
    const settings = async () => {
      const { rows } = await other.query(
        `select name, setting from pg_settings where name in ('jit', 'lock_timeout', 'timezone', 'datestyle',
           'client_min_messages', 'idle_in_transaction_session_timeout', 'client_connection_check_interval') order by 1`,
      )
      const { rows: temporary } = await other.query("select relname from pg_class where relname like 'stage\\_%'")
      return { rows, temporary }
    }
    await other.query("set timezone = 'Asia/Tokyo'")
    const before = await settings()
    expect((await runCli(['sync'], cli())).code).toBe(0)
    expect(await settings()).toEqual({ ...before, temporary: [] })
    await other.end()
  })

  test('a direct connection is told from a pooled one', async () => {
    await start(2)
    const options = { schema: 'visibility', connections: 2 }
    const pooled = await connectWarehouse({ ...options, url: pooler.url })
    const setting = await inTransaction(pooled, ({ client }) => client.query('show lock_timeout'))
    expect([pooled.isPooled, setup.database.warehouse.isPooled, setting.rows]).toEqual([
      true,
      false,
      [{ lock_timeout: '25s' }],
    ])
    await pooled.close()
  })
})
