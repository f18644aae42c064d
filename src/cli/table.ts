import { grouped } from '../core/text.ts'
import { strong, toOneLine } from './paint.ts'
import { widthOf, wrap, wrapCell } from './wrap.ts'

export interface TableColumn<Row> {
  title: string
  align?: 'right'
  value(row: Row): string | number
  /** Left out if the table is too wide: columns of zeros first, then the highest number. */
  drop?: 'if-zero' | number
}

export interface TableOptions<Row> {
  /** The columns of the terminal; without it the table is as wide as its contents. */
  width?: number
  footer?: Row
  /** The heading above consecutive rows of one group. */
  group?: (row: Row) => string
  note?: (row: Row) => string | undefined
}

const GAP = 2
// Narrower columns of text are hard to read; titles are never broken.
const NARROWEST = 12
const ZERO = /^[0–]?$/

/** A plain text table: numbers with thousands separators, columns as wide as they need to be and the terminal lets them. */
export function renderTable<Row>(
  all: readonly TableColumn<Row>[],
  rows: readonly Row[],
  { width = Number.POSITIVE_INFINITY, footer, group, note }: TableOptions<Row> = {},
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
  align?: 'right'
  cells: string[]
  width: number
}

function fitted<Row>(all: readonly TableColumn<Row>[], rows: readonly Row[], width: number): FittedColumn[] {
  const columns = all.map((column) => {
    const cells = rows.map(column.value).map((value) => (typeof value === 'number' ? grouped(value) : toOneLine(value)))
    const natural = cells.reduce((most, cell) => Math.max(most, widthOf(cell)), widthOf(column.title))
    const least = column.align === 'right' ? natural : Math.max(NARROWEST, widthOf(column.title))
    const rank = column.drop !== 'if-zero' ? (column.drop ?? -1) : cells.every((cell) => ZERO.test(cell)) ? 99 : -1
    return { ...column, cells, width: natural, least, rank }
  })
  for (const column of columns.filter(({ rank }) => rank >= 0).sort((a, b) => b.rank - a.rank))
    if (totalOf(columns) > width) columns.splice(columns.indexOf(column), 1)
  while (totalOf(columns) > width) {
    const [widest] = columns.filter((column) => column.width > column.least).sort((a, b) => b.width - a.width)
    if (widest === undefined) break
    widest.width--
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
