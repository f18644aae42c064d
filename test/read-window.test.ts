import { describe, expect, test } from '@jest/globals'
import { RefusedError, TransientError } from '../src/core/errors.ts'
import { chats } from '../src/streams/chats.ts'
import { type DayStream, RowList } from '../src/streams/stream.ts'
import { PageLimit } from '../src/sync/plan/density.ts'
import { isTooMuch, readWindow, UNKNOWN_WINDOW } from '../src/sync/read/read-window.ts'

/* Whether one page has all rows of its window, from services that are functions. */

type Asked = { from: string; to: string; limit: number; offset: number }
type Known = typeof UNKNOWN_WINDOW

const day = (number: number) => `2026-03-${String(number).padStart(2, '0')}`
const row = (date: string, at = 0) => ({ id: `ch_${date}_${at}`, prompt: { id: 'pr_1' }, model: { id: 'm' }, date })
const rowsOn = (...numbers: number[]) => numbers.map((number) => row(day(number)))
/** What a service that answers rightly has of a request. */
const within = (all: ReturnType<typeof rowsOn>, { from, to, limit, offset }: Asked) =>
  all.filter(({ date }) => date >= from && date <= to).slice(offset, offset + limit)

async function read(
  answer: (asked: Asked) => unknown[] | { items: unknown[]; total: number },
  [from, to]: [number, number],
  { limit = 100, ...known }: Partial<Known> & { limit?: number } = {},
) {
  const asked: string[] = []
  const pageLimit = new PageLimit(limit)
  const stream: DayStream = {
    ...chats,
    read: async (_client, _caller, { range, page }) => {
      asked.push(`${range.from.slice(-2)}-${range.to.slice(-2)} ${page.limit} from ${page.offset}`)
      const given = answer({ ...range, ...page })
      const { items, total } = Array.isArray(given) ? { items: given, total: undefined } : given
      return { items, total, needsTextCheck: false, unknownFields: [] }
    },
  }
  const found = await readWindow(
    { client: undefined as never, limit: pageLimit },
    {
      caller: { key: 'k', projectId: 'p' },
      stream,
      range: { from: day(from), to: day(to) },
      known: { ...UNKNOWN_WINDOW, needsProof: () => false, ...known },
    },
    {},
    () => new RowList(),
  )
  const rows = found.kind === 'rows' ? found.sifted.rows.length : undefined
  return { kind: found.kind, rows, asked, limit: pageLimit.current, found }
}

