/* The formulas of docs/explanation/statistics.md, worked out apart from the SQL. */

const Z = 1.96

/** The 95 % interval of k out of n. */
export function wilson(k: number, n: number): [low: number, high: number] | null {
  if (n <= 0) return null
  const centre = (k + (Z * Z) / 2) / (n + Z * Z)
  const half = (Z * Math.sqrt((k * (n - k)) / n + (Z * Z) / 4)) / (n + Z * Z)
  return [Math.max(0, centre - half), Math.min(1, centre + half)]
}

export interface Sample {
  k: number
  n: number
}

/** The 95 % interval of the change from one share to another. */
export function newcombe(now: Sample, before: Sample | undefined): [low: number, high: number] | null {
  const [a, b] = [wilson(now.k, now.n), before === undefined ? null : wilson(before.k, before.n)]
  if (a === null || b === null || before === undefined) return null
  const [p, q] = [now.k / now.n, before.k / before.n]
  return [p - q - Math.hypot(p - a[0], b[1] - q), p - q + Math.hypot(a[1] - p, q - b[0])]
}

export function verdict(now: Sample, before: Sample | undefined): string {
  if (before === undefined) return 'new'
  if (now.n < 30 || before.n < 30) return 'too_few'
  const [low, high] = newcombe(now, before)!
  return low > 0 ? 'up' : high < 0 ? 'down' : 'no_clear_change'
}

export function clarity(now: Sample, before: Sample): number | null {
  const interval = newcombe(now, before)
  if (interval === null) return null
  const change = now.k / now.n - before.k / before.n
  if (change === 0) return 0
  return change > 0 ? change / (change - interval[0]) : change / (change - interval[1])
}

/** Two-sided, by adding up the normal distribution beyond the change. */
export function pValue(clear: number): number {
  const [from, step] = [Z * Math.abs(clear), 1e-3]
  let sum = 0
  for (let z = from + step / 2; z < 10; z += step) sum += Math.exp((-z * z) / 2) * step
  return (2 * sum) / Math.sqrt(2 * Math.PI)
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = (sorted.length - 1) / 2
  const [low, high] = [sorted[Math.floor(middle)]!, sorted[Math.ceil(middle)]!]
  return low + (high - low) * (middle - Math.floor(middle))
}

/** What is usual, and whether a day is not; nulls where fewer than five of the eight days are known. */
export function unusual(
  value: number | null,
  history: readonly number[],
): { usual: number | null; is: boolean | null } {
  if (history.length < 5) return { usual: null, is: null }
  const usual = median(history)
  const deviation = median(history.map((one) => Math.abs(one - usual)))
  return { usual, is: value === null ? null : Math.abs(value - usual) > 3 * 1.4826 * deviation }
}
