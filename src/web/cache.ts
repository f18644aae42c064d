import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Monotonic } from '../core/waiting.ts'

const MOST_ENTRIES = 128

interface Entry {
  value: Promise<unknown>
  /** Infinity while the value is being read. */
  freshUntil: number
}

/** Values by key. Each is read once for everyone who asks while it is being read, or within its time to live. */
export class Cache {
  private readonly entries = new Map<string, Entry>()

  constructor(private readonly monotonic: Monotonic) {}

  get<T>(key: string, ttlMs: number, read: () => Promise<T>): Promise<T> {
    const known = this.entries.get(key)
    if (known !== undefined && this.monotonic() < known.freshUntil) return known.value as Promise<T>
    const value = read()
    const entry = { value, freshUntil: Number.POSITIVE_INFINITY }
    this.entries.delete(key)
    this.entries.set(key, entry)
    value.then(
      () => {
        entry.freshUntil = this.monotonic() + ttlMs
      },
      () => {
        if (this.entries.get(key) === entry) this.entries.delete(key)
      },
    )
    const [oldest] = this.entries.keys()
    if (this.entries.size > MOST_ENTRIES) this.entries.delete(oldest!)
    return value
  }

  clear(): void {
    this.entries.clear()
  }
}

const gzipped = promisify(gzip)

/** A text as it is sent. It is encoded once for everyone who asks: a page of 300 kB takes 3 ms. */
export interface Body {
  plain: Buffer
  gzip: Buffer
}

/** The text must contain no secrets: bytes are not redacted when they are sent. */
export async function bodyOf(redacted: string): Promise<Body> {
  const plain = Buffer.from(redacted)
  return { plain, gzip: await gzipped(plain, { level: 4 }) }
}

export function sendBody(request: FastifyRequest, reply: FastifyReply, type: string, body: Body): FastifyReply {
  reply.type(type).header('vary', 'accept-encoding')
  const accepts = /(^|[\s,])gzip\s*(,|$)/i.test(request.headers['accept-encoding'] ?? '')
  return accepts ? reply.header('content-encoding', 'gzip').send(body.gzip) : reply.send(body.plain)
}
