import type { Row, Stream } from '../streams/stream.ts'

/**
 * Merges two rows with the same key. Counts are added up. A ratio that is equal in both rows is kept, because the ratio of the sums
 * is the same. A ratio or list that differs becomes null. Returns undefined if anything else differs: a contradiction.
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
