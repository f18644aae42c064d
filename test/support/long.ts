import { describe, test } from '@jest/globals'

/** `npm run test:long` is for many seeds and large volumes. `npm test` runs a representative of each. */
const IS_LONG = process.env.TEST_LONG === 'on'

/** A number of seeds, samples or rows. */
export const sized = (usual: number, long: number): number => (IS_LONG ? long : usual)

/** A test that only the long run has. */
export function longTest(name: string, work: () => void | Promise<void>, timeoutMs?: number): void {
  if (IS_LONG) test(name, work, timeoutMs)
  else process.stderr.write(`left to "npm run test:long": ${name}\n`)
}

/** A group of tests that only the long run has. */
export function longGroup(name: string, tests: () => void): void {
  if (IS_LONG) describe(name, tests)
  else process.stderr.write(`left to "npm run test:long": ${name}\n`)
}

/** So many of the cases, spread evenly from the first to the last; all of them in the long run. */
export function some<T>(cases: readonly T[], most: number): T[] {
  if (IS_LONG || cases.length <= most) return [...cases]
  const step = most === 1 ? 0 : (cases.length - 1) / (most - 1)
  return Array.from({ length: most }, (_, at) => cases[Math.round(at * step)]!)
}
