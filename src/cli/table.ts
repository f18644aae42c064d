import { grouped } from '../core/text.ts'
import { strong, toOneLine } from './paint.ts'
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

/** A text and how many columns of the terminal it takes, measured once. */
interface Cell {
  text: string
  width: number
}

const GAP = 2
// Narrower columns of text are hard to read; titles are never broken.
const NARROWEST = 12
const ZERO = /^[0–]?$/
const EMPTY: Cell = { text: '', width: 0 }

/** A plain text table: numbers with thousands separators, columns as wide as they need to be and the terminal lets them. */
export function renderTable<Row>(
  all: readonly TableColumn<Row>[],
  rows: readonly Row[],
  { width = Number.POSITIVE_INFINITY, footer, group, note }: TableOptions<Row> = {},
): string {
  const shown = [...rows, ...(footer === undefined ? [] : [footer])]
  const known = new Map<string | number, Cell>()
  const everyCell = shown.map((row) => all.map(({ value }) => cellOf(value(row), known)))
  const kept = keptColumns(all, everyCell, width)
  const columns = kept.map((index) => all[index]!)
  const cells = everyCell.map((line) => kept.map((index) => line[index]!))
  const widths = shrunk(columns, naturalWidths(columns, cells), width)
  const line = (texts: readonly Cell[]) => {
    const parts = texts.map((cell, index) =>
      cell.width <= widths[index]! ? [cell] : wrapCell(cell.text, widths[index]!).map(measured),
    )
    const height = Math.max(...parts.map(({ length }) => length))
    return Array.from({ length: height }, (_, at) =>
      parts
        .map((part, index) => {
          const { text, width: taken } = part[at] ?? EMPTY
          const space = ' '.repeat(Math.max(0, widths[index]! - taken))
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
  return [line(columns.map(({ title }) => measured(title))), rule, ...body, ...end].join('\n')
}

/** Most values of a long table are there many times. */
function cellOf(value: string | number, known: Map<string | number, Cell>): Cell {
  const cell = known.get(value) ?? measured(typeof value === 'number' ? grouped(value) : toOneLine(value))
  known.set(value, cell)
  return cell
}

function measured(text: string): Cell {
  return { text, width: widthOf(text) }
}

function totalOf(widths: readonly number[]): number {
  return widths.reduce((sum, width) => sum + width, 0) + GAP * (widths.length - 1)
}

function naturalWidths<Row>(columns: readonly TableColumn<Row>[], cells: readonly Cell[][]): number[] {
  return columns.map(({ title }, index) =>
    cells.reduce((most, line) => Math.max(most, line[index]!.width), widthOf(title)),
  )
}

/** The columns that stay, by their numbers: as many as fit. */
function keptColumns<Row>(all: readonly TableColumn<Row>[], cells: readonly Cell[][], width: number): number[] {
  const widths = naturalWidths(all, cells)
  const rank = ({ drop }: TableColumn<Row>, index: number) => {
    if (drop !== 'if-zero') return drop ?? -1
    return cells.every((line) => ZERO.test(line[index]!.text)) ? Number.POSITIVE_INFINITY : -1
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
