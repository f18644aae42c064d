import type { CallContext, Caller, Client, Page } from '../source/client.ts'
import type { PackedRows } from '../streams/packed-rows.ts'
import { type DriftNote, type Sifted, sift } from '../streams/sift.ts'
import { keyOf, keyPositions, type ListStream } from '../streams/stream.ts'
import { isUsualCap, type PageLimit } from './page-limit.ts'
import { hasNoMoreThan, rawKeys, readByOffset, readPage } from './read-pages.ts'

/** Reads a whole list. One page where it fits; otherwise by offset, with proof that nothing was missed. */
export async function readList(
  { client, limit }: { client: Client; limit: PageLimit },
  caller: Caller,
  stream: ListStream,
  context: CallContext,
  rows: PackedRows,
): Promise<Sifted<PackedRows>> {
  const read = (page: { limit: number; offset: number }) => stream.read(client, caller, page, context)
  const notes: DriftNote[] = []
  const first = await readPage(read, limit)
  const { asked } = first
  let page: Page = first
  if (!stream.single) {
    const { count } = page
    let whole = count < Math.min(asked, limit.current)
    const disagrees = page.total !== undefined && page.total !== count && whole
    if (whole && (disagrees || isUsualCap(count))) {
      whole = await hasNoMoreThan(read, count)
      if (!whole) {
        const example = `asked for ${asked} rows, got ${count}, and there were more`
        notes.push({ kind: 'short_page', name: 'limit', example })
      } else if (disagrees) {
        notes.push({ kind: 'total', name: 'totalCount', example: `totalCount ${page.total}, but ${count} rows` })
      }
    }
    if (!whole) {
      const positions = keyPositions(stream)
      const keys = rawKeys(stream.item, (item) => keyOf(stream.flatten(item), positions))
      page = await readByOffset(read, limit, keys, stream.name)
    }
  }
  const sifted = sift(stream, page.items, { suspectText: page.suspectText }, rows)
  sifted.drift.push(...notes)
  return sifted
}
