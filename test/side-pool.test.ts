import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { OverloadedError, TimeLimitError, TransientError } from '../src/core/errors.ts'
import { connectWarehouse, type Warehouse } from '../src/warehouse/connect.ts'
import { createSidePool, type SidePool, type SidePoolOptions } from '../src/warehouse/side-pool.ts'
import { Cached } from '../src/web/cached.ts'
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
  open({ connections: 1, limitMs: 300 })
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

test('what many ask for is worked out once, also where it takes long, and again when it is old', async () => {
  open()
  let now = 0
  const cached = new Cached<number>({ monotonic: () => now, freshMs: 1000, most: 2 })
  let reads = 0
  let finish: (value: number) => void = () => {}
  const read = () => {
    reads++
    return new Promise<number>((done) => {
      finish = done
    })
  }
  const first = Array.from({ length: 50 }, () => cached.get('a', read))
  now = 5000
  const late = cached.get('a', read)
  finish(1)
  expect(new Set(await Promise.all([...first, late]))).toEqual(new Set([1]))
  expect(reads).toBe(1)
  // It took five seconds, so it is kept for longer than one that is made at once, but not without end.
  now = 14_999
  expect(await cached.get('a', read)).toBe(1)
  now = 15_001
  const again = cached.get('a', read)
  finish(2)
  expect(await again).toBe(2)
  now = 16_000
  expect(await cached.get('a', read)).toBe(2)
  expect(reads).toBe(2)
  now = 16_002
  void cached.get('a', read)
  expect(reads).toBe(3)
  finish(3)
})

test('what failed is tried again soon, and only so many values are kept', async () => {
  open()
  let now = 0
  const cached = new Cached<number>({ monotonic: () => now, freshMs: 1000, most: 2 })
  let reads = 0
  const fail = async () => {
    reads++
    throw new Error('no')
  }
  await expect(cached.get('a', fail)).rejects.toThrow('no')
  await expect(cached.get('a', fail)).rejects.toThrow('no')
  expect(reads).toBe(1)
  now = 600
  expect(await cached.get('a', async () => 3)).toBe(3)
  for (const key of ['b', 'c', 'd']) await cached.get(key, async () => 4)
  now = 2000
  await expect(cached.get('d', fail)).rejects.toThrow('no')
  expect(cached.size).toBe(2)
  expect(await cached.get('a', async () => 5)).toBe(5)
})

const isBusy = (error: unknown) => error instanceof OverloadedError

test('where a value cannot be had anew, the last one is given for a while, and then no more', async () => {
  open()
  let now = 0
  const cached = new Cached<number>({ monotonic: () => now, freshMs: 1000, most: 2, stale: { ms: 60_000, on: isBusy } })
  let reads = 0
  const fail = async () => {
    reads++
    throw new OverloadedError('no')
  }
  await expect(cached.get('a', fail)).rejects.toThrow('no')
  now = 1000
  expect(await cached.get('a', async () => 1)).toBe(1)
  now = 3000
  expect(await cached.get('a', fail)).toBe(1)
  now = 60_000
  expect(await cached.get('a', fail)).toBe(1)
  expect(reads).toBe(3)
  now = 60_700
  // What has another reason is said.
  await expect(cached.get('a', async () => Promise.reject(new Error('away')))).rejects.toThrow('away')
  now = 62_000
  await expect(cached.get('a', fail)).rejects.toThrow('no')
  now = 63_000
  expect(await cached.get('a', async () => 2)).toBe(2)
})
