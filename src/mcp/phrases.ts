import type { Range } from '../core/day.ts'
import { UsageError } from '../core/errors.ts'
import { didYouMean, listSome } from '../core/text.ts'

/* Texts of the service and of callers as data, and the names that people say. */

const NAME_LENGTH = 80
export const TEXT_LENGTH = 160
const DATA_LENGTH = 300
export const MOST_IN_LIST = 12

/** A text of the service or of a caller as data: one line, with nothing that is invisible, ends a quotation or is rendered as markup. */
export function inert(text: string, most = NAME_LENGTH): string {
  const plain = text
    .toWellFormed()
    .replaceAll(/[\p{Cc}\p{Z}\s]+/gu, ' ')
    .replaceAll(/[\p{Cf}\p{Co}\p{Cn}]/gu, '')
    .replaceAll('<', '‹')
    .replaceAll('>', '›')
    .replaceAll(/[«»"`]/g, "'")
    .replaceAll('](', '] (')
    .trim()
  const letters = [...plain]
  return letters.length <= most ? plain : `${letters.slice(0, most).join('')}…`
}

/** The mark of a text that is data. */
export const quoted = (text: string, most?: number) => `«${inert(text, most)}»`

/** "«a», «b» and 3 more". */
export const quotedList = (texts: readonly string[], most = MOST_IN_LIST) =>
  listSome(
    texts.map((text) => quoted(text)),
    most,
  ) || 'none'

/** These columns of a row, with inert texts. */
export function asData(row: object, names: readonly string[]): Record<string, unknown> {
  const clean = (value: unknown): unknown => {
    if (typeof value === 'string') return inert(value, DATA_LENGTH)
    if (value instanceof Date) return value.toISOString()
    if (!Array.isArray(value)) return value ?? null
    const rest = value.length - MOST_IN_LIST
    return [...value.slice(0, MOST_IN_LIST).map(clean), ...(rest > 0 ? [`… and ${rest} more`] : [])]
  }
  return Object.fromEntries(names.map((name) => [name, clean(row[name as keyof typeof row])]))
}

export interface Named {
  id: string
  name: string
}

export const listed = (kind: string, all: readonly Named[]) =>
  `${kind}s are: ${quotedList(all.map(({ name }) => name))}`

/** The one that has this id or this name. Nothing is guessed: what is near is only suggested. */
export function find<T extends Named>(kind: string, asked: string, all: readonly T[]): T {
  const plain = (name: string) => inert(name.replaceAll(/^«|»$/g, ''), 255).toLowerCase()
  const byId = all.filter(({ id }) => id === asked)
  const found = byId.length > 0 ? byId : all.filter(({ name }) => plain(name) === plain(asked))
  if (found.length === 1) return found[0]!
  if (found.length > 1) {
    const ids = listSome(found.map(({ id }) => inert(id)))
    throw new UsageError(`several ${kind}s are named ${quoted(asked)}; ask by id: ${ids}`)
  }
  const near = all.map(({ name }) => inert(name))
  throw new UsageError(`unknown ${kind} "${inert(asked)}"${didYouMean(inert(asked), near) || ';'} ${listed(kind, all)}`)
}

/** "2026-03-02 to 2026-03-29". */
export const showPeriod = ({ from, to }: Range) => (from === to ? from : `${from} to ${to}`)
