/** The number of letters to insert, delete, replace or swap with their neighbour to make one word of another. */
export function editDistance(from: string, to: string): number {
  let [twoBefore, before]: [number[], number[]] = [[], Array.from({ length: to.length + 1 }, (_, index) => index)]
  for (let row = 1; row <= from.length; row++) {
    const current = [row]
    for (let column = 1; column <= to.length; column++) {
      const same = from[row - 1] === to[column - 1]
      let least = Math.min(before[column]! + 1, current[column - 1]! + 1, before[column - 1]! + (same ? 0 : 1))
      if (row > 1 && column > 1 && from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1])
        least = Math.min(least, twoBefore[column - 2]! + 1)
      current.push(least)
    }
    ;[twoBefore, before] = [before, current]
  }
  return before[to.length]!
}

// A word from elsewhere may be of any length, and the comparison takes the product of both.
const LONGEST = 80
// Shorter parts of a name occur in too many others.
const SHORTEST_PART = 4

/** The candidate that was probably meant: one with a third of its letters wrong at most, or one that begins or ends alike. */
export function similarTo(word: string, candidates: Iterable<string>): string | undefined {
  const wanted = plain(word)
  if (wanted === '' || wanted.length > LONGEST) return undefined
  let found: { candidate: string; distance: number } | undefined
  for (const candidate of candidates) {
    const other = plain(candidate)
    if (other.length > LONGEST) continue
    const most = Math.max(1, Math.floor(Math.max(wanted.length, other.length) / 3))
    const edits = editDistance(wanted, other)
    // A part of the name is a weaker sign than a misspelling of all of it.
    const distance = edits <= most ? edits : isPart(wanted, other) ? most + edits : Number.POSITIVE_INFINITY
    if (distance < (found?.distance ?? Number.POSITIVE_INFINITY)) found = { candidate, distance }
  }
  return found?.candidate
}

/** "; did you mean "chats"?", or nothing if no candidate is near. */
export function didYouMean(word: unknown, candidates: Iterable<string>): string {
  const found = typeof word === 'string' ? similarTo(word, candidates) : undefined
  return found === undefined || found === word ? '' : `; did you mean "${found}"?`
}

function plain(text: string): string {
  return text.trim().toLowerCase().replaceAll(/[-\s]/g, '_')
}

function isPart(word: string, other: string): boolean {
  const [short, long] = word.length < other.length ? [word, other] : [other, word]
  return short.length >= SHORTEST_PART && (long.startsWith(short) || long.endsWith(short))
}
