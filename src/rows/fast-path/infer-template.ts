import { type Piece, pieceOf } from './intern-pool.ts'

/** The parts of an item: the paths of its values, and the text before, between and after them. */
export interface InferredTemplate {
  pieces: Piece[]
  paths: string[]
}

const KEY = /\s*"([^"\\.]+)"\s*:\s*/y
const SCALAR = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?![\d.eE])|null/y
const SPACE = /\s*/y

// Rows of reports have about thirty. What is learned of each is kept.
const MOST_FIELDS = 100
const LONGEST = 16_384

/** The template of a valid item; undefined if it holds a list, a boolean, an exponent, a field twice or very much. */
export function inferTemplate(bytes: Buffer, start: number, end: number): InferredTemplate | undefined {
  if (end - start > LONGEST) return undefined
  // One character for each byte, so that positions in the text are positions in the bytes.
  const text = bytes.toString('latin1', start, end)
  const pieces: Piece[] = []
  const paths: string[] = []
  const members = new Set<string>()
  let at = 0
  let pieceStart = 0
  const match = (pattern: RegExp) => {
    pattern.lastIndex = at
    const found = pattern.exec(text)
    if (found !== null) at = pattern.lastIndex
    return found
  }
  const readObject = (prefix: string): boolean => {
    at++
    do {
      const name = match(KEY)?.[1]
      if (name === undefined) return false
      const path = prefix + name
      if (members.has(path) || members.size >= MOST_FIELDS || name === '__proto__') return false
      members.add(path)
      if (!readValue(path)) return false
      match(SPACE)
    } while (text[at] === ',' && at++ >= 0)
    return text[at++] === '}'
  }
  const readValue = (path: string): boolean => {
    if (text[at] === '{') return readObject(`${path}.`)
    const from = at
    if (match(SCALAR) === null) return false
    pieces.push(pieceOf(Buffer.from(text.slice(pieceStart, from), 'latin1')))
    paths.push(path)
    pieceStart = at
    return true
  }
  if (text[0] !== '{' || !readObject('') || at !== text.length) return undefined
  pieces.push(pieceOf(Buffer.from(text.slice(pieceStart), 'latin1')))
  return { pieces, paths }
}