describe('days without rows', () => {
  const all = rowsOn(3, 4, 7, 8)
  const honest = (asked: Asked) => within(all, asked)

  test('at the edges of a window, and its longest gap, are asked for alone', async () => {
    const found = await read(honest, [1, 10])
    expect([found.kind, found.rows]).toEqual(['rows', 4])
    expect(found.asked).toEqual(['01-10 100 from 0', '01-02 1 from 0', '09-10 1 from 0', '05-06 1 from 0'])
  })

  test.each([
    ['first', [1, 2]],
    ['last', [9, 10]],
    ['inner', [5, 6]],
  ])('a window whose %s days were left out is read again, and then in shorter windows', async (_, [left, right]) => {
    const whole = rowsOn(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    const isLeftOut = ({ date }: { date: string }) => date >= day(left!) && date <= day(right!)
    const { kind, asked } = await read(
      (one) => {
        const items = within(whole, one)
        return one.from === day(1) && one.to === day(10) ? items.filter((item) => !isLeftOut(item)) : items
      },
      [1, 10],
    )
    expect(kind).toBe('too-long')
    expect(asked.filter((text) => text === '01-10 100 from 0')).toHaveLength(2)
  })

  test('are not asked for if they are known to be empty, or if the service may not have written them yet', async () => {
    const empty = new Map([1, 2, 5, 6].map((number) => [day(number), 0]))
    const known = await read(honest, [1, 10], { rowsByDay: empty, provisionalFrom: day(9) })
    expect(known.asked).toEqual(['01-10 100 from 0'])
    // One day of them that is not known is reason enough.
    empty.delete(day(6))
    const one = await read(honest, [1, 10], { rowsByDay: empty, provisionalFrom: day(10) })
    expect(one.asked).toEqual(['01-10 100 from 0', '09-10 1 from 0', '05-06 1 from 0'])
    const [first] = empty.keys()
    empty.set(first!, 3)
    const other = await read(honest, [1, 10], { rowsByDay: empty, provisionalFrom: day(9) })
    expect(other.asked).toContain('01-02 1 from 0')
  })

  test('of a window without any rows, the older half is asked for, and a single day once more', async () => {
    expect((await read(() => [], [1, 10])).asked).toEqual(['01-10 100 from 0', '01-05 1 from 0'])
    expect((await read(() => [], [4, 4])).asked).toEqual(['04-04 100 from 0', '04-04 1 from 0'])
  })

  test('may be those of rejected rows: one without a day may be of any', async () => {
    const bad = (date?: string) => ({ ...row(day(1)), id: 7, date })
    const asked = async (item: unknown) =>
      (await read((one) => [...honest(one), ...(one.limit > 1 ? [item] : [])], [1, 8])).asked
    // The first day has its row; the longest gap is before the others.
    expect(await asked(bad(day(1)))).toEqual(['01-08 100 from 0', '05-06 1 from 0'])
    expect(await asked(bad())).toEqual(['01-08 100 from 0'])
  })
})

describe('the number of rows', () => {
  const all = rowsOn(1, 2, 3)

  test('is proven by one row after the last, if the service counts more or nothing else shows it', async () => {
    const counted = (total: number) => (asked: Asked) => ({ items: within(all, asked), total })
    expect((await read(counted(3), [1, 3])).asked).toEqual(['01-03 100 from 0'])
    expect((await read(counted(2), [1, 3])).asked).toEqual(['01-03 100 from 0'])
    expect((await read(counted(4), [1, 3])).asked).toEqual(['01-03 100 from 0', '01-03 1 from 3'])
    const asked = (await read((one) => within(all, one), [1, 3], { needsProof: () => true })).asked
    expect(asked).toEqual(['01-03 100 from 0', '01-03 1 from 3'])
  })

  test('of a full page says nothing: several days are split', async () => {
    const { kind, asked } = await read((one) => within(all, one), [1, 3], { limit: 3 })
    expect([kind, asked]).toEqual(['split', ['01-03 3 from 0']])
  })

  test('of a day that stays short in three readings lowers the page limit, and the day is read in parts', async () => {
    const many = Array.from({ length: 30 }, (_, at) => row(day(1), at))
    let readings = 0
    const sizes = [14, 12, 13]
    const cut = (asked: Asked) => {
      const items = within(many, asked)
      return asked.offset === 0 && asked.limit === 100 && readings < 3
        ? items.slice(0, sizes[readings++])
        : items.slice(0, 12)
    }
    const { kind, rows, limit } = await read(cut, [1, 1], {
      needsProof: ({ rowsByDay }) => rowsByDay.get(day(1)) !== 30,
    })
    expect([kind, rows, limit]).toEqual(['rows', 30, 12])
  })
})

test('only refusals that may be about the size of a request, and requests that ran out of time, ask for less', () => {
  const refused = (status?: number) => new RefusedError('no', status === undefined ? {} : { status })
  expect([undefined, 400, 401, 404, 413, 422].map((status) => isTooMuch(refused(status)))).toEqual([
    ...[true, true, false, false, true, true],
  ])
  expect([408, 500, 503, 504].map((status) => isTooMuch(new TransientError('late', { status })))).toEqual([
    ...[true, false, false, true],
  ])
  expect(isTooMuch(new TransientError('late', { timedOut: true }))).toBe(true)
})
