import { describe, expect, test } from '@jest/globals'
import type { Day, Range } from '../src/core/day.ts'
import {
  identifyRejects,
  listQuarantine,
  type QuarantineFilter,
  resolveWindowRejects,
  saveRejects,
} from '../src/ledger/quarantine.ts'
import type { Reject } from '../src/rows/sift.ts'
import { dismissQuarantine, reopenForRetry } from '../src/sync/quarantine.ts'
import { inTransaction } from '../src/warehouse/transaction.ts'
import { createDatabase, type TestDatabase } from './support/postgres.ts'

/* What the ledger keeps of rows that failed validation. */

const CHATS = { projectId: 'or_1', stream: 'chats' }
const WEEK = { from: '2026-03-01', to: '2026-03-07' }

const reject = (raw: string, date?: Day): Reject => ({
  raw: `"${raw}"`,
  reason: 'bad',
  index: 0,
  totals: [],
  ...(date && { date }),
})

interface Answer {
  range?: Range
  runId?: number
  heldDays?: Day[]
  isHeld?: boolean
  of?: typeof CHATS
}

async function save({ warehouse }: TestDatabase, rejects: readonly Reject[], answer: Answer = {}): Promise<void> {
  const { range = WEEK, runId = 1, heldDays = [], isHeld = false, of = CHATS } = answer
  await inTransaction(warehouse, async (tx) => {
    const identified = await identifyRejects(tx, of, rejects)
    await saveRejects(tx, of, identified, { range, runId, heldDays: new Set(heldDays), isHeld })
  })
}

/** Each entry as "raw state from–to". */
async function entries({ rows }: TestDatabase): Promise<string[]> {
  const all = await rows<Record<string, string>>(
    `select raw::text, case when resolved_at is null then 'open' else resolution end as state, from_date, to_date, occurrences
     from visibility_ops.quarantine order by raw::text, stream`,
  )
  return all.map(({ raw, state, from_date, to_date, occurrences }) => {
    const days = from_date === to_date ? from_date : `${from_date}–${to_date}`
    return `${JSON.parse(raw!)} ${state} ${days} ${occurrences}`
  })
}

const GONE = 'no longer in the answer'

describe('a reject', () => {
  test('has its day, or those of its window, which grow with the windows of one run and not with those of others', async () => {
    const database = await createDatabase('migrated')
    await save(database, [reject('dated', '2026-03-02'), reject('undated'), reject('undated')])
    expect(await entries(database)).toEqual(['dated open 2026-03-02 1', 'undated open 2026-03-01–2026-03-07 2'])
    await save(database, [reject('undated')], { range: { from: '2026-02-20', to: '2026-02-28' } })
    expect(await entries(database)).toContain('undated open 2026-02-20–2026-03-07 3')
    await save(database, [reject('undated')], { range: { from: '2026-03-08', to: '2026-03-09' } })
    expect(await entries(database)).toContain('undated open 2026-02-20–2026-03-09 4')
    await save(database, [reject('undated')], { range: { from: '2026-03-03', to: '2026-03-03' }, runId: 2 })
    expect(await entries(database)).toContain('undated open 2026-03-03 1')
  })

  test('is resolved by an answer of all its days without it, and by no other', async () => {
    const database = await createDatabase('migrated')
    const others = { ...CHATS, stream: 'by_model' }
    const rejects = [reject('first', '2026-03-01'), reject('last', '2026-03-07'), reject('undated')]
    const stays = ['first open 2026-03-01 1', 'last open 2026-03-07 1', 'undated open 2026-03-01–2026-03-07 1']
    await save(database, rejects)
    await save(database, [], { range: { from: '2026-03-02', to: '2026-03-06' } })
    await save(database, [], { of: others })
    await save(database, [], { of: { ...CHATS, projectId: 'or_2' } })
    await save(database, [], { isHeld: true })
    expect(await entries(database)).toEqual(stays)
    await save(database, [], { heldDays: ['2026-03-01'] })
    expect(await entries(database)).toEqual([stays[0], `last ${GONE} 2026-03-07 1`, stays[2]])
    await save(database, [reject('undated')], { runId: 2 })
    expect(await entries(database)).toContain(`first ${GONE} 2026-03-01 1`)
    await save(database, [])
    expect(await entries(database)).toContain(`undated ${GONE} 2026-03-01–2026-03-07 1`)
  })

  test('of a window is resolved once no day of the window has rejects', async () => {
    const database = await createDatabase('migrated')
    await save(database, [reject('undated')])
    const resolve = (range: Range) => inTransaction(database.warehouse, (tx) => resolveWindowRejects(tx, CHATS, range))
    const day = (date: Day, state: string) =>
      database.rows(
        `insert into visibility_ops.coverage (project_id, stream, date, rows, read_at, run_id, state, read_order, reconciled_at)
         values ('or_1', 'chats', $1, 1, now(), 1, $2, 1, now())
         on conflict (project_id, stream, date) do update set state = excluded.state`,
        [date, state],
      )
    await day('2026-03-07', 'quarantined')
    await resolve(WEEK)
    expect(await entries(database)).toEqual(['undated open 2026-03-01–2026-03-07 1'])
    await day('2026-03-07', 'read')
    await day('2026-03-08', 'quarantined')
    await resolve({ from: '2026-03-08', to: '2026-03-09' })
    expect(await entries(database)).toEqual(['undated open 2026-03-01–2026-03-07 1'])
    await resolve({ from: '2026-03-07', to: '2026-03-07' })
    expect(await entries(database)).toEqual([`undated ${GONE} 2026-03-01–2026-03-07 1`])
  })

  test('that was dismissed stays so, and does not count, while it comes again unchanged', async () => {
    const database = await createDatabase('migrated')
    await save(database, [reject('same', '2026-03-01'), reject('other', '2026-03-02')])
    await dismissQuarantine(database.warehouse, {}, 'known')
    await save(database, [reject('open', '2026-03-03')])
    const identify = (...rejects: Reject[]) =>
      inTransaction(database.warehouse, (tx) => identifyRejects(tx, CHATS, rejects))
    const open = reject('open', '2026-03-03')
    const found = await identify(reject('same', '2026-03-01'), open, open)
    expect([found.undismissed, found.isOn('2026-03-01'), found.isOn('2026-03-03')]).toEqual([2, false, true])
    expect((await identify(reject('undated'))).isOn('2026-03-01')).toBe(true)
    await save(database, [reject('same', '2026-03-01')])
    expect(await entries(database)).toEqual([
      `open ${GONE} 2026-03-03 1`,
      'other dismissed 2026-03-02 1',
      'same dismissed 2026-03-01 1',
    ])
  })
})

