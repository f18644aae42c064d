import type { Row, Stream } from '../streams/stream.ts'

/**
 * Items of an answer that have the same key and different values. Nothing says which is true, so all of them are rejected.
 * When the second one comes, the first is packed already and its item is gone: a second pass through the answer finds it.
 */
export class Contradictions {
  /** Rows that are contradicted, by their positions: undefined until the second pass comes to the first item of the key. */
  private readonly rows = new Map<number, Row | undefined>()
  private readonly rejectedItems = new Set<number>()

  /** The item contradicts the row at this position, and was rejected. */
  add(position: number, item: number): void {
    this.rejectedItems.add(item)
    if (!this.rows.has(position)) this.rows.set(position, undefined)
  }

  get count(): number {
    return this.rows.size
  }

  /** The positions of rows that are not to be loaded. */
  get positions(): Iterable<number> {
    return this.rows.keys()
  }

  has(position: number): boolean {
    return this.rows.has(position)
  }

  isRejected(item: number): boolean {
    return this.rejectedItems.has(item)
  }

  /** True if there is a row that no second pass came to. */
  needsSecondPass(): boolean {
    for (const row of this.rows.values()) if (row === undefined) return true
    return false
  }

  /** The second pass came to an item of this position. True for the first one. */
  find(position: number, row: Row): boolean {
    if (this.rows.get(position) !== undefined) return false
    this.rows.set(position, row)
    return true
  }

  /** What the rows have in a column. */
  valuesAt(column: number): Set<Row[number]> {
    return new Set([...this.rows.values()].map((row) => row?.[column] ?? null))
  }
}

/**
 * Two rows with one key as one: counts are added up, and a ratio that both have alike stays, since it is that of the sums
 * too. A ratio or list that differs cannot be computed from the two, so it becomes null. Undefined if anything else differs: a contradiction.
 */
export function addRows({ columns, key, adds = [] }: Stream, one: Row, other: Row): Row | undefined {
  const sum: Row = new Array(one.length)
  for (const [at, { name, type }] of columns.entries()) {
    const [left, right] = [one[at] ?? null, other[at] ?? null]
    if (left === right && !adds.includes(name)) sum[at] = left
    else if (adds.includes(name))
      sum[at] = left === null || right === null ? null : (left as number) + (right as number)
    else if ((type === 'double' || type === 'jsonb') && !key.includes(name)) sum[at] = null
    else return undefined
  }
  return sum
}
