import type { Row, Stream } from '../streams/stream.ts'

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
