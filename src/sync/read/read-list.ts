import type { DriftNote } from '../../rows/drift-notes.ts'
import type { PackedRows } from '../../rows/packed-rows.ts'
import { type Sifted, sift, siftingSink } from '../../rows/sift.ts'
import type { CallContext, Caller, Page } from '../../source/client.ts'
import { keyOf, keyPositions, type ListStream } from '../../streams/stream.ts'
import { answerNotes, hasNoRowAfter, rawKeys, readByOffset, readPage } from './read-pages.ts'
import type { Reader } from './read-window.ts'

/** Reads a whole list. One page if it fits; otherwise by offset, with proof that nothing was missed. */
export async function readList(
  { client, limit, templates }: Reader,
  { caller, stream, rowsBefore }: { caller: Caller; stream: ListStream; rowsBefore: number },
  context: CallContext,
  makeRows: () => PackedRows,
): Promise<Sifted<PackedRows>> {
  const read = (page: { limit: number; offset: number }) => stream.read(client, caller, page, context)
  const sink = siftingSink(stream, { templates }, makeRows)
  const first = await readPage((page) => stream.read(client, caller, page, { ...context, sink }), limit)
  const { asked } = first
  const notes: DriftNote[] = answerNotes(first)
  let page: Page = first
  let sifted: Sifted<PackedRows> | undefined
  if (!stream.isSingleObject) {
    const count = page.count - sink.repeats()
    let whole = page.count < Math.min(asked, limit.current)
    const disagrees = page.total !== undefined && page.total !== count
    // Without a total, a list that has other rows than before is complete only if no row comes after its last.
    const isUnproven = page.total === undefined && count !== rowsBefore
    if (whole && (disagrees || isUnproven)) {
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
