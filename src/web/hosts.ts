import { isIP } from 'node:net'

/*
 * A page of another site can have its name point at this server, and then read what a browser inside the network may read.
 * Such a request carries the other site's name, so only our own names are answered. An address cannot be made to point
 * elsewhere: probes and people who use one pass.
 */

const SHAPE = /^(\[[0-9a-f:.]+\]|[^\s:/@[\]]+)(?::\d{1,5})?$/i

/** The names that this server answers to. */
export function ownNames(names: readonly string[]): (header: string | undefined) => boolean {
  const own = new Set(['localhost', ...names].map(plain))
  return (header) => {
    // Only HTTP/1.0 may leave it out, and no browser speaks that.
    if (header === undefined) return true
    const name = SHAPE.exec(header)?.[1]
    if (name === undefined) return false
    return isIP(name.replace(/^\[|\]$/g, '')) !== 0 || own.has(plain(name))
  }
}

/** A name may end in a dot, and case does not matter. */
function plain(name: string): string {
  return name.toLowerCase().replace(/\.$/, '')
}
