import { createHash } from 'node:crypto'
import { IncompleteError } from '../../core/errors.ts'
import type { DriftNote } from '../../rows/drift-notes.ts'
import type { PackedRows } from '../../rows/packed-rows.ts'
import { safeJson } from '../../rows/raw-text.ts'
import { type Sifted, sift } from '../../rows/sift.ts'
import type { CallContext, Caller, Client, Page } from '../../source/client.ts'
import { keyOf, keyPositions, type ListStream, type Stream } from '../../streams/stream.ts'
import { PageLimit } from '../plan/density.ts'

export interface Reader {
  client: Client
  limit: PageLimit
}

/** Asks for one page of something whose other parameters are fixed. */
export type ReadPage = (page: { limit: number; offset: number }) => Promise<Page>

const PASSES = 3
const LONGEST_KEY = 255

/** Asks for a page. If the service refuses the limit, lower ones are tried, and the one that it accepts is kept. */
export async function readPage(read: ReadPage, limit: PageLimit, offset = 0): Promise<Page & { asked: number }> {
  const asked = limit.current
  try {
    return { ...(await read({ limit: asked, offset })), asked }
  } catch (refusal) {
    for (const lower of limit.fallbacks(asked, refusal)) {
      try {
        const page = await read({ limit: lower, offset })
        limit.lowerTo(lower)
        return { ...page, asked: lower }
      } catch (error) {
        if (limit.fallbacks(lower, error).length === 0) break
      }
    }
    // No lower limit helped, so it was about something else.
    throw refusal
  }
}

/** Drift of an answer besides its rows: more rows than requested, or unknown fields. */
export function answerNotes({ asked, items, unknownFields }: Page & { asked: number }): DriftNote[] {
  return [
    ...(items.length > asked
      ? [{ kind: 'long_page' as const, name: 'limit', example: `asked for ${asked} rows, got ${items.length}` }]
      : []),
    ...unknownFields.map((name) => ({ kind: 'field' as const, name: `answer.${name}`, example: name })),
  ]
}

/** How many different items an answer has: repeats would hide that others are missing. */
export function countDifferent({ items }: Page): number {
  return new Set(items.map(safeJson)).size
}

/** True if there are no more than so many rows. This works with any row order. */
export async function hasNoRowAfter(read: ReadPage, rows: number): Promise<boolean> {
  const { items } = await read({ limit: 1, offset: rows })
  return items.length === 0
}

/**
 * Reads everything by offset, in pages that overlap by one row. No order is promised, so rows may move between pages;
 * the reading counts only if the overlaps match and there are as many different rows as offsets. Otherwise it is
 * repeated, and in the end refused.
 */
export async function readByOffset(read: ReadPage, limit: PageLimit, stream: Stream, about: string): Promise<Page> {
  const keyOf = rawKeys(stream)
  let problem = ''
  for (let pass = 1; pass <= PASSES; pass++) {
    const all: Page = { items: [], total: undefined, needsTextCheck: false, unknownFields: [] }
    const keys = new Set<string>()
    for (;;) {
      const page = await readPage(read, limit, Math.max(0, all.items.length - 1))
      problem = findMoved(all.items, page.items)
      for (const item of all.items.length === 0 ? page.items : page.items.slice(1)) {
        all.items.push(item)
        keys.add(keyOf(item))
      }
      all.total = page.total ?? all.total
      all.needsTextCheck ||= page.needsTextCheck
      // Looked at with each page: a service that ignores the offset would be read without end.
      if (problem === '' && keys.size < all.items.length) problem = 'a row was on two pages'
      if (problem !== '') break
      // A short page ends the list, unless the service caps pages: then there is something behind it.
      if (page.items.length < page.asked && (await hasNoRowAfter(read, all.items.length))) return all
      if (page.items.length >= 2) continue
      problem = 'pages are too short to overlap'
      break
    }
  }
  throw new IncompleteError(
    `${about}: cannot be proven complete: ${problem}, in each of ${PASSES} readings; nothing was changed`,
  )
}

function findMoved(before: readonly unknown[], [first]: readonly unknown[]): string {
  if (before.length === 0 || safeJson(first) === safeJson(before.at(-1))) return ''
  return 'the order of rows changed between pages'
}

/** The identity of an unvalidated item: its key fields if it is sound, all of it if it is not. */
function rawKeys(stream: Stream): (raw: unknown) => string {
  const positions = keyPositions(stream)
  return (raw) => {
    const parsed = stream.item.safeParse(raw)
    if (parsed.success) return keyOf(stream.flatten(parsed.data as never), positions)
    const text = safeJson(raw)
    return text.length <= LONGEST_KEY ? text : createHash('sha256').update(text).digest('base64')
  }
}

interface Counts {
  rows: number
  /** How many rows the answer before had. */
  before: number
  /** The service's own count, if it has one. */
  total: number | undefined
  acceptDeletes: boolean
}

/** Throws if fewer rows came than before, and fewer than the service counts. If most are missing, they are held. */
export function compareWithTotal(about: string, { rows, before, total, acceptDeletes }: Counts): DriftNote[] {
  if (total === undefined || total === rows) return []
  if (total > rows && rows < before && rows * 2 >= before && !acceptDeletes)
    throw new IncompleteError(
      `${about}: ${rows} rows, ${before - rows} fewer than before, but the service counts ${total}`,
    )
  return [{ kind: 'total', name: 'totalCount', example: `totalCount ${total}, but ${rows} rows` }]
}

interface ListRequest {
  caller: Caller
  stream: ListStream
  /** Undefined if the list was never read. */
  rowsBefore: number | undefined
  acceptDeletes: boolean
}

/** Reads a whole list. One page if it fits; otherwise by offset, with proof that nothing was missed. */
export async function readList(
  { client, limit }: Reader,
  { caller, stream, rowsBefore, acceptDeletes }: ListRequest,
  context: CallContext,
  makeRows: () => PackedRows,
): Promise<Sifted<PackedRows>> {
  const read = (page: { limit: number; offset: number }) => stream.read(client, caller, page, context)
  const siftPage = ({ items, needsTextCheck }: Page) => sift(stream, items, { needsTextCheck }, makeRows())
  // The profile takes no limit, so a lower one is not worth a request. A project is an item of a list, which takes one.
  const page = await readPage(read, stream.isSingleObject && !stream.isExtra ? new PageLimit(1) : limit)
  const { asked, total, items } = page
  const notes: DriftNote[] = answerNotes(page)
  let sifted = siftPage(page)
  if (!stream.isSingleObject) {
    let rows = items.length - sifted.repeats
    let isWhole = items.length < Math.min(asked, limit.current)
    const before = rowsBefore ?? 0
    const disagrees = total !== undefined && total !== rows
    // Without a total, a list that has other rows than before is complete only if no row comes after its last. So is an empty
    // list that was never read.
    const isUnproven = total === undefined ? rows !== rowsBefore : rows === 0 && rowsBefore === undefined
    if (isWhole && (disagrees || isUnproven)) {
      isWhole = await hasNoRowAfter(read, rows)
      if (!isWhole) {
        const example = `asked for ${asked} rows, got ${rows}, and there were more`
        notes.push({ kind: 'short_page', name: 'limit', example })
      }
    }
    let counted = total
    if (!isWhole) {
      const all = await readByOffset(read, limit, stream, stream.name)
      sifted = siftPage(all)
      rows = all.items.length
      counted = all.total
    }
    notes.push(...compareWithTotal(stream.name, { rows, before, total: counted, acceptDeletes }))
  }
  sifted.drift.push(...notes)
  return sifted
}
