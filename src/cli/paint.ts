import { randomBytes } from 'node:crypto'
import { printable } from '../core/text.ts'

/*
 * Colours for people. Rendering always paints; printing decides whether colours come out. Until then a style is
 * a mark that no text from elsewhere can hold, because it is another one in each process.
 */

const MARK = `\u001b${randomBytes(6).toString('hex')}`
const MARKS = new RegExp(`(${MARK}\\d+m)`)

function style(open: number, close: number): (text: string) => string {
  return (text) => (text === '' ? '' : `${MARK}${open}m${text}${MARK}${close}m`)
}

export const good = style(32, 39)
export const bad = style(31, 39)
export const warning = style(33, 39)
export const strong = style(1, 22)
export const faint = style(2, 22)

/** Ready to be written to a terminal or a file: our own styles as colours or not at all, and no other control characters. */
export function toTerminal(text: string, colour: boolean): string {
  return mapParts(text, printable, (mark) => (colour ? `\u001b[${mark.slice(MARK.length)}` : ''))
}

/** One line for a table or a sentence: control characters are made visible, line breaks become spaces, styles stay. */
export function toOneLine(text: string): string {
  return mapParts(
    text,
    (part) => printable(part.replaceAll(/(?<!\s)\s*[\r\n]\s*/g, ' ')),
    (mark) => mark,
  )
}

export function withoutStyles(text: string): string {
  return mapParts(
    text,
    (part) => part,
    () => '',
  )
}

function mapParts(text: string, ofText: (part: string) => string, ofMark: (mark: string) => string): string {
  // Of most cells of a long table.
  if (!text.includes(MARK)) return ofText(text)
  return text
    .split(MARKS)
    .map((part) => (part.startsWith(MARK) ? ofMark(part) : ofText(part)))
    .join('')
}
