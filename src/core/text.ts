export function clip(text: string, length = 300): string {
  const cut = text.length <= length ? text : `${text.slice(0, length)}… (${text.length - length} more characters)`
  // Texts of the service, and texts that were cut, may contain characters that Postgres cannot store.
  return cut.replaceAll('\0', '\uFFFD').toWellFormed()
}

export function inQuotes(text: string, most = 80): string {
  return clip(JSON.stringify(text), most)
}

export function helpOn(topic: string): string {
  return `"npx visibility-sync help ${topic}"`
}

/** "12,000", with at most one decimal. Node's own formatter reads its locales first, which takes longer than a whole table. */
export function grouped(number: number): string {
  const [whole, decimals] = String(Math.round(number * 10) / 10).split('.')
  const separated = whole!.replace(/\B(?=(\d{3})+$)/g, ',')
  return decimals === undefined ? separated : `${separated}.${decimals}`
}

export function streamDays(number: number): string {
  return count(number, 'day of a stream', 'days of streams')
}

export function count(number: number, noun: string, plural = `${noun}s`): string {
  return `${grouped(number)} ${number === 1 ? noun : plural}`
}

export function duration(seconds: number): string {
  if (seconds < 90) return `${Math.round(seconds)} s`
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min`
  if (seconds < 36 * 3600) return `${grouped(seconds / 3600)} h`
  return `${Math.round(seconds / 86_400)} days`
}

/** The seconds of a setting such as "90m", "26h" or "2d". */
export function secondsOf(span: string): number {
  return Number.parseInt(span, 10) * { m: 60, h: 3600, d: 86_400 }[span.at(-1) as 'm' | 'h' | 'd']
}

/** "a, b and 7 more": a list short enough for one line. */
export function listSome(items: readonly string[], most = 5): string {
  if (items.length <= most) return items.join(', ')
  return `${items.slice(0, most).join(', ')} and ${items.length - most} more`
}

/*
 * Text from the service, from files and from the database may hold control characters: escape sequences that
 * set the title or the clipboard of a terminal, and marks that change the direction of the text.
 */

// All of C0, DEL and C1, and the bidirectional overrides and isolates.
const CONTROL_CHARACTERS = /[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu

/**
 * A text that is safe on a terminal: line feeds stay, everything else is written as \uXXXX. JSON keeps its
 * meaning, because it holds such characters only within texts, where the escape says the same.
 */
export function printable(text: string): string {
  return text.replaceAll('\r\n', '\n').replaceAll(CONTROL_CHARACTERS, (character) => {
    if (character === '\n') return character
    if (character === '\t') return ' '
    return `\\u${character.codePointAt(0)!.toString(16).padStart(4, '0')}`
  })
}

/* CSV (RFC 4180) for spreadsheets. */

export type CsvValue = string | number | boolean | null

export function csvText(header: readonly string[], rows: readonly (readonly CsvValue[])[]): string {
  return `${[header, ...rows].map((row) => row.map(cell).join(',')).join('\r\n')}\r\n`
}

function cell(value: CsvValue): string {
  const text = typeof value === 'string' ? withoutFormula(value) : String(value ?? '')
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

/** Spreadsheets calculate a text that begins like a formula, which may come from the service or a file; not a number. */
function withoutFormula(text: string): string {
  return /^[=+\-@\t\r]/.test(text) && !/^[+-]?\d+(\.\d+)?$/.test(text) ? `'${text}` : text
}

/** The number of letters to insert, delete, replace or swap with their neighbour to make one word of another. */
function editDistance(from: string, to: string): number {
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

/** One or two letters are wrong. */
export function isMisspelt(word: string, candidate: string): boolean {
  return Math.abs(word.length - candidate.length) <= 2 && editDistance(word, candidate) <= 2
}

function plain(text: string): string {
  return text.trim().toLowerCase().replaceAll(/[-\s]/g, '_')
}

function isPart(word: string, other: string): boolean {
  const [short, long] = word.length < other.length ? [word, other] : [other, word]
  return short.length >= SHORTEST_PART && (long.startsWith(short) || long.endsWith(short))
}
