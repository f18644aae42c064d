import { randomBytes } from 'node:crypto'
import { grouped, printable } from '../core/text.ts'

const ASCII = /^[\x20-\x7e]*$/
const NO_COLUMNS = /^[\p{M}\p{Cf}]$/u
// East Asian wide characters and emoji take two columns.
const WIDE =
  /^[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]$/u

export function widthOf(text: string): number {
  const shown = withoutStyles(text)
  if (ASCII.test(shown)) return shown.length
  let width = 0
  for (const character of shown) width += NO_COLUMNS.test(character) ? 0 : WIDE.test(character) ? 2 : 1
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

/** A sentence in lines of a width, and below it, as they are, lines to copy. */
export function wrapNote(text: string, width: number, indent: string, hanging: string): string {
  const [sentence = '', ...toCopy] = text.split('\n')
  return [wrap(sentence, width, indent, hanging), ...toCopy.map((line) => hanging + line)].join('\n')
}

function wrapCell(text: string, width: number): string[] {
  if (widthOf(text) <= width) return [text]
  return wrap(text, width)
    .split('\n')
    .flatMap((line) => breakLine(line, width))
}

function breakLine(line: string, width: number): string[] {
  if (widthOf(line) <= width) return [line]
  // A style would be cut in two.
  const plain = withoutStyles(line)
  const head = clipColumns(plain, width)
  return head === plain ? [plain] : [head, ...breakLine(plain.slice(head.length), width)]
}

/** The longest beginning of a text within a width, and at least one character. */
function clipColumns(text: string, width: number): string {
  let taken = ''
  for (const character of text) {
    if (taken !== '' && widthOf(taken + character) > width) break
    taken += character
  }
  return taken
}

export function clipTo(text: string, width: number): string {
  const line = toOneLine(text)
  return widthOf(line) <= width ? line : `${clipColumns(line, width - 1).trimEnd()}…`
}

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
export const paintOutcome = { complete: good, partial: warning, interrupted: warning, failed: bad }
const strong = style(1, 22)
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

export interface TableColumn<Row> {
  title: string
  /** Numbers are aligned right by themselves. */
  align?: 'right'
  value(row: Row): string | number
  /** Left out if the table is too wide: columns of zeros first, then the highest number. */
  drop?: 'if-zero' | number
  /** Never broken: people search for it. */
  isWhole?: true
}

interface Table<Row> {
  rows: readonly Row[]
  width?: number
  footer?: Row
  group?: (row: Row) => string
  note?: (row: Row) => string | undefined
}

const GAP = 2
// Narrower columns of text are hard to read; titles are never broken.
const NARROWEST = 12
const EMPTY_OR_ZERO = /^[0–]?$/

export function renderTable<Row>(
  { rows, width = Number.POSITIVE_INFINITY, footer, group, note }: Table<Row>,
  all: readonly TableColumn<Row>[],
): string {
  const columns = fitted(all, footer === undefined ? rows : [...rows, footer], width)
  const line = (textOf: (column: FittedColumn) => string) => {
    const parts = columns.map((column) => wrapCell(textOf(column), column.width))
    const lines = Array.from({ length: Math.max(...parts.map(({ length }) => length)) }, (_, at) =>
      columns.map((column, index) => padded(parts[index]![at] ?? '', column)).join(' '.repeat(GAP)),
    )
    return lines.map((text) => text.trimEnd()).join('\n')
  }
  const rule = '─'.repeat(totalOf(columns))
  const body = rows.flatMap((row, index) => {
    const name = group?.(row)
    const begins = name !== undefined && (index === 0 || name !== group?.(rows[index - 1]!))
    const below = note?.(row) ?? ''
    return [
      ...(begins ? [wrap(strong(name), width)] : []),
      line(({ cells }) => cells[index]!),
      ...(below === '' ? [] : [wrap(below, width, '    ')]),
    ]
  })
  const end = footer === undefined ? [] : [rule, line(({ cells }) => cells.at(-1)!)]
  return [line(({ title }) => title), rule, ...body, ...end].join('\n')
}

interface FittedColumn {
  title: string
  align: 'right' | undefined
  cells: string[]
  width: number
}

function fitted<Row>(all: readonly TableColumn<Row>[], rows: readonly Row[], width: number): FittedColumn[] {
  const columns = all.map((column) => {
    const values = rows.map(column.value)
    const align = values.some((value) => typeof value === 'number') ? 'right' : column.align
    const cells = values.map((value) => (typeof value === 'number' ? grouped(value) : toOneLine(value)))
    const natural = cells.reduce((most, cell) => Math.max(most, widthOf(cell)), widthOf(column.title))
    const shortest = Math.max(NARROWEST, widthOf(column.title))
    const longestWord = cells
      .flatMap((cell) => cell.split(' '))
      .reduce((most, word) => Math.max(most, widthOf(word)), 0)
    const least = align === 'right' || column.isWhole ? [natural, natural] : [Math.max(shortest, longestWord), shortest]
    const rank =
      column.drop !== 'if-zero' ? (column.drop ?? -1) : cells.every((cell) => EMPTY_OR_ZERO.test(cell)) ? 99 : -1
    return { ...column, align, cells, width: natural, least, rank }
  })
  for (const column of columns.filter(({ rank }) => rank >= 0).sort((a, b) => b.rank - a.rank))
    if (totalOf(columns) > width) columns.splice(columns.indexOf(column), 1)
  // Words are broken only if that is not enough.
  for (const round of [0, 1]) {
    while (totalOf(columns) > width) {
      const [widest] = columns.filter((column) => column.width > column.least[round]!).sort((a, b) => b.width - a.width)
      if (widest === undefined) break
      widest.width--
    }
  }
  return columns
}

function totalOf(columns: readonly FittedColumn[]): number {
  return columns.reduce((sum, { width }) => sum + width + GAP, -GAP)
}

function padded(text: string, { align, width }: FittedColumn): string {
  const space = ' '.repeat(Math.max(0, width - widthOf(text)))
  return align === 'right' ? space + text : text + space
}
