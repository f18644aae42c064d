/**
 * Milliseconds that only ever grow, passed in so that tests can set them. For ages and time limits: the clock on the wall
 * may be set back, and what is measured with it would then look newer than it is.
 */
export type Monotonic = () => number

export const monotonic: Monotonic = () => performance.now()
