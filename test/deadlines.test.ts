import { afterEach, describe, expect, test } from '@jest/globals'
import { from as copyFrom } from 'pg-copy-streams'
import { PackedRows } from '../src/rows/packed-rows.ts'
import { connectWarehouse, type Warehouse } from '../src/warehouse/connect.ts'
import type { DeadlineClient } from '../src/warehouse/deadline-client.ts'
import { copyRows } from '../src/warehouse/load/stage.ts'
import { isTransient, withRetries } from '../src/warehouse/retry.ts'
import { endAbandonedSessions, inTransaction, LONG_WORK, type Transaction } from '../src/warehouse/transaction.ts'
import { startProcess } from './support/cli.ts'
import { some } from './support/long.ts'
import { until } from './support/serve.ts'
import { NO_LIMIT, type Setup, setUp } from './support/setup.ts'
import { startTcpProxy, type TcpProxy } from './support/tcp-proxy.ts'

/* A network that swallows packets without a word: nothing fails by itself, so everything has a deadline. */

let setup: Setup
let proxy: TcpProxy
afterEach(async () => {
  proxy.resume()
  await proxy.close()
  await setup.close()
})

async function begin(faults = NO_LIMIT): Promise<Warehouse> {
  setup = await setUp({ world: { projects: 1, prompts: 3, models: 2, brands: 2 }, faults })
  proxy = await startTcpProxy(setup.database.url)
  return connectWarehouse({ url: proxy.url, schema: 'visibility', connections: 2 })
}

describe('a frozen connection', () => {
  const freezeAndAsk = ({ client }: Transaction) => {
    proxy.freeze()
    return client.query('select 1')
  }

  test('is given up by each way of asking, and the pool replaces it', async () => {
    const warehouse = await begin()
    const asks: (() => Promise<unknown>)[] = [
      () => warehouse.pool.query({ text: 'select 1', deadlineMs: 300 } as never),
      () => inTransaction(warehouse, freezeAndAsk, undefined, short),
      () =>
        new Promise((done, fail) =>
          warehouse.pool.query({ text: 'select 1', deadlineMs: 300 } as never, (error: Error, result: unknown) =>
            error ? fail(error) : done(result),
          ),
        ),
    ]
    const short = { deadlineMs: 300 }
    for (const ask of asks) {
      await warehouse.pool.query('select 1')
      if (ask !== asks[1]) proxy.freeze()
      const error = await ask().catch((failure: unknown) => failure)
      expect(isTransient(error) || (error as { code?: string }).code === 'transient').toBe(true)
      proxy.resume()
      expect((await warehouse.pool.query('select 2 as two')).rows).toEqual([{ two: 2 }])
    }
    await warehouse.close()
  })

  test('in the middle of a COPY is given up once the command is asked to stop', async () => {
    const warehouse = await begin()
    await setup.database.rows('create table target (project_id text, words text)')
    const rows = Array.from({ length: 200_000 }, (_, index) => [`${index} ${'x'.repeat(200)}`])
    const load = inTransaction(warehouse, async ({ client }) => {
      proxy.freeze()
      setTimeout(() => warehouse.shortenDeadlines(), 200)
      await copyRows(client, 'target', PackedRows.of([{ name: 'words', type: 'text' }], 'p', rows))
    })
    await expect(load).rejects.toMatchObject({ code: 'database-away' })
    proxy.resume()
    await warehouse.close()
  })

  test('in work that may take as long as it takes is given up once the command is asked to stop', async () => {
    const warehouse = await begin()
    const work = async ({ client }: Transaction) => {
      proxy.stall()
      setTimeout(() => warehouse.shortenDeadlines(), 200)
      await client.query('select 1')
    }
    await expect(inTransaction(warehouse, work, undefined, LONG_WORK)).rejects.toMatchObject({ code: 'database-away' })
    await warehouse.close()
  })

  test('whose answer was lost is given up in work that may take long, and one at work is not', async () => {
    const warehouse = await begin()
    const work =
      (text: string, isStalled: boolean) =>
      async ({ client }: Transaction) => {
        const connection = client as unknown as { watchMs: number }
        connection.watchMs = 150
        const answer = client.query(text)
        if (isStalled) {
          await new Promise((done) => setTimeout(done, 100))
          proxy.stall()
        }
        return (await answer).rows
      }
    const patient = inTransaction(warehouse, work('select pg_sleep(1.5)::text as nothing', false), undefined, LONG_WORK)
    await expect(patient).resolves.toEqual([{ nothing: '' }])
    for (const options of [LONG_WORK, { deadlineMs: 600_000 }]) {
      const stalled = inTransaction(warehouse, work('select pg_sleep(0.6)::text', true), undefined, options)
      await expect(stalled).rejects.toThrow('the answer of the database was lost on its way')
    }
    await warehouse.close()
  })

  test('of a process that is gone in the middle of a COPY keeps its locks only until somebody wants them', async () => {
    const warehouse = await begin()
    await setup.database.rows('create table target (project_id text, words text)')
    const gone = await warehouse.pool.connect()
    gone.on('error', () => {})
    await gone.query('begin; lock table target in exclusive mode')
    const copy = gone.query(copyFrom('copy target from stdin'))
    copy.on('error', () => {})
    copy.write('a\tb\n')
    const { processID } = gone as unknown as { processID: number }
    const waits = () =>
      setup.database.rows('select from pg_stat_progress_copy where pid = $1 and bytes_processed > 0', [processID])
    await until(async () => (await waits()).length === 1)
    proxy.stall()
    // Nobody reads these rows, so nobody hears of the end of the connection behind them.
    await new Promise((done) => copy.write('c\td\n', done))
    ;(gone as unknown as DeadlineClient).destroySocket()
    gone.release(true)
    const lock = () =>
      inTransaction(warehouse, ({ client }) => client.query('lock table target in exclusive mode'), undefined, {
        lockTimeoutMs: 200,
        abandoned: { olderThanMs: 100, lookAgainMs: 100 },
      })
    await expect(lock()).rejects.toMatchObject({ code: 'transient' })
    await expect(withRetries(warehouse, undefined, lock)).resolves.toBeDefined()
    expect(await waits()).toEqual([])
    await warehouse.close()
  })

  test('that still moves rows is nobody who is gone', async () => {
    const warehouse = await begin()
    await setup.database.rows('create table target (words text)')
    const [slow, other] = [await warehouse.pool.connect(), await warehouse.pool.connect()]
    const copy = slow.query(copyFrom('copy target from stdin'))
    const moving = setInterval(() => copy.write('x\n'.repeat(40_000)), 20)
    await new Promise((done) => setTimeout(done, 300))
    expect(await endAbandonedSessions(other, { olderThanMs: 100, lookAgainMs: 500 })).toBe(0)
    clearInterval(moving)
    await new Promise((done) => copy.end(done))
    expect(await setup.database.rows('select from target limit 1')).toHaveLength(1)
    slow.release()
    other.release()
    await warehouse.close()
  })

  test('does not keep the warehouse from closing', async () => {
    const warehouse = await begin()
    const pending = warehouse.pool.query('select 1').then(() => {
      proxy.freeze()
      return warehouse.pool.query('select 2')
    })
    await new Promise((done) => setTimeout(done, 300))
    await Promise.all([expect(pending).rejects.toThrow(), warehouse.close()])
    expect(warehouse.pool.totalCount).toBe(0)
  })
})

