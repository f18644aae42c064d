import { expect, test } from '@jest/globals'
import { PageLimit } from '../src/sync/plan/density.ts'
import { readByOffset } from '../src/sync/read/read-pages.ts'

const rows = Array.from({ length: 10 }, (_, index) => ({ id: `row ${index}` }))
const keyOf = (raw: unknown) => (raw as { id: string }).id

test('a list that is longer than a page is read by pages that overlap', async () => {
  const read = async ({ limit, offset }: { limit: number; offset: number }) => {
    const items = rows.slice(offset, offset + limit)
    return { items, count: items.length, total: undefined, needsTextCheck: false, unknownFields: [] }
  }
  const page = await readByOffset(read, new PageLimit(4), keyOf, 'prompts')
  expect(page.items).toEqual(rows)
})

test('a service that ignores the offset is not read without end, and nothing of it is taken', async () => {
  let requests = 0
  const read = async ({ limit }: { limit: number; offset: number }) => {
    requests++
    const items = rows.slice(0, limit)
    return { items, count: items.length, total: undefined, needsTextCheck: false, unknownFields: [] }
  }
  await expect(readByOffset(read, new PageLimit(4), keyOf, 'prompts')).rejects.toThrow(
    /prompts: cannot be proven complete: .*nothing was changed/,
  )
  expect(requests).toBeLessThan(20)
})
