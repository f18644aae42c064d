/** Names that a schema or a report may have: safe unquoted, and short enough for the names of indexes made from it. */
export const IDENTIFIER = /^[a-z][a-z0-9_]{0,47}$/
export const IDENTIFIER_RULE =
  'a lower-case letter, then lower-case letters, digits or underscores, 48 characters at most'

export function quote(...path: string[]): string {
  return path.map((part) => `"${part.replaceAll('"', '""')}"`).join('.')
}
