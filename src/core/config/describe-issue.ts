import type { z } from 'zod'
import { clip, didYouMean, helpOn, inQuotes } from '../text.ts'
import { HIDDEN, isLikeKey, mayHoldSecret, shownId, shownText } from './secrets.ts'
import { settingLike } from './settings.ts'
import { PLACEHOLDER } from './variables.ts'

/* Describes a wrong setting in a sentence that shows nothing that may be, or contain, a secret. */

/** Sections whose keys are often written one level too high. */
const SECTION = /^(source|warehouse|alerts|metrics|lineage|projects)(\.\d+)?$/
const PROJECT_ID = /^projects\.\d+\.id$/
/** No setting has a digit in its name, so one with digits may be a key that was pasted in the wrong place. */
const SETTING_NAME = /^[A-Za-z_-]{1,40}$/
/** `document` is the file as it was written: variables are shown by their names, not by what they hold. */
export function describeIssue(issue: z.core.$ZodIssue, document: unknown): string[] {
  const path = issue.path.join('.')
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => `${[...issue.path, shownName(key)].join('.')}: unknown; ${hintFor(issue.path, key)}`)
  }
  const value = shownValue(issue.input, issue.path.map(String), valueAt(document, issue.path))
  const address = path === 'source.base_url' ? shownAddress(issue.input) : undefined
  const similar = issue.code === 'invalid_value' ? didYouMean(issue.input, issue.values.map(String)) : ''
  const hint = address === undefined ? similar : `; did you mean "${address}/v1"?`
  return [`${path === '' ? 'the whole file' : path}: got ${value}; allowed: ${allowedBy(issue)}${hint}`]
}

const KINDS: Record<string, string> = {
  ...{ object: 'a group of settings', record: 'a group of settings', array: 'a list' },
  ...{ string: 'a text', number: 'a number', boolean: 'true or false' },
}

/** Some settings define their own message. For the others, zod reports the expected type. */
function allowedBy(issue: z.core.$ZodIssue): string {
  if (issue.code !== 'invalid_type' || !issue.message.startsWith('Invalid input')) return issue.message
  const isProject = /^projects\.\d+$/.test(issue.path.join('.'))
  return isProject ? 'a group of settings, such as { id: or_… }' : (KINDS[issue.expected] ?? issue.message)
}

function hintFor(path: readonly PropertyKey[], key: string): string {
  const meant = settingLike(path, key)
  return meant === undefined ? `${helpOn('configuration')} lists every setting` : `did you mean "${meant}"?`
}

/** The address of a service without what may be secret in it; undefined if it is none, or has a part like a key. */
function shownAddress(input: unknown): string | undefined {
  if (typeof input !== 'string' || !/^https?:/i.test(input) || !URL.canParse(input)) return undefined
  const { origin, pathname, username, search, hash } = new URL(input)
  return username + search + hash === '' && !isLikeKey(pathname)
    ? origin + pathname.replace(/(?<!\/)\/+$/, '')
    : undefined
}

function shownName(name: string): string {
  return SETTING_NAME.test(name) ? name : '(a name that is not shown)'
}

function shownValue(input: unknown, path: readonly string[], written: unknown): string {
  if (input === undefined) return 'nothing'
  if (Array.isArray(input)) return 'a list'
  if (typeof input === 'object' && input !== null) return 'a group of settings'
  const place = path.join('.')
  const address = place === 'source.base_url' ? shownAddress(input) : undefined
  if (address !== undefined) return JSON.stringify(address)
  if (mayHoldSecret(path) || SECTION.test(place)) return HIDDEN
  if (typeof written === 'string' && written.includes('${')) {
    // Neither what a variable holds nor its default: the name is what helps.
    const names = written.replaceAll(PLACEHOLDER, '${$1}')
    return isLikeKey(written.replaceAll(PLACEHOLDER, ' ')) ? HIDDEN : inQuotes(names)
  }
  if (typeof input !== 'string') return clip(JSON.stringify(input) ?? typeof input, 80)
  return PROJECT_ID.test(place) ? shownId(input) : shownText(input)
}

export function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  let found = value
  for (const name of path) found = (found as Record<PropertyKey, unknown> | null | undefined)?.[name]
  return found
}
