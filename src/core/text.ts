import { createRedactor } from './redactor.ts'

/** Cuts a text to a length that is safe to log or keep, saying how much is gone. */
export function clip(text: string, length = 300): string {
  const cut = text.length <= length ? text : `${text.slice(0, length)}… (${text.length - length} more characters)`
  // What comes from the service may hold, and a cut may leave, what Postgres cannot store.
  return cut.replaceAll('\0', '\uFFFD').toWellFormed()
}

/** "12,000", with at most one decimal. Node's own formatter reads its locales first, which takes longer than a whole table. */
export function grouped(number: number): string {
  const [whole, decimals] = String(Math.round(number * 10) / 10).split('.')
  const separated = whole!.replace(/\B(?=(\d{3})+$)/g, ',')
  return decimals === undefined ? separated : `${separated}.${decimals}`
}

/** "3 rows", "1 row", "12,000 rows". */
export function count(number: number, noun: string, plural = `${noun}s`): string {
  return `${grouped(number)} ${number === 1 ? noun : plural}`
}

/** "a, b and 7 more": a list short enough for one line. */
export function listSome(items: readonly string[], most = 5): string {
  if (items.length <= most) return items.join(', ')
  return `${items.slice(0, most).join(', ')} and ${items.length - most} more`
}

/** Takes secrets out of one text. */
export function redact(text: string, secrets: readonly string[]): string {
  return createRedactor(secrets).text(text)
}
