import { test } from '@jest/globals'

/** `npm run test:long` is for many seeds and large volumes. `npm test` runs a representative of each. */
const IS_LONG = process.env.TEST_LONG === 'on'

/** A number of seeds, samples or rows. */
export const sized = (usual: number, long: number): number => (IS_LONG ? long : usual)

/** A test that only the long run has. */
export const longTest = IS_LONG ? test : test.skip
