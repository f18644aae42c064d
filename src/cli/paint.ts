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

export function toTerminal(text: string, colour: boolean): string {
  return mapParts(text, printable, (mark) => (colour ? `\u001b[${mark.slice(MARK.length)}` : ''))
}

/** One line for a table or a sentence: control characters are made visible, line breaks become spaces, styles stay. */
export function toOneLine(text: string): string {
  return mapParts(text, (part) => printable(part.replaceAll(/(?<!\s)\s*[\r\n]\s*/g, ' ')))
}

export function withoutStyles(text: string): string {
  return text.split(MARKS).filter(isText).join('')
}

const isText = (part: string) => !part.startsWith(MARK)

function mapParts(text: string, ofText: (part: string) => string, ofMark = (mark: string) => mark): string {
  return text
    .split(MARKS)
    .map((part) => (isText(part) ? ofText(part) : ofMark(part)))
    .join('')
}
