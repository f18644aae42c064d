// Taken once: looking a global up for every number is slow where code runs in a sandbox, as tests do.
const { imul } = Math

/** A small seeded generator (mulberry32): the same seed gives the same numbers from 0 up to 1 on every machine. */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}

/** A 32-bit hash of a text (FNV-1a), for seeds. */
export function hashText(text: string): number {
  let hash = 0x811c9dc5
  for (let index = 0; index < text.length; index++) {
    hash = imul(hash ^ text.charCodeAt(index), 0x01000193)
  }
  return hash >>> 0
}
