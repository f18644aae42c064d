import { type RawBuilder, sql } from 'kysely'
import { JSONB_VERSION_BYTES, type PackedRows } from '../../rows/packed-rows.ts'
import { PostgresHash } from '../../rows/postgres-hash.ts'
import type { Column } from '../../streams/stream.ts'

/*
 * A digest of rows that Postgres and this process compute alike, each from what it has: if both are equal, the rows
 * are taken for equal, and none needs to be sent. A collision of 64 bits is too unlikely to matter. Each row is hashed as a
 * whole, its values one after the other, each seeded with the hash of those before it; the hashes of all rows are combined by
 * exclusive or, so that their order does not matter. No two rows of a table are the same, so none cancels another.
 */

/** These values represent null: among texts one that nobody writes, among days and numbers the lowest there are. */
const NO_TEXT = new DataView(Uint8Array.of(1).buffer)
const NO_TEXT_SQL = sql.raw("E'\\x01'")
const NO_INT = -2_147_483_647
const NO_NUMBER = -Number.MAX_VALUE
const [NO_NUMBER_UPPER, NO_NUMBER_LOWER] = halves(NO_NUMBER)

/** Rows of a table: how many, and their digest if it was computed and there are any. */
export interface Snapshot {
  count: number
  digest: bigint | undefined
}

export type SnapshotRow = { count: number; digest: string | null }

/** Of rows of a table `t`; without columns, no digest. */
export function snapshotOf(columns: readonly Column[] | undefined, rows: RawBuilder<unknown>): RawBuilder<SnapshotRow> {
  const digest = columns === undefined ? sql`null` : digestOf(columns)
  return sql`select count(*) as count, ${digest}::text as digest from ${rows}`
}

export function readSnapshot({ count, digest }: SnapshotRow): Snapshot {
  return { count, digest: digest === null ? undefined : BigInt(digest) }
}

/** The digest of rows `t` as a bigint; null if there are none. */
function digestOf(columns: readonly Column[]): RawBuilder<string | null> {
  return sql`bit_xor(${rowHash(columns)})`
}

export function rowHash(columns: readonly Column[]): RawBuilder<string> {
  return columns.reduce((before, column, index) => valueHash(column, index, before), sql<string>`0`)
}

function valueHash({ name, type }: Column, index: number, before: RawBuilder<string>): RawBuilder<string> {
  const value = sql.ref(`t.${name}`)
  switch (type) {
    case 'text':
      return sql`hashtextextended(coalesce(${value}, ${NO_TEXT_SQL}), ${before})`
    case 'double':
      return sql`hashfloat8extended(coalesce(${value}, ${sql.lit(NO_NUMBER)}), ${before} # ${sql.lit(columnBit(index))})`
    case 'date':
      return sql`hashint4extended(coalesce(${value} - date '2000-01-01', ${sql.lit(NO_INT)}), ${before})`
    case 'boolean':
      return sql`hashint4extended(coalesce(${value}::int, ${sql.lit(NO_INT)}), ${before})`
    case 'jsonb':
      return sql`hashtextextended(coalesce(${value}::text, ${NO_TEXT_SQL}), ${before})`
  }
}

/** The hashes of the rows of an answer. Each is worked out once, for the digest and for finding rows. */
export class RowHashes {
  readonly count: number
  private readonly words: Int32Array
  private upper = 0
  private lower = 0

  constructor(rows: PackedRows) {
    this.count = rows.length
    this.words = new Int32Array(rows.length * 2)
    let at = 0
    hashEach(rows, ({ high, low }) => {
      this.words[at++] = high
      this.words[at++] = low
      this.upper ^= high
      this.lower ^= low
    })
  }

  /** The digest as Postgres computes it; undefined if there are no rows. */
  digest(): bigint | undefined {
    return this.count === 0 ? undefined : (BigInt(this.upper) << 32n) | BigInt(this.lower >>> 0)
  }

  /** -1 if no row has the hash. */
  finder(): (high: number, low: number) => number {
    const { words, count } = this
    // Rounded, so two hashes may share a key. Then one of the rows is not found and is compared in full.
    const keyOf = (high: number, low: number) => high * 2 ** 32 + low
    const positions = new Map<number, number>()
    for (let position = 0; position < count; position++)
      positions.set(keyOf(words[position * 2]!, words[position * 2 + 1]!), position)
    return (high, low) => {
      const position = positions.get(keyOf(high, low)) ?? -1
      return words[position * 2] === high && words[position * 2 + 1] === low ? position : -1
    }
  }
}

function hashEach(rows: PackedRows, use: (hash: PostgresHash) => void): void {
  const types = rows.columns.map(({ type }) => type)
  const hash = new PostgresHash()
  rows.forEach((view, start) => {
    hash.restart()
    let at = start
    for (let index = 0; index < types.length; index++) {
      const length = view.getInt32(at)
      at += 4
      switch (types[index]!) {
        case 'text':
          if (length < 0) hash.addText(NO_TEXT, 0, NO_TEXT.byteLength)
          else hash.addText(view, at, length)
          break
        case 'double':
          hash.low ^= columnBit(index)
          if (length < 0) hash.addDouble(NO_NUMBER_UPPER, NO_NUMBER_LOWER)
          else hash.addDouble(view.getInt32(at), view.getInt32(at + 4))
          break
        case 'date':
          hash.addInt(length < 0 ? NO_INT : view.getInt32(at))
          break
        case 'boolean':
          hash.addInt(length < 0 ? NO_INT : view.getUint8(at))
          break
        case 'jsonb': {
          const text = length < 0 ? NO_TEXT : jsonbText(view, at, length)
          hash.addText(text, 0, text.byteLength)
        }
      }
      if (length > 0) at += length
    }
    use(hash)
  })
}

/** A zero leaves the hash as it was, so this bit marks its column. */
function columnBit(index: number): number {
  return 1 << (index % 30)
}

function halves(value: number): [number, number] {
  const view = new DataView(new ArrayBuffer(8))
  view.setFloat64(0, value)
  return [view.getInt32(0), view.getInt32(4)]
}

/**
 * A packed jsonb value as Postgres writes it: a space after each colon and comma, keys by their length and then by their
 * bytes. Numbers that JavaScript writes with an exponent come out otherwise, so their rows look changed and are compared.
 */
function jsonbText({ buffer, byteOffset }: DataView, at: number, length: number): DataView {
  const start = byteOffset + at + JSONB_VERSION_BYTES
  const written = Buffer.from(buffer, start, length - JSONB_VERSION_BYTES).toString('utf8')
  const bytes = Buffer.from(printed(JSON.parse(written)))
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
}

function printed(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(printed).join(', ')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  const members = Object.entries(value).map(([name, member]) => ({ name, bytes: Buffer.from(name), member }))
  members.sort((one, other) => one.bytes.length - other.bytes.length || Buffer.compare(one.bytes, other.bytes))
  return `{${members.map(({ name, member }) => `${JSON.stringify(name)}: ${printed(member)}`).join(', ')}}`
}
