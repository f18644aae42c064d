export interface TableColumn<Row> {
  title: string
  align?: 'right'
  value(row: Row): string | number
}

// Made once: a formatter for each number costs more than the rest of a long table.
const NUMBERS = new Intl.NumberFormat('en-US', { maximumFractionDigits: 1 })

/** A plain text table: numbers with thousands separators, columns as wide as they need to be. */
export function renderTable<Row>(columns: readonly TableColumn<Row>[], rows: readonly Row[], footer?: Row): string {
  const cells = [...rows, ...(footer === undefined ? [] : [footer])].map((row) =>
    columns.map(({ value }) => {
      const cell = value(row)
      return typeof cell === 'number' ? NUMBERS.format(cell) : cell
    }),
  )
  const widths = columns.map(({ title }, index) => Math.max(title.length, ...cells.map((line) => line[index]!.length)))
  const line = (texts: readonly string[]) =>
    texts
      .map((text, index) =>
        columns[index]!.align === 'right' ? text.padStart(widths[index]!) : text.padEnd(widths[index]!),
      )
      .join('  ')
      .trimEnd()
  const rule = widths.map((width) => '─'.repeat(width)).join('──')
  const body = cells.slice(0, rows.length).map(line)
  const end = footer === undefined ? [] : [rule, line(cells.at(-1)!)]
  return [line(columns.map(({ title }) => title)), rule, ...body, ...end].join('\n')
}
