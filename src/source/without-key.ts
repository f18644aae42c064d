export const REPEATED_KEY = '[redacted key]'
// A shorter key may be part of an ordinary text, and a key of digits part of a number.
const SHORTEST_KEY = 8
const LIKE_A_NUMBER = /^[\d.+eE-]*$/
const CHUNK_BYTES = 1_048_576
/** Of a character that JSON escapes. */
const ESCAPE_LENGTH = 6

/** The answer without the key that it was asked for with, however JSON spells it; undefined if the key is not in it. */
export function withoutKey(bytes: Buffer, key: string): Buffer | undefined {
  if (key.length < SHORTEST_KEY || LIKE_A_NUMBER.test(key)) return undefined
  // Without a backslash, nothing is escaped.
  if (!bytes.includes(key) && !bytes.includes('\\')) return undefined
  const spelled = Array.from(key, spellingsOf).join('')
  if (!holds(bytes, new RegExp(spelled), key.length * ESCAPE_LENGTH)) return undefined
  // Other escapes are matched as a whole: the letter of one is no beginning of the key.
  const keyOrEscape = new RegExp(`(${spelled})|\\\\(?:u[\\da-fA-F]{4}|[^])`, 'g')
  const given = bytes.toString('latin1')
  const clean = given.replaceAll(keyOrEscape, (found, ofKey?: string) => (ofKey === undefined ? found : REPEATED_KEY))
  return clean === given ? undefined : Buffer.from(clean, 'latin1')
}

/** In chunks that overlap: as one text, a large answer would take as much memory again. */
function holds(bytes: Buffer, pattern: RegExp, longest: number): boolean {
  for (let at = 0; at < bytes.length; at += CHUNK_BYTES)
    if (pattern.test(bytes.toString('latin1', at, at + CHUNK_BYTES + longest))) return true
  return false
}

const SHORT_ESCAPES: Record<string, string> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' }

/** A pattern for every spelling of a character in JSON, over bytes that were read as Latin-1. */
function spellingsOf(character: string): string {
  const units = Array.from({ length: character.length }, (_, index) => {
    const hex = character.charCodeAt(index).toString(16).padStart(4, '0')
    return `\\\\u${hex.replaceAll(/[a-f]/g, (digit) => `[${digit}${digit.toUpperCase()}]`)}`
  })
  const short = Object.keys(SHORT_ESCAPES).find((letter) => SHORT_ESCAPES[letter] === character)
  const spellings = [units.join(''), ...(short === undefined ? [] : [`\\\\${short}`])]
  if ('"\\/'.includes(character)) spellings.push(`\\\\\\${character}`)
  if (character >= ' ' && !'"\\'.includes(character)) spellings.push(literally(character))
  return `(?:${spellings.join('|')})`
}

function literally(text: string): string {
  return Array.from(Buffer.from(text), (byte) => `\\x${byte.toString(16).padStart(2, '0')}`).join('')
}
