/**
 * Removes secrets from output. Each process has one redactor. Code that reads a secret adds it. Code that writes logs, errors,
 * results, ledger tables, pages or webhooks redacts its text last.
 */
export interface Redactor {
  add(secrets: Iterable<string | undefined>): void
  text(text: string): string
  /** JSON stays JSON: only its texts change, never its numbers or its structure. */
  json(text: string, indent?: number): string
  value<T>(value: T): T
}

export const REDACTED = '[redacted]'

// Three characters occur everywhere. Up to seven may be a word, or a part of one: those count only as whole words.
const SHORTEST = 4
const SHORTEST_ANYWHERE = 8
/** Ends a text that was cut. The text before it may end with the beginning of a secret. */
const CUT = '…'
const WORD = /[\p{L}\p{N}]/u
// Both apply to a word before an @. Each attempt to match ends where the next one begins, so the time is linear.
const DATABASE_PASSWORD = /(\bpostgres(?:ql)?:\/\/[^:/]*):.*$/is
const OTHER_PASSWORD = /(:\/\/[^:/]*):[^/]*$/

export function createRedactor(secrets: Iterable<string | undefined> = []): Redactor {
  const forms = new FormIndex()
  const redactor: Redactor = {
    add(more) {
      for (const secret of more) {
        if (secret !== undefined && secret.length >= SHORTEST) for (const form of formsOf(secret)) forms.add(form)
      }
    },
    text: (given) => forms.replaceIn(withoutPasswords(given)),
    json(given, indent) {
      const clean = redactor.text(given)
      if (clean === given) return given
      try {
        const end = given.endsWith('\n') ? '\n' : ''
        return JSON.stringify(redactor.value(JSON.parse(given)), null, indent) + end
      } catch {
        return clean
      }
    },
    value: <T>(given: T) => copy(given, redactor.text) as T,
  }
  redactor.add(secrets)
  return redactor
}

function withoutPasswords(text: string): string {
  const parts = text.split('@')
  return parts.map((part, index) => (index < parts.length - 1 ? withoutPassword(part) : part)).join('@')
}

function withoutPassword(text: string): string {
  if (!text.includes('://')) return text
  const word = text.split(/\s/).at(-1)!
  const pattern = DATABASE_PASSWORD.test(word) ? DATABASE_PASSWORD : OTHER_PASSWORD
  return text.slice(0, text.length - word.length) + word.replace(pattern, `$1:${REDACTED}`)
}

/**
 * Finds any of many forms in one pass. If 300 projects have keys of their own, one pattern of all forms took 3.5 s for a
 * page of 1 MB; this takes 50 ms.
 */
class FormIndex {
  private readonly byStart = new Map<string, string[]>()
  /** Marks pairs of characters with which a form begins: few places of a text pass it. */
  private readonly pairs = new Uint8Array(65_536)
  private longest = 0

  add(form: string): void {
    const folded = fold(form)
    const start = folded.slice(0, SHORTEST)
    const known = this.byStart.get(start) ?? []
    if (known.includes(folded)) return
    // The longest first: one secret may be the beginning of another.
    this.byStart.set(
      start,
      [...known, folded].sort((a, b) => b.length - a.length),
    )
    this.pairs[pairOf(folded, 0)] = 1
    this.longest = Math.max(this.longest, folded.length)
  }

  replaceIn(text: string): string {
    if (this.longest === 0) return text
    const folded = fold(text)
    let clean = ''
    let done = 0
    for (let at = 0; at <= folded.length - SHORTEST; at++) {
      if (this.pairs[pairOf(folded, at)] === 0) continue
      const end = this.endOfSecret(folded, at)
      if (end < 0) continue
      clean += text.slice(done, at) + REDACTED
      done = end
      at = end - 1
    }
    return done === 0 ? text : clean + text.slice(done)
  }

  private endOfSecret(text: string, at: number): number {
    const begun = this.byStart.get(text.slice(at, at + SHORTEST))
    if (begun === undefined) return -1
    for (const form of begun) if (text.startsWith(form, at) && isWholeForm(form, text, at)) return at + form.length
    const left = text.slice(at, at + this.longest).split(CUT, 1)[0]!
    if (text[at + left.length] !== CUT) return -1
    return begun.some((form) => form.length >= SHORTEST_ANYWHERE && form.startsWith(left)) ? at + left.length : -1
  }
}

function isWholeForm(form: string, text: string, at: number): boolean {
  if (form.length >= SHORTEST_ANYWHERE) return true
  return !WORD.test(text.charAt(at - 1)) && !WORD.test(text.charAt(at + form.length))
}

/** Services may change the case of what they repeat. Every character keeps its place. */
function fold(text: string): string {
  const lower = text.toLowerCase()
  if (lower.length === text.length) return lower
  return text.replaceAll(/\p{Lu}/gu, (letter) => {
    const small = letter.toLowerCase()
    return small.length === letter.length ? small : letter
  })
}

function pairOf(text: string, at: number): number {
  return (text.charCodeAt(at) * 31 + text.charCodeAt(at + 1)) & 0xffff
}

function copy(value: unknown, text: (text: string) => string): unknown {
  if (typeof value === 'string') return text(value)
  if (Array.isArray(value)) return value.map((item) => copy(item, text))
  if (typeof value !== 'object' || value === null) return value
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== null) return value
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [text(key), copy(item, text)]))
}

// A shorter secret may be part of an ordinary word, and so may its encoded forms.
const LEAST_ENCODED = 8

function formsOf(secret: string): string[] {
  const escaped = [jsonText(secret), jsonText(jsonText(secret)), asciiText(secret)]
  const quoted = [
    secret.replaceAll("'", "''"),
    secret.replaceAll('"', '""'),
    secret.replaceAll("'", "\\'"),
    entities(secret),
  ]
  const encoded = [...addressForms(secret), ...base64Forms(secret), Buffer.from(secret).toString('hex')]
  const longer = [...escaped, ...quoted, ...encoded].filter((form) => form.length >= LEAST_ENCODED)
  return [...new Set([secret, ...longer])]
}

/** The decoded text. A text with a stray percent sign is not encoded, and is returned unchanged. */
export function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

function jsonText(text: string): string {
  return JSON.stringify(text).slice(1, -1)
}

/** JSON with all non-ASCII characters escaped, as some services send it. */
function asciiText(text: string): string {
  return jsonText(text).replaceAll(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

const ENTITIES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' }

/** As HTML writes it. */
export function entities(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => ENTITIES[character]!)
}

/** As a part of an address, and as a form is sent: they differ in what they leave as it is. */
function addressForms(text: string): string[] {
  const whole = text.toWellFormed()
  const form = new URLSearchParams([['', whole]]).toString().slice(1)
  return [encodeURIComponent(whole), encodeURI(whole), form, form.replaceAll('+', '%20'), decoded(text)]
}

/**
 * Base64 turns three bytes into four characters, so a secret inside a longer text has one of three forms. The
 * characters at both ends also depend on the text around the secret, so they are left out.
 */
function base64Forms(text: string): string[] {
  const bytes = Buffer.from(text)
  return [0, 1, 2].flatMap((before) => {
    const padded = Buffer.concat([Buffer.alloc(before), bytes])
    const whole = padded.toString('base64').replaceAll('=', '')
    const from = Math.ceil((before * 8) / 6)
    const own = whole.slice(from, Math.floor((padded.length * 8) / 6))
    return [own, own.replaceAll('+', '-').replaceAll('/', '_')]
  })
}
