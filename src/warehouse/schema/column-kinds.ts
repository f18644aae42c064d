import { COMMENTS } from './catalogue.ts'

/* What columns hold, for tools that format numbers by it. A name means the same in every table and view. */

const SHARES: ReadonlySet<string> = new Set(COMMENTS.shares.split(' '))

const TYPES: ReadonlyMap<string, string> = new Map(
  Object.entries(COMMENTS.types).flatMap(([type, names]) => names.split(' ').map((name) => [name, type] as const)),
)

/** True for numbers from -1 to 1 that people read as percentages. A change of a position or a sentiment is none. */
export function isShare(relation: string, column: string): boolean {
  return SHARES.has(column) && !(column === 'change' && /^(position|sentiment)_/.test(relation))
}

/** The type of a column in Postgres. */
export function typeOf(column: string): string {
  if (SHARES.has(column)) return 'double precision'
  return TYPES.get(column) ?? (column.startsWith('is_') ? 'boolean' : 'text')
}
