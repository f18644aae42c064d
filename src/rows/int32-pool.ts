/*
 * Lists of numbers that serve one answer after the other. What lives as long as an answer waits to be loaded is old to
 * the garbage collector, which then leaves it lying about for long.
 */

const KEPT = 12
const LONGEST_KEPT = 262_144

// Of the whole process on purpose: whichever stream comes next takes what the last one left. It saves 14 MB.
const spare = new Map<number, Int32Array[]>()

/** A list with room for so many numbers or more. What stands in it is left from before. */
export function takeInt32s(least: number): Int32Array {
  const length = 2 ** Math.ceil(Math.log2(least))
  return spare.get(length)?.pop() ?? new Int32Array(length)
}

/** Gives a list back. Nothing may use it from then on. */
export function returnInt32s(ints: Int32Array): void {
  if (ints.length > LONGEST_KEPT) return
  const same = spare.get(ints.length) ?? []
  if (same.length < KEPT) same.push(ints)
  spare.set(ints.length, same)
}

/** The same numbers in a list that is longer; the other one is given back. */
export function growInt32s(ints: Int32Array, factor: number): Int32Array {
  const longer = takeInt32s(ints.length * factor)
  longer.set(ints)
  returnInt32s(ints)
  return longer
}
