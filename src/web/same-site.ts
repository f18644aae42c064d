import type { IncomingHttpHeaders } from 'node:http'
import { isIP } from 'node:net'

/**
 * Whether a form was sent by a page of this server. Browsers say where a form comes from, and no page can change what they
 * say; older ones say it only by `Origin`. What says nothing is no browser, or an old one: there the field of the session
 * decides alone.
 */
export function isOwnForm(headers: IncomingHttpHeaders, names: readonly string[]): boolean {
  const site = headers['sec-fetch-site']
  if (site !== undefined) return site === 'same-origin'
  const { origin, host } = headers
  if (origin === undefined) return true
  if (!URL.canParse(origin)) return false
  const from = new URL(origin)
  if (from.host === host?.toLowerCase()) return true
  // A proxy may put its own name for the server into Host; the public one is then in serve.hosts. Another port is another
  // program, which may be anybody's.
  return from.port === '' && isIP(from.hostname) === 0 && names.some((name) => name.toLowerCase() === from.hostname)
}

/** Whether the browser speaks TLS, to this server or to a proxy before it. */
export function isSecure(headers: IncomingHttpHeaders): boolean {
  return (
    String(headers['x-forwarded-proto'] ?? '')
      .split(',')[0]!
      .trim() === 'https'
  )
}
