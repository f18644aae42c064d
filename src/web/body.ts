import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { FastifyReply, FastifyRequest } from 'fastify'

const gzipped = promisify(gzip)

/** A text as it is sent, made once for all who ask: a page of 300 kB took 3 ms each as a text, most of it for the socket. */
export interface Body {
  plain: Buffer
  gzip: Buffer
}

/** The text must be clean of secrets: what is sent as bytes is not looked at again. */
export async function bodyOf(clean: string): Promise<Body> {
  const plain = Buffer.from(clean)
  return { plain, gzip: await gzipped(plain, { level: 4 }) }
}

export function sendBody(request: FastifyRequest, reply: FastifyReply, type: string, body: Body): FastifyReply {
  reply.type(type).header('vary', 'accept-encoding')
  const accepts = /(^|[\s,])gzip\s*(,|$)/i.test(request.headers['accept-encoding'] ?? '')
  return accepts ? reply.header('content-encoding', 'gzip').send(body.gzip) : reply.send(body.plain)
}
