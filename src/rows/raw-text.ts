// Limits in characters: of one raw item, of all items of an answer, and of each further item beyond that.
const LONGEST = 65_536
const LONGEST_TOGETHER = 4_194_304
const LEAST = 500
const EXCERPT = 2000
/** Far more than any real answer has, and far less than what would exhaust a stack here or in Postgres. */
export const DEPTH_MAX = 100

/** JSON of anything that was parsed from JSON. What lies too deep is left out: writing it would take the square of its depth. */
export function safeJson(value: unknown): string {
  return JSON.stringify(isTooDeep(value) ? withoutDepths(value) : value) ?? 'null'
}

export function isTooDeep(value: unknown, levels = DEPTH_MAX): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (levels === 0) return true
  if (Array.isArray(value)) return value.some((item) => isTooDeep(item, levels - 1))
  for (const name in value) if (isTooDeep((value as Record<string, unknown>)[name], levels - 1)) return true
  return false
}

function withoutDepths(value: unknown, levels = DEPTH_MAX): unknown {
  if (typeof value !== 'object' || value === null) return value
  if (levels === 0) return '(nested too deeply to show)'
  if (Array.isArray(value)) return value.map((item) => withoutDepths(item, levels - 1))
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, withoutDepths(item, levels - 1)]))
}

/** Writes raw items of one answer as JSON that Postgres accepts: none too long or too deep, and not too much in all. */
export class RawTexts {
  private kept = 0

  of(raw: unknown): string {
    const text = safeJson(raw)
    const room = Math.max(LEAST, Math.min(LONGEST, LONGEST_TOGETHER - this.kept))
    const kept = text.length <= room ? text : cut(text, Math.min(EXCERPT, room))
    this.kept += kept.length
    return kept
  }
}

function cut(text: string, length: number): string {
  return JSON.stringify(`${text.slice(0, length)}… (cut: ${text.length} characters)`)
}
