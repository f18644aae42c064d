// Ids of this length or less are shown as they are.
const SHORT = 16
const FEWEST = 4

/** "or_1f0c…9ab2" for each id, with as many letters as make each unique. */
export function shortIds(ids: readonly string[]): Map<string, string> {
  const all = [...new Set(ids)]
  for (let letters = FEWEST; ; letters += 2) {
    const short = all.map((id) => shorten(id, letters))
    if (new Set(short).size === all.length) return new Map(all.map((id, index) => [id, short[index]!]))
  }
}

function shorten(id: string, letters: number): string {
  const prefix = /^[a-z]{1,4}_/.exec(id)?.[0] ?? ''
  const rest = id.slice(prefix.length)
  return id.length <= SHORT || rest.length <= 2 * letters + 1
    ? id
    : `${prefix}${rest.slice(0, letters)}…${rest.slice(-letters)}`
}
