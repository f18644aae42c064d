import { createHash, randomBytes } from 'node:crypto'
import type { Monotonic } from '../core/monotonic.ts'
import type { Notice } from './status-data.ts'

/** Somebody who showed the token. */
export interface Session {
  /** For the log: it opens nothing. */
  number: number
  /** What forms of this session carry, so that no other site can send one. */
  csrf: string
  /** What the last action came to, until it was shown. */
  notice: Notice | undefined
}

const COOKIE = 'visibility_session'
const LONGEST_MS = 12 * 3_600_000
const MOST = 100

/**
 * Who is signed in, in the memory of this process alone: a restart signs everybody out. A session ends after twelve hours
 * whether it was used or not, since a page that refreshes itself would keep it for ever.
 */
export class Sessions {
  private readonly sessions = new Map<string, Session & { endsAt: number }>()
  private count = 0

  constructor(private readonly monotonic: Monotonic) {}

  /** The session, and the cookie that stands for it. */
  begin(isSecure: boolean): { session: Session; cookie: string } {
    const id = randomBytes(32).toString('base64url')
    this.count++
    const session = {
      number: this.count,
      csrf: randomBytes(32).toString('base64url'),
      notice: undefined,
      endsAt: this.monotonic() + LONGEST_MS,
    }
    this.sessions.set(keyOf(id), session)
    for (const oldest of this.sessions.keys()) {
      if (this.sessions.size <= MOST) break
      this.sessions.delete(oldest)
    }
    return { session, cookie: cookieOf(id, LONGEST_MS / 1000, isSecure) }
  }

  find(header: string | undefined): Session | undefined {
    const id = idIn(header)
    const found = id === undefined ? undefined : this.sessions.get(keyOf(id))
    if (found === undefined || found.endsAt > this.monotonic()) return found
    this.sessions.delete(keyOf(id!))
    return undefined
  }

  /** Gives the cookie that takes the other one away. */
  end(header: string | undefined, isSecure: boolean): string {
    const id = idIn(header)
    if (id !== undefined) this.sessions.delete(keyOf(id))
    return cookieOf('', 0, isSecure)
  }
}

/** Stored as a digest, so that the time of a lookup reveals nothing about valid ids. */
function keyOf(id: string): string {
  return createHash('sha256').update(id).digest('hex')
}

function idIn(header: string | undefined): string | undefined {
  const pairs = (header ?? '').split(';').map((pair) => pair.trim().split('='))
  return pairs.find(([name]) => name === COOKIE)?.[1]
}

/** No script sees it, and no other site can have it sent. */
function cookieOf(id: string, seconds: number, isSecure: boolean): string {
  const parts = [`${COOKIE}=${id}`, 'Path=/', 'HttpOnly', 'SameSite=Strict', `Max-Age=${seconds}`]
  return [...parts, ...(isSecure ? ['Secure'] : [])].join('; ')
}