const MODES: [string, number][] = [
  ['pg-boss', 1],
  ['none', 0],
  ['pg-boss', 0],
]

test.each(some(MODES, 1))(
  'SIGTERM ends a sync whose connections are all frozen, with queue mode %s and %d workers',
  async (mode, workers) => {
    await (await begin({ ...NO_LIMIT, latency_ms: 100 })).close()
    const options = {
      env: { ...setup.env, DATABASE_URL: proxy.url },
      config: { ...setup.fileConfig, queue: { mode }, source: { max_window_days: 1, requests_per_minute: 100_000 } },
    }
    const running = Array.from({ length: workers }, () => startProcess(['worker', '--json'], options))
    for (const worker of running) await worker.saw('worker_id')
    const sync = startProcess(['sync', '--json'], options)
    running.push(sync)
    await sync.saw('window loaded')
    proxy.freeze()
    await new Promise((done) => setTimeout(done, 500))
    for (const { child } of running) child.kill('SIGTERM')
    // The time after which an orchestrator kills.
    const killer = setTimeout(() => running.forEach(({ child }) => void child.kill('SIGKILL')), 30_000)
    const results = await Promise.all(running.map(({ done }) => done))
    clearTimeout(killer)
    expect(results.map(({ code }) => code)).toEqual([...running.slice(1).map(() => 0), 1])
    expect(results.at(-1)!.json().outcome).toBe('interrupted')
  },
)

test('SIGTERM ends an audit that waits for the database', async () => {
  await (await begin()).close()
  await setup.sync()
  const options = { env: { ...setup.env, DATABASE_URL: proxy.url }, config: setup.fileConfig }
  // Its sums may take ten minutes, and get no answer.
  const release = await holdTable('visibility.by_prompt')
  const audit = startProcess(['audit', '--json'], options)
  await until(async () => (await setup.database.rows(WAITING)).length > 0)
  audit.child.kill('SIGTERM')
  const killer = setTimeout(() => void audit.child.kill('SIGKILL'), 30_000)
  const { code } = await audit.done
  clearTimeout(killer)
  await release()
  expect(code).toBe(1)
})

const WAITING = `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
  and application_name like 'visibility-sync%'`

/** Keeps everyone from reading a table, until what it returns is called. */
async function holdTable(table: string): Promise<() => Promise<unknown>> {
  const client = await setup.database.warehouse.pool.connect()
  await client.query(`begin; lock table ${table} in access exclusive mode`)
  return () => client.query('rollback').finally(() => client.release())
}
