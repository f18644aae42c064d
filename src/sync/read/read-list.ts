import type { DriftNote } from '../../rows/drift-notes.ts'
import type { PackedRows } from '../../rows/packed-rows.ts'
import { type Sifted, sift, siftingSink } from '../../rows/sift.ts'
import type { CallContext, Caller, Page } from '../../source/client.ts'
import { keyOf, keyPositions, type ListStream } from '../../streams/stream.ts'
import { isUsualCap } from '../plan/answer-sizes.ts'
import { hasNoRowAfter, longPage, rawKeys, readByOffset, readPage } from './read-pages.ts'
import type { Reader } from './read-window.ts'

const SHORT_LIST = 100

/** Reads a whole list. One page if it fits; otherwise by offset, with proof that nothing was missed. */
export async function readList(
  { client, limit, templates }: Reader,
  { caller, stream, rowsBefore }: { caller: Caller; stream: ListStream; rowsBefore: number },
  context: CallContext,
  makeRows: () => PackedRows,
): Promise<Sifted<PackedRows>> {
  const read = (page: { limit: number; offset: number }) => stream.read(client, caller, page, context)
  const notes: DriftNote[] = []
  const sink = siftingSink(stream, { templates }, makeRows)
  const first = await readPage((page) => stream.read(client, caller, page, { ...context, sink }), limit)
  const { asked } = first
  let page: Page = first
  let sifted: Sifted<PackedRows> | undefined
  if (!stream.isSingleObject) {
    if (page.count > asked) notes.push(longPage(asked, page.count))
    const count = page.count - sink.repeats()
    let whole = page.count < Math.min(asked, limit.current)
    const disagrees = page.total !== undefined && page.total !== count && whole
    // Nothing says how many there are, and there are fewer than before.
    const hasShrunk = page.total === undefined && count < rowsBefore && !stream.isExtra
    // A short list whose total agrees is believed.
    const looksCapped = isUsualCap(count) && (count >= SHORT_LIST || page.total === undefined)
    if (whole && (disagrees || hasShrunk || looksCapped)) {
      whole = await hasNoRowAfter(read, count)
      if (!whole) {
        const example = `asked for ${asked} rows, got ${count}, and there were more`
        notes.push({ kind: 'short_page', name: 'limit', example })
      } else if (disagrees) {
        notes.push({ kind: 'total', name: 'totalCount', example: `totalCount ${page.total}, but ${count} rows` })
      }
    }
    if (whole) sifted = sink.finish()
    else {
      sink.discard()
      const positions = keyPositions(stream)
      const keys = rawKeys(stream.item, (item) => keyOf(stream.flatten(item), positions))
      page = await readByOffset(read, limit, keys, stream.name)
    }
  }
  sifted ??= sift(stream, page.items, { needsTextCheck: page.needsTextCheck }, makeRows())
  sifted.drift.push(...notes)
  return sifted
}
