import { escapeLiteral } from 'pg'

/* What a text of the configuration becomes in each format of a pack, so that it stays a text. */

// YAML 1.1 allows none of these, or takes them for the end of a line.
export const UNPRINTABLE = /[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]/g

export function escapeUnprintable(text: string): string {
  return text.replaceAll(UNPRINTABLE, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

/** In quotes, as YAML and PromQL take it. */
export function quotedText(text: string): string {
  return escapeUnprintable(JSON.stringify(text))
}

export function sqlText(text: string): string {
  return escapeLiteral(text)
}

/** dbt renders whole files, with their comments, and the descriptions in them. */
export function jinjaText(text: string): string {
  return text.replaceAll(/\{[{%#]/g, (mark) => `{{ '${mark}' }}`)
}

/** A comment in a model of dbt: it ends with its line. */
export function modelComment(text: string): string {
  return `-- ${jinjaText(text.replaceAll(/[\s\p{Cc}]+/gu, ' ').trim())}`
}

/** A pattern of PromQL that matches these values and nothing else. */
export function promPattern(values: readonly string[]): string {
  return quotedText(values.map((value) => value.replaceAll(/[\\^$.|?*+()[\]{}]/g, '\\$&')).join('|'))
}
