import { describe, expect, test } from '@jest/globals'
import { IncompleteError, RefusedError } from '../src/core/errors.ts'
import { chats } from '../src/streams/chats.ts'
import { PageLimit } from '../src/sync/plan/density.ts'
import { compareWithTotal, countDifferent, readByOffset, readPage } from '../src/sync/read/read-pages.ts'

/* Reading a list that is longer than a page, from services that are functions. */

const item = (at: number) => ({ id: `ch_${at}`, prompt: { id: 'pr_1' }, model: { id: 'm' }, date: '2026-03-01' })
const items = (count: number) => Array.from({ length: count }, (_, at) => item(at))
const pageOf = (found: unknown[], changes: { total?: number; needsTextCheck?: boolean } = {}) => ({
  ...{ items: found, count: found.length, total: undefined, needsTextCheck: false, unknownFields: [] },
  ...changes,
})

type Asked = { limit: number; offset: number }

/** Reads all rows of a service. Gives them, and what was asked for. */
async function read(answer: (page: Asked) => unknown[], limit = 4) {
  const asked: string[] = []
  const page = await readByOffset(
    async (wanted) => {
      asked.push(`${wanted.limit} from ${wanted.offset}`)
      return pageOf(answer(wanted))
    },
    new PageLimit(limit),
    chats,
    'chats',
  )
  return { items: page.items, count: page.items.length, asked }
}

const rowsOf = (all: unknown[]) => (page: Asked) => all.slice(page.offset, page.offset + page.limit)

describe('reading by offset', () => {
  test('asks for pages that overlap by a row, until a short page that nothing follows', async () => {
    const found = await read(rowsOf(items(9)))
    expect(found.items).toEqual(items(9))
    expect([found.count, found.asked]).toEqual([9, ['4 from 0', '4 from 3', '4 from 6', '1 from 9']])
  })

  test('goes on after a page that is shorter than asked for, if rows follow', async () => {
    const found = await read(({ limit, offset }) => items(9).slice(offset, offset + Math.min(limit, 3)))
    expect(found.items).toEqual(items(9))
  })

  test('reads a full last page, and proves that it is the last', async () => {
    const found = await read(rowsOf(items(7)))
    expect(found.asked).toEqual(['4 from 0', '4 from 3', '4 from 6', '1 from 7'])
    expect(found.count).toBe(7)
  })

  test('tries again if the order changed, and takes a reading that adds up', async () => {
    let reading = 0
    const found = await read(({ limit, offset }) => {
      if (offset === 0) reading++
      const all = reading === 1 && offset > 0 ? items(9).reverse() : items(9)
      return all.slice(offset, offset + limit)
    })
    expect([found.items, reading]).toEqual([items(9), 2])
  })

  test.each<[string, (page: Asked) => unknown[]]>([
    [
      'the order of rows changed between pages',
      ({ limit, offset }) => (offset % 2 ? items(9).reverse() : items(9)).slice(offset, offset + limit),
    ],
    [
      'a row was on two pages',
      ({ limit, offset }) => [...items(5), item(1), ...items(20).slice(6)].slice(offset, offset + limit),
    ],
    ['pages are too short to overlap', ({ offset }) => items(9).slice(offset, offset + 1)],
  ])('fails after three readings if %s', async (problem, answer) => {
    let first = 0
    const reading = read((page) => {
      if (page.offset === 0) first++
      if (first > 9) throw new Error('it goes on and on')
      return answer(page)
    })
    await expect(reading).rejects.toThrow(IncompleteError)
    await expect(reading).rejects.toThrow(`chats: cannot be proven complete: ${problem}, in each of 3 readings`)
    expect(first).toBeGreaterThanOrEqual(3)
  })

  test('ends if the service ignores the offset', async () => {
    await expect(read(() => items(4))).rejects.toThrow('cannot be proven complete')
  })

  test('tells rows apart by their keys, and rows without a valid key by all they have', async () => {
    const odd = [{ a: 1 }, { a: 2 }, 'text', null, { a: 'x'.repeat(400) }, { a: `${'x'.repeat(400)}y` }]
    expect((await read(rowsOf(odd))).items).toEqual(odd)
    const twice = [...items(5), { ...item(2), unknown: 1 }]
    await expect(read(rowsOf(twice))).rejects.toThrow('a row was on two pages')
  })
})

describe('a page limit that the service refuses', () => {
  const refuse =
    (most: number) =>
    async ({ limit }: Asked) => {
      if (limit > most) throw new RefusedError(`limit must not exceed ${most}`, { status: 400 })
      return pageOf(items(3))
    }

  test('is lowered to the one that it names, for later pages, too', async () => {
    const limit = new PageLimit(10_000)
    expect((await readPage(refuse(250), limit)).asked).toBe(250)
    expect(limit.current).toBe(250)
  })

  test('is kept if no lower one helps: the request was refused for another reason', async () => {
    const limit = new PageLimit(10_000)
    const refusal = new RefusedError('limit must not exceed 5', { status: 400 })
    await expect(readPage(() => Promise.reject(refusal), limit)).rejects.toBe(refusal)
    expect(limit.current).toBe(10_000)
  })
})

test('rows that are repeated count once', () => {
  expect(countDifferent(pageOf([item(1), item(2), { ...item(1) }]))).toBe(2)
})

describe('the own count of the service', () => {
  const compare = (rows: number, before: number, total: number | undefined, acceptDeletes = false) =>
    compareWithTotal('chats', { rows, before, total, acceptDeletes })

  test('that agrees, or is missing, says nothing', () => {
    expect([compare(5, 9, 5), compare(5, 9, undefined)]).toEqual([[], []])
  })

  test('that is higher, with fewer rows than before, refuses the answer', () => {
    expect(() => compare(8, 9, 9)).toThrow('chats: 8 rows, 1 fewer than before, but the service counts 9')
    expect(() => compare(5, 10, 9)).toThrow(IncompleteError)
  })

  test('that differs is noted if no row is missing, most are, or deletions are accepted', () => {
    const noted = (rows: number, total: number) => [
      { kind: 'total', name: 'totalCount', example: `totalCount ${total}, but ${rows} rows` },
    ]
    expect(compare(9, 9, 10)).toEqual(noted(9, 10))
    expect(compare(8, 9, 7)).toEqual(noted(8, 7))
    expect(compare(4, 9, 9)).toEqual(noted(4, 9))
    expect(compare(8, 9, 9, true)).toEqual(noted(8, 9))
  })
})
