import { strong, toOneLine } from '../core/paint.ts'
import { grouped } from '../core/text.ts'
import { widthOf, wrap, wrapCell } from './wrap.ts'

export interface TableColumn<Row> {
  title: string
  align?: 'right'
  value(row: Row): string | number
  /** Left out if the table is too wide: those without any value first, then the highest number. */
  drop?: 'if-zero' | number
}

export interface TableOptions<Row> {
  /** The columns of the terminal; without it the table is as wide as its contents. */
  width?: number
  /** A row of totals. */
  footer?: Row
  /** Rows of one group follow one another, under its name. */
  group?: (row: Row) => string
  /** What is to be said of a row, below it. */
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
  const shown = [...rows, ...(footer === undefined ? [] : [footer])]
  const everyCell = shown.map((row) => all.map(({ value }) => cellOf(value(row))))
  const kept = keptColumns(all, everyCell, width)
  const columns = kept.map((index) => all[index]!)
  const cells = everyCell.map((line) => kept.map((index) => line[index]!))
  const widths = shrunk(columns, naturalWidths(columns, cells), width)
  const line = (texts: readonly string[]) => {
    const parts = texts.map((text, index) => wrapCell(text, widths[index]!))
    const height = Math.max(...parts.map(({ length }) => length))
    return Array.from({ length: height }, (_, at) =>
      parts
        .map((part, index) => {
          const text = part[at] ?? ''
          const space = ' '.repeat(Math.max(0, widths[index]! - widthOf(text)))
          return columns[index]!.align === 'right' ? space + text : text + space
        })
        .join(' '.repeat(GAP))
        .trimEnd(),
    ).join('\n')
  }
  const rule = '─'.repeat(totalOf(widths))
  const body = rows.flatMap((row, index) => {
    const name = group?.(row)
    const begins = name !== undefined && (index === 0 || name !== group?.(rows[index - 1]!))
    const said = note?.(row)
    return [
      ...(begins ? [wrap(strong(name), width)] : []),
      line(cells[index]!),
      ...(said === undefined || said === '' ? [] : [wrap(said, width, '    ')]),
    ]
  })
  const end = footer === undefined ? [] : [rule, line(cells.at(-1)!)]
  return [line(columns.map(({ title }) => title)), rule, ...body, ...end].join('\n')
}

function cellOf(value: string | number): string {
  return typeof value === 'number' ? grouped(value) : toOneLine(value)
}

function totalOf(widths: readonly number[]): number {
  return widths.reduce((sum, width) => sum + width, 0) + GAP * (widths.length - 1)
}

function naturalWidths<Row>(columns: readonly TableColumn<Row>[], cells: readonly string[][]): number[] {
  return columns.map(({ title }, index) =>
    cells.reduce((most, line) => Math.max(most, widthOf(line[index]!)), widthOf(title)),
  )
}

/** The columns that stay, by their numbers: as many as fit. */
function keptColumns<Row>(all: readonly TableColumn<Row>[], cells: readonly string[][], width: number): number[] {
  const widths = naturalWidths(all, cells)
  const rank = ({ drop }: TableColumn<Row>, index: number) => {
    if (drop !== 'if-zero') return drop ?? -1
    return cells.every((line) => ZERO.test(line[index]!)) ? Number.POSITIVE_INFINITY : -1
  }
  const going = all
    .map((column, index) => ({ index, rank: rank(column, index) }))
    .filter((column) => column.rank >= 0)
    .sort((a, b) => b.rank - a.rank || b.index - a.index)
  let kept = all.map((_, index) => index)
  for (const { index } of going) {
    if (totalOf(kept.map((at) => widths[at]!)) <= width) break
    kept = kept.filter((at) => at !== index)
  }
  return kept
}

/** Takes from the widest columns of text until the table fits; their cells go on in the next line. */
function shrunk<Row>(columns: readonly TableColumn<Row>[], natural: readonly number[], width: number): number[] {
  const widths = [...natural]
  const least = columns.map(({ align, title }, index) =>
    align === 'right' ? natural[index]! : Math.min(natural[index]!, Math.max(NARROWEST, widthOf(title))),
  )
  for (let over = totalOf(widths) - width; over > 0; over--) {
    const [widest] = widths
      .flatMap((_, index) => (widths[index]! > least[index]! ? [index] : []))
      .sort((a, b) => widths[b]! - widths[a]!)
    if (widest === undefined) break
    widths[widest] = widths[widest]! - 1
  }
  return widths
}
