import { toOneLine, withoutStyles } from './paint.ts'

/** The width of tables and sentences if no terminal says another. */
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
  const lines: string[] = []
  let line = indent
  let empty = true
  for (const word of toOneLine(text).split(/ +/)) {
    if (word === '') continue
    if (!empty && widthOf(line) + 1 + widthOf(word) > width) {
      lines.push(line)
      line = hanging
      empty = true
    }
    line += empty ? word : ` ${word}`
    empty = false
  }
  return [...lines, line].join('\n')
}

/** The lines of a table's cell: broken at spaces, else behind the marks that part a name, else anywhere. */
export function wrapCell(text: string, width: number): string[] {
  if (widthOf(text) <= width) return [text]
  return wrap(text, width)
    .split('\n')
    .flatMap((line) => breakWord(line, width))
}

function breakWord(word: string, width: number): string[] {
  const lines: string[] = []
  // A style would be cut in two.
  let rest = widthOf(word) > width ? withoutStyles(word) : word
  while (widthOf(rest) > width) {
    const head = takeColumns(rest, width)
    const mark = Math.max(...['_', '.', ',', '/', ':', '-'].map((letter) => head.lastIndexOf(letter)))
    const at = mark >= head.length / 2 ? mark + 1 : head.length
    lines.push(rest.slice(0, at))
    rest = rest.slice(at)
  }
  return [...lines, rest]
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

/** A text on one line, cut to a width. */
export function clipTo(text: string, width: number): string {
  const line = toOneLine(text)
  return widthOf(line) <= width ? line : `${takeColumns(line, width - 1).trimEnd()}…`
}
