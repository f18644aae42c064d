/* CSV (RFC 4180) for spreadsheets. */

export type CsvValue = string | number | boolean | null | readonly string[]

/** A file of lines: a header, then rows. */
export function csvText(header: readonly string[], rows: readonly (readonly CsvValue[])[]): string {
  return `${[header, ...rows].map((row) => row.map(cell).join(',')).join('\r\n')}\r\n`
}

function cell(value: CsvValue): string {
  const text =
    typeof value === 'string' ? withoutFormula(value) : Array.isArray(value) ? listCell(value) : String(value ?? '')
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

const listCell = (texts: readonly string[]) => withoutFormula(texts.join(', '))

/** Spreadsheets calculate a text that begins like a formula, which may come from the service or a file; not a number. */
function withoutFormula(text: string): string {
  return /^[=+\-@\t\r]/.test(text) && !/^[+-]?\d+(\.\d+)?$/.test(text) ? `'${text}` : text
}
