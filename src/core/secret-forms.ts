/* The ways in which a text can repeat a secret. */

// A shorter one stands in ordinary words, and so would its encoded forms.
const LEAST_ENCODED = 8

/** A secret as it stands, and as an address, JSON, a page, SQL, CSV or an encoder would write it. */
export function formsOf(secret: string): string[] {
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

/** A stray percent sign is part of the text as it stands. */
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

/** JSON with everything beyond ASCII escaped, as some services write it. */
function asciiText(text: string): string {
  return jsonText(text).replaceAll(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

const ENTITIES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' }

function entities(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => ENTITIES[character]!)
}

/** As a part of an address, and as a form is sent: they differ in what they leave as it is. */
function addressForms(text: string): string[] {
  const whole = text.toWellFormed()
  const form = new URLSearchParams([['', whole]]).toString().slice(1)
  return [encodeURIComponent(whole), encodeURI(whole), form, form.replaceAll('+', '%20'), decoded(text)]
}

/**
 * Base64 turns three bytes into four characters, so a secret inside a longer text has one of three forms. What its
 * neighbours have a part in, at both ends, is left out.
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
