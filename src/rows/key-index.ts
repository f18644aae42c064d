import type { Row, Value } from '../streams/stream.ts'

const LARGEST_EXACT = Number.MAX_SAFE_INTEGER
const FIRST_SLOTS = 256
const GROWTH = 4

/**
 * Finds rows by their key. The values of each key column are numbered as they come, and a key is its numbers: building one
 * text for each of ten thousand keys, or a map for each of their parts, costs several times as much.
 */
export class KeyIndex {
  private readonly numbers: Map<Value, number>[]
  /** The numbers of all keys, one key after the other. */
  private keys: Int32Array
  /** For each hash 1 + the position of a row; at least half of them are 0. */
  private slots = new Int32Array(FIRST_SLOTS)
  private count = 0

  constructor(private readonly positions: readonly number[]) {
    this.numbers = positions.map(() => new Map())
    this.keys = new Int32Array((positions.length * FIRST_SLOTS) / 2)
  }

  /** The position of an earlier row with the same key. If there is none, this row gets the next position. */
  findOrAdd(row: Row): number | undefined {
    if (this.count * 2 >= this.slots.length) this.grow()
    const { positions, numbers, keys, slots } = this
    const width = positions.length
    const start = this.count * width
    let hash = 0
    for (let index = 0; index < width; index++) {
      const known = numbers[index]!
      const value = row[positions[index]!] ?? null
      let number = known.get(value)
      if (number === undefined) {
        number = known.size
        known.set(value, number)
      }
      keys[start + index] = number
      hash = ((hash << 5) - hash + number) | 0
    }
    const mask = slots.length - 1
    let slot = spread(hash) & mask
    for (; slots[slot] !== 0; slot = (slot + 1) & mask) {
      const position = slots[slot]! - 1
      if (this.isSame(position * width, start)) return position
    }
    slots[slot] = ++this.count
    return undefined
  }

  /**
   * The positions in the order of the keys, nulls last, one column from its largest value down. Undefined if there are
   * too many values to number their combinations.
   */
  inOrder(descending: number): number[] | undefined {
    const width = this.positions.length
    const ranks = this.numbers.map((known, index) => ranksOf(known, index === descending))
    const all = this.numbers.reduce((product, known) => product * known.size, this.count)
    if (all > LARGEST_EXACT) return undefined
    const order = new Float64Array(this.count)
    for (let position = 0; position < this.count; position++) {
      let rank = 0
      for (let index = 0; index < width; index++) {
        rank = rank * ranks[index]!.length + ranks[index]![this.keys[position * width + index]!]!
      }
      order[position] = rank * this.count + position
    }
    return Array.from(order.sort(), (rank) => rank % this.count)
  }

  private isSame(one: number, other: number): boolean {
    for (let index = 0; index < this.positions.length; index++) {
      if (this.keys[one + index] !== this.keys[other + index]) return false
    }
    return true
  }

  private grow(): void {
    const width = this.positions.length
    const keys = new Int32Array(this.keys.length * GROWTH)
    keys.set(this.keys)
    this.keys = keys
    this.slots = new Int32Array(this.slots.length * GROWTH)
    const mask = this.slots.length - 1
    for (let position = 0; position < this.count; position++) {
      let hash = 0
      for (let index = 0; index < width; index++) hash = ((hash << 5) - hash + keys[position * width + index]!) | 0
      let slot = spread(hash) & mask
      while (this.slots[slot] !== 0) slot = (slot + 1) & mask
      this.slots[slot] = position + 1
    }
  }
}

/** Keys that differ little get slots far apart. */
function spread(hash: number): number {
  return Math.imul(hash, 0x9e3779b1) >>> 8
}

/** For each number of a value its rank among all of them. */
function ranksOf(known: Map<Value, number>, descending: boolean): Int32Array {
  const sorted = [...known].sort(([one], [other]) => compare(one, other))
  if (descending) sorted.reverse()
  const ranks = new Int32Array(known.size)
  for (const [rank, [, number]] of sorted.entries()) ranks[number] = rank
  return ranks
}

function compare(one: Value, other: Value): number {
  if (one === null || other === null) return one === other ? 0 : one === null ? 1 : -1
  return one < other ? -1 : one > other ? 1 : 0
}
