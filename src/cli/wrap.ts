import { toOneLine, withoutStyles } from './paint.ts'

export const DEFAULT_WIDTH = 80

const ASCII = /^[\x20-\x7e]*$/
const ZERO = /^[\p{M}\p{Cf}]$/u
// East Asian wide characters and emoji take two columns.
const WIDE =
  /^[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]$/u

/** How many columns of a terminal a text takes. */
export function widthOf(text: string): number {
  const shown = withoutStyles(text)
  if (ASCII.test(shown)) return shown.length
  let width = 0
  for (const character of shown) width += ZERO.test(character) ? 0 : WIDE.test(character) ? 2 : 1
  return width
}

/** Sentences in lines of a width. Words are kept whole, so that addresses and commands can be copied. */
export function wrap(text: string, width: number, indent = '', hanging = ' '.repeat(widthOf(indent))): string {
  const [first = '', ...words] = toOneLine(text).trim().split(/ +/)
  const lines = [indent + first]
  for (const word of words) {
    const longer = `${lines.at(-1)} ${word}`
    if (widthOf(longer) <= width) lines[lines.length - 1] = longer
    else lines.push(hanging + word)
  }
  return lines.join('\n')
}

/** The lines of a table's cell: broken at spaces, and anywhere in words that are too long. */
export function wrapCell(text: string, width: number): string[] {
  if (widthOf(text) <= width) return [text]
  return wrap(text, width)
    .split('\n')
    .flatMap((line) => breakLine(line, width))
}

function breakLine(line: string, width: number): string[] {
  if (widthOf(line) <= width) return [line]
  // A style would be cut in two.
  const plain = withoutStyles(line)
  const head = takeColumns(plain, width)
  return head === plain ? [plain] : [head, ...breakLine(plain.slice(head.length), width)]
}

/** The longest beginning of a text within a width, and at least one character. */
function takeColumns(text: string, width: number): string {
  let taken = ''
  for (const character of text) {
    if (taken !== '' && widthOf(taken + character) > width) break
    taken += character
  }
  return taken
}

export function clipTo(text: string, width: number): string {
  const line = toOneLine(text)
  return widthOf(line) <= width ? line : `${takeColumns(line, width - 1).trimEnd()}…`
}
