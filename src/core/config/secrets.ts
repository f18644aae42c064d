import { UsageError } from '../errors.ts'
import { decoded } from '../redactor.ts'
import { inQuotes } from '../text.ts'

/* Which settings are secrets, or hold some, and what is shown of a text that may be one. */

export const HIDDEN = 'a text that is not shown'

export const SECRET_NAME = /(^|_)(api_key|pagerduty_key|token|password|secret)$/
/** Addresses that are secrets as a whole: to know one is enough to write there. */
export const SECRET_ADDRESS = /^(webhook|slack|ping|push)_url$/
const SECRET_PARAMETER = /key|token|secret|pass|sig|auth/i
// A part of a path that is as long is likely to be a token, not a word.
const SHORTEST_TOKEN = 16
// These words occur in ordinary output. Taking such a password out of it would hide nothing, and show which word it is.
const PUBLIC_WORDS = ['visibility', 'visibility-sync', 'postgres', 'postgresql', 'metabase', 'password', 'secret']

export function* textsIn(
  value: unknown,
  path: readonly string[] = [],
): Generator<{ path: readonly string[]; text: string }> {
  if (typeof value === 'string') yield { path, text: value }
  else if (typeof value === 'object' && value !== null) {
    for (const [name, item] of Object.entries(value)) yield* textsIn(item, [...path, name])
  }
}

export function mayHoldSecret(path: readonly string[]): boolean {
  const name = path.at(-1) ?? ''
  return SECRET_NAME.test(name) || /(^|_)url$/.test(name)
}

/** Every value in a document that must not be shown, whether the document is valid or not. */
export function secretsIn(document: unknown): string[] {
  return [...textsIn(document)].flatMap(({ path, text }) => {
    const name = path.at(-1) ?? ''
    return [...(SECRET_NAME.test(name) ? [text] : []), ...secretsOfAddress(text, SECRET_ADDRESS.test(name))]
  })
}

/** The password and the secret parameters of an address; if it is secret as a whole, its path, too. */
export function secretsOfAddress(text: string, whole = false): string[] {
  if (!/^[a-z][a-z0-9+.-]*:\/\//i.test(text)) return whole ? [text] : []
  if (!URL.canParse(text)) return [text]
  const url = new URL(text)
  const named = [...url.searchParams].filter(([name]) => whole || SECRET_PARAMETER.test(name))
  const secrets = [
    ...(isPublicWord(url) ? [] : [url.password, decoded(url.password)]),
    ...named.map(([, value]) => value),
  ]
  if (url.password !== '') secrets.push(text)
  // A host alone is no secret, and other settings may have addresses of the same host.
  if (whole && (url.pathname !== '/' || url.search !== '')) {
    const tokens = url.pathname.split('/').filter((part) => part.length >= SHORTEST_TOKEN)
    secrets.push(text, url.href, url.pathname === '/' ? '' : url.pathname + url.search, ...tokens)
  }
  return secrets.filter((secret) => secret !== '')
}

function isPublicWord({ password, username, hostname, pathname }: URL): boolean {
  const words = [...PUBLIC_WORDS, decoded(username), hostname, decoded(pathname.slice(1))]
  return words.some((word) => word.toLowerCase() === decoded(password).toLowerCase())
}

/** True if an address leads to this machine, so that nothing travels over a network. */
export function isLoopback(address: string): boolean {
  const { hostname } = new URL(address)
  return /^(localhost|.+\.localhost|127(\.\d+){3}|\[::1\]|\[::ffff:7f[0-9a-f]{2}:[0-9a-f]{1,4}\])$/.test(hostname)
}

/** Over plain http a key, and all that is read with it, can be read by everyone on the way. */
export function refusePlainHttp(address: string, place: string, allowed: boolean): void {
  if (allowed || !/^http:/i.test(address) || isLoopback(address)) return
  throw new UsageError(
    `${place}: got an http:// address of another machine; allowed: https://, or "allow_http: true" in the configuration ` +
      'where the network in between is trusted',
  )
}

/** A text from outside for an error message, unless it looks like a key. */
export function shownText(text: string, most = 80): string {
  return isLikeKey(text) ? HIDDEN : inQuotes(text, most)
}

/** A long word with both letters and digits may be a key; a date, a time zone or a name is not. */
export function isLikeKey(text: string): boolean {
  return text.split(/\s/).some((word) => word.length >= 16 && /[A-Za-z]/.test(word) && /\d/.test(word))
}

/** Users may paste a key instead of a project id. Project ids start with `or_`. */
export function shownId(text: string): string {
  return text.startsWith('or_') ? inQuotes(text) : shownText(text)
}