test('entries are listed by number, stream, project and reason, and only open ones unless others are asked for', async () => {
  const database = await createDatabase('migrated')
  await save(database, [reject('one', '2026-03-01'), { ...reject('two', '2026-03-01'), reason: 'worse' }])
  await save(database, [reject('three')], { of: { ...CHATS, stream: 'by_model' } })
  await save(database, [reject('four')], { of: { ...CHATS, projectId: 'or_2' } })
  await save(database, [
    reject('one', '2026-03-01'),
    { ...reject('two', '2026-03-01'), reason: 'worse' },
    reject('five'),
  ])
  await dismissQuarantine(database.warehouse, { reason: 'worse' }, 'known')
  await save(database, [reject('one', '2026-03-01')])
  const listed = async (filter: QuarantineFilter) =>
    (await listQuarantine(database.warehouse, filter)).map(({ raw }) => raw)
  const [first] = await listQuarantine(database.warehouse, {})
  expect(await listed({})).toEqual(['one', 'three', 'four'])
  expect(await listed({ ids: [first!.quarantine_id] })).toEqual(['one'])
  expect(await listed({ streams: ['by_model'] })).toEqual(['three'])
  expect(await listed({ projects: ['or_2'] })).toEqual(['four'])
  expect(await listed({ projects: ['or_1'], streams: ['chats'], reason: 'bad' })).toEqual(['one'])
  expect(await listed({ state: 'dismissed' })).toEqual(['two'])
  expect((await listed({ state: 'all' })).sort()).toEqual(['five', 'four', 'one', 'three', 'two'])
  expect(await listed({ state: 'all', limit: 4 })).toHaveLength(4)
})

describe('a retry', () => {
  const start = async () => {
    const database = await createDatabase('migrated')
    await save(database, [reject('known', '2026-03-01')])
    await dismissQuarantine(database.warehouse, {}, 'known')
    await save(database, [reject('new', '2026-03-02')], { range: { from: '2026-03-02', to: '2026-03-02' } })
    await save(database, [reject('gone', '2026-03-03')], { range: { from: '2026-03-03', to: '2026-03-03' } })
    await save(database, [], { range: { from: '2026-03-03', to: '2026-03-03' } })
    const [{ id }] = (await database.rows(
      'select quarantine_id as id from visibility_ops.quarantine where raw::text = \'"known"\'',
    )) as [{ id: number }]
    return { database, id }
  }
  const STAYS = [`gone ${GONE} 2026-03-03 1`, 'known dismissed 2026-03-01 1', 'new open 2026-03-02 1']
  const REOPENED = [STAYS[0], 'known open 2026-03-01 1', STAYS[2]]

  test('of everything, or of a stream, leaves dismissed rows dismissed', async () => {
    const { database } = await start()
    for (const filter of [{}, { streams: ['chats'] }, { reason: 'bad' }]) {
      const tried = await reopenForRetry(database.warehouse, filter)
      expect(tried.map(({ raw }) => JSON.stringify(raw))).toEqual(['"new"'])
    }
    expect(await entries(database)).toEqual(STAYS)
  })

  test('that names a dismissed row by its number reopens it', async () => {
    const { database, id } = await start()
    const tried = await reopenForRetry(database.warehouse, { ids: [id] })
    expect(tried.map((entry) => [entry.quarantine_id, entry.dismissed_at, entry.dismissed_because])).toEqual([
      [id, null, null],
    ])
    expect(await entries(database)).toEqual(REOPENED)
  })

  test('of the dismissed rows reopens those that match, and none that is gone', async () => {
    const { database } = await start()
    await reopenForRetry(database.warehouse, { state: 'dismissed', streams: ['by_model'] })
    expect(await entries(database)).toEqual(STAYS)
    await reopenForRetry(database.warehouse, { state: 'dismissed' })
    expect(await entries(database)).toEqual(REOPENED)
  })

  test('of a number that is not open is refused', async () => {
    const { database } = await start()
    const [{ id }] = (await database.rows(
      'select quarantine_id as id from visibility_ops.quarantine where raw::text = \'"gone"\'',
    )) as [{ id: number }]
    await expect(reopenForRetry(database.warehouse, { ids: [id] })).rejects.toThrow(
      `got ${id}; there is no such open entry`,
    )
  })
})
