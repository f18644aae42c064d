import { JSONB_VERSION_BYTES } from '../../rows/packed-rows.ts'

/**
 * A packed jsonb value as Postgres writes it: a space after each colon and comma, keys by their length and then by their
 * bytes. Numbers that JavaScript writes with an exponent come out otherwise, so their rows look changed and are compared.
 */
export function jsonbText({ buffer, byteOffset }: DataView, at: number, length: number): DataView {
  const start = byteOffset + at + JSONB_VERSION_BYTES
  const written = Buffer.from(buffer, start, length - JSONB_VERSION_BYTES).toString('utf8')
  const bytes = Buffer.from(printed(JSON.parse(written)))
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
}

function printed(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(printed).join(', ')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  const members = Object.entries(value).map(([name, member]) => ({ name, bytes: Buffer.from(name), member }))
  members.sort((one, other) => one.bytes.length - other.bytes.length || Buffer.compare(one.bytes, other.bytes))
  return `{${members.map(({ name, member }) => `${JSON.stringify(name)}: ${printed(member)}`).join(', ')}}`
}
