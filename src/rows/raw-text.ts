// What is kept of one raw item, of those of one answer together, and of each of them where that is too much.
const LONGEST = 65_536
const LONGEST_TOGETHER = 16_777_216
const EXCERPT = 2000
/** Far more than any real answer has, and far less than what would exhaust a stack here or in Postgres. */
export const DEPTH_MAX = 100

/** JSON of anything that was parsed from JSON, however deep. */
export function safeJson(value: unknown): string {
  try {
    return JSON.stringify(value) ?? 'null'
  } catch {
    return '"(nested too deeply to show)"'
  }
}

/** Writes raw items of one answer as JSON that Postgres takes: none too long or too deep, and not too much in all. */
export class RawTexts {
  private kept = 0

  of(raw: unknown): string {
    const text = safeJson(raw)
    const room = Math.max(EXCERPT, Math.min(LONGEST, LONGEST_TOGETHER - this.kept))
    const kept = text.length <= room && bracketDepth(text) <= DEPTH_MAX ? text : cut(text)
    this.kept += kept.length
    return kept
  }
}

function cut(text: string): string {
  return JSON.stringify(`${text.slice(0, EXCERPT)}… (cut: ${text.length} characters)`)
}

/** How deep brackets stand in each other; those in texts count too, which does no harm. */
function bracketDepth(text: string): number {
  let deepest = 0
  let now = 0
  for (let at = 0; at < text.length; at++) {
    const character = text[at]
    if (character === '{' || character === '[') deepest = Math.max(deepest, ++now)
    else if (character === '}' || character === ']') now--
  }
  return deepest
}
