import type { Filter, Having } from '../core/vocabulary.ts'
import type { Row, Value } from './stream.ts'

const HOLDS = {
  gt: (value: number, limit: number) => value > limit,
  gte: (value: number, limit: number) => value >= limit,
  lt: (value: number, limit: number) => value < limit,
  lte: (value: number, limit: number) => value <= limit,
}

/** Says of a row that a report with these conditions cannot have it: then the service ignored one. */
export function selectionCheck(
  conditions: readonly (Filter | Having)[],
  columns: readonly { name: string }[],
): (row: Row) => string | undefined {
  const positions = new Map(columns.map(({ name }, at) => [name, at]))
  // A prompt with several tags is selected by one of them, and has rows of all.
  const shown = conditions.filter(({ field }) => field !== 'tag_id' && positions.has(field))
  return (row) => {
    const valueOf = ({ field }: Filter | Having) => row[positions.get(field)!] ?? null
    const broken = shown.find((condition) => !isMet(condition, valueOf(condition)))
    return broken && `${broken.field}: ${valueOf(broken)} is not selected by the report's filters and having`
  }
}

function isMet(condition: Filter | Having, value: Value): boolean {
  if ('values' in condition) return condition.values.includes(value as string) === (condition.operator === 'in')
  return typeof value !== 'number' || HOLDS[condition.operator](value, condition.value)
}
