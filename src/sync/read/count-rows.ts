import { countDays, type Range } from '../../core/day.ts'
import type { CallContext, Client } from '../../source/client.ts'
import type { PageLimit } from '../plan/page-limit.ts'
import { halves } from '../plan/window-feed.ts'
import { countDifferent, hasNoRowAfter, readPage } from './read-pages.ts'
import { isTooMuch } from './too-much.ts'
import type { RangeRequest } from './window-request.ts'

interface Counter {
  client: Client
  limit: PageLimit
}

/** How many rows one answer for a range has; 0 where the range is too long for the service, which proves nothing. */
export async function rowsIn(
  { client, limit }: Counter,
  { caller, stream, range }: RangeRequest,
  context: CallContext,
): Promise<number> {
  try {
    const read = (page: { limit: number; offset: number }) =>
      stream.read(client, caller, { range, page, filters: [] }, { ...context, isDivisible: true })
    return countDifferent(await readPage(read, limit))
  } catch (error) {
    if (isTooMuch(error)) return 0
    throw error
  }
}

/**
 * How many rows a window has, read in two halves. Where it is a single day, or one half has no rows, whether there is one behind
 * the last.
 */
export async function countRows(
  { client, limit }: Counter,
  { caller, stream, range }: RangeRequest,
  context: CallContext,
): Promise<number> {
  const read = (part: Range) => (page: { limit: number; offset: number }) =>
    stream.read(client, caller, { range: part, page, filters: [] }, context)
  if (countDays(range) === 1) {
    const count = countDifferent(await readPage(read(range), limit))
    return count + ((await hasNoRowAfter(read(range), count)) ? 0 : 1)
  }
  const counts = await Promise.all(halves(range).map(async (part) => countDifferent(await readPage(read(part), limit))))
  const count = counts.reduce((sum, half) => sum + half, 0)
  // Where one half has them all, it may have been cut like the whole.
  const proves = count === 0 || counts.every((half) => half < count)
  return proves || (await hasNoRowAfter(read(range), count)) ? count : count + 1
}
