import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { OverloadedError, TimeLimitError, TransientError } from '../src/core/errors.ts'
import { connectWarehouse, type Warehouse } from '../src/warehouse/connect.ts'
import { createSidePool, type SidePool, type SidePoolOptions } from '../src/warehouse/side-pool.ts'
import { Cache } from '../src/web/cache.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'
import { until } from './support/serve.ts'
import { startTcpProxy, type TcpProxy } from './support/tcp-proxy.ts'

let database: TestDatabase
let proxy: TcpProxy
let warehouse: Warehouse
let pool: SidePool
beforeEach(async () => {
  database = await createDatabase()
  proxy = await startTcpProxy(database.url)
  warehouse = await connectWarehouse({ url: proxy.url, schema: 'visibility', connections: 2 })
})
afterEach(async () => {
  pool.close()
  await warehouse.close()
  await proxy.close()
  await database.drop()
})

function open(options: Partial<SidePoolOptions> = {}): void {
  pool = createSidePool(warehouse, {
    name: 'side pool of a test',
    connections: 2,
    waiting: 2,
    patienceMs: 10_000,
    limitMs: 5000,
    ...options,
  })
}
const ask = <T>(sql: string) => pool.read(async (bound) => (await bound.pool.query(sql)).rows[0] as T)

test('a look changes nothing, sees one state, and leaves nothing set for whoever has the connection next', async () => {
  open({ connections: 1 })
  await database.rows('create table notes (text text)')
  await pool.read(async (bound) => {
    const count = async () => (await bound.pool.query('select count(*)::int as n from notes')).rows[0].n
    expect(await count()).toBe(0)
    await database.rows("insert into notes values ('new')")
    expect(await count()).toBe(0)
    const { rows } = await bound.pool.query(
      "select current_setting('statement_timeout') as limit, current_setting('TimeZone') as zone",
    )
    expect(rows[0]).toEqual({ limit: '5s', zone: 'UTC' })
    // At once, as `Promise.all` over several statements asks.
    const both = await Promise.all([bound.pool.query('select 1 as n'), bound.pool.query('select 2 as n')])
    expect(both.map(({ rows: [row] }) => row.n)).toEqual([1, 2])
  })
  await expect(pool.read((bound) => bound.pool.query("insert into notes values ('x')"))).rejects.toThrow('read-only')
  await pool.write((bound) => bound.pool.query("insert into notes values ('y')"))
  await expect(
    pool.write(async (bound) => {
      await bound.pool.query("insert into notes values ('z')")
      throw new Error('changed my mind')
    }),
  ).rejects.toThrow('changed my mind')
  expect(await database.rows('select text from notes order by 1')).toEqual([{ text: 'new' }, { text: 'y' }])
  // The server learns of a connection that was closed when it next listens.
  await until(async () => {
    const left = await database.rows(
      "select 1 from pg_stat_activity where application_name = 'side pool of a test' and state like '%transaction%'",
    )
    return left.length === 0
  })
})

test('what takes too long is ended, and those who come after are served', async () => {
  open({ connections: 1, limitMs: 3000 })
  await expect(ask('select pg_sleep(60)')).rejects.toThrow(TimeLimitError)
  await expect(
    pool.read(async (bound) => {
      for (;;) await bound.pool.query('select pg_sleep(0.1)')
    }),
  ).rejects.toThrow(TimeLimitError)
  expect(await ask('select 1 as n')).toEqual({ n: 1 })
})

test('more who look than can wait are turned away at once, and those who waited too long as well', async () => {
  open({ patienceMs: 300 })
  const slow = [ask('select pg_sleep(2)'), ask('select pg_sleep(2)')]
  const waiting = [ask('select 1'), ask('select 1')]
  await expect(ask('select 1')).rejects.toThrow(OverloadedError)
  for (const one of waiting) await expect(one).rejects.toThrow(OverloadedError)
  await Promise.all(slow)
  expect(await ask('select 1 as n')).toEqual({ n: 1 })
})

test('a database that is away or lost in the network is an error that may pass, and it does', async () => {
  open({ limitMs: 1000 })
  expect(await ask('select 1 as n')).toEqual({ n: 1 })
  proxy.refuse()
  await expect(ask('select 1')).rejects.toThrow(TransientError)
  proxy.resume()
  expect(await ask('select 1 as n')).toEqual({ n: 1 })
  proxy.freeze()
  await expect(ask('select 1')).rejects.toThrow(TimeLimitError)
  await expect(ask('select 1')).rejects.toThrow(TransientError)
  proxy.resume()
  expect(await ask('select 1 as n')).toEqual({ n: 1 })
})

test('closing does not wait for what is being read, nor for a network that lost its way', async () => {
  open()
  const reading = ask('select pg_sleep(60)').catch((error: unknown) => error)
  await new Promise((done) => setTimeout(done, 200))
  proxy.freeze()
  pool.close()
  expect(await reading).toBeInstanceOf(TransientError)
  // The connections of the warehouse itself are closed after the test, through the same network.
})

test('a value is read once within its time to live, again after it, after a failure and after a clear', async () => {
  open()
  let now = 0
  let reads = 0
  const cache = new Cache(() => now)
  let finish: (value: number) => void = () => {}
  const read = () => {
    reads++
    return new Promise<number>((done) => {
      finish = done
    })
  }
  const first = Array.from({ length: 50 }, () => cache.get('a', 1000, read))
  // Whoever asks while it is being read waits for it, however long that takes.
  now = 5000
  const late = cache.get('a', 1000, read)
  finish(1)
  expect(new Set(await Promise.all([...first, late]))).toEqual(new Set([1]))
  now = 5999
  expect(await cache.get('a', 1000, read)).toBe(1)
  expect(reads).toBe(1)
  now = 6000
  expect(await cache.get('a', 1000, async () => 2)).toBe(2)
  cache.clear()
  await expect(cache.get('a', 1000, () => Promise.reject(new Error('no')))).rejects.toThrow('no')
  expect(await cache.get('a', 1000, async () => 3)).toBe(3)
  // The least recently read of too many makes room.
  for (let key = 0; key < 128; key++) await cache.get(`${key}`, 1000, async () => key)
  expect(await cache.get('a', 1000, async () => 4)).toBe(4)
})
