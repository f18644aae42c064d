import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import { gzipSync } from 'node:zlib'
import { COMPANY_KEY } from '../../src/reference/world.ts'
import { listening } from './proxy.ts'

/** A real server that repeats secrets in its answers, in every way that HTTP and JSON allow. */
export interface HostileService {
  url: string
  /** The ways in which it has answered so far. */
  used: Set<string>
  close(): Promise<void>
}

type Answer = (reply: ServerResponse, secret: string) => void

const json = { 'content-type': 'application/json' }
/** What a header can carry of a secret: HTTP allows no other characters there. */
const inHeader = (secret: string) => (/^[\x20-\x7e]*$/.test(secret) ? secret : encodeURIComponent(secret))
const refusal = (status: number, body: (secret: string) => string, headers: Record<string, string> = json): Answer => {
  return (reply, secret) => reply.writeHead(status, headers).end(body(secret))
}
const inWords = (form: (secret: string) => string): Answer =>
  refusal(422, (secret) => JSON.stringify({ message: `not with ${form(secret)} here` }))

export const WAYS: Record<string, Answer> = {
  'the type of the content': (reply, secret) =>
    reply.writeHead(200, { 'content-type': `text/${inHeader(secret)}` }).end('{}'),
  'a type of the content that is cut in the middle of it': (reply, secret) =>
    reply.writeHead(200, { 'content-type': `text/${'x'.repeat(45)}${inHeader(secret)}` }).end('{}'),
  'the encoding of the content': (reply, secret) =>
    reply.writeHead(200, { ...json, 'content-encoding': inHeader(secret) }).end('{}'),
  'the encoding of a refusal': (reply, secret) =>
    reply.writeHead(400, { ...json, 'content-encoding': inHeader(secret) }).end(JSON.stringify({ message: secret })),
  'the words of the status': (reply, secret) =>
    reply.writeHead(418, inHeader(secret), { 'content-type': 'text/plain' }).end(),
  'a redirect': (reply, secret) =>
    reply.writeHead(302, { location: `https://other.example/?key=${encodeURIComponent(secret)}` }).end(secret),
  'how long to wait': (reply, secret) =>
    reply.writeHead(503, { ...json, 'retry-after': inHeader(secret) }).end(JSON.stringify({ message: secret })),
  'a refusal in words': refusal(400, (secret) => secret, { 'content-type': 'text/plain' }),
  'a refusal in HTML': refusal(502, (secret) => `<html>${secret}</html>`, { 'content-type': 'text/html' }),
  'a refusal in JSON': inWords((secret) => secret),
  'a refusal with an object': refusal(400, (secret) => JSON.stringify({ error: { key: secret, [secret]: [secret] } })),
  'a refusal that is packed': (reply, secret) =>
    reply.writeHead(400, { ...json, 'content-encoding': 'gzip' }).end(gzipSync(JSON.stringify({ message: secret }))),
  'JSON inside JSON': inWords((secret) => JSON.stringify({ key: secret })),
  base64: inWords((secret) => Buffer.from(secret).toString('base64')),
  'a header for basic authentication': inWords((secret) => `Basic ${Buffer.from(`ann:${secret}`).toString('base64')}`),
  hex: inWords((secret) => Buffer.from(secret).toString('hex')),
  capitals: inWords((secret) => secret.toUpperCase()),
  'an address': inWords((secret) => `https://other.example/?k=${encodeURIComponent(secret)}`),
  'words that are cut in the middle of it': inWords((secret) => 'y'.repeat(280) + secret),
  'an object without what was asked for': (reply, secret) =>
    reply.writeHead(200, json).end(JSON.stringify({ [secret]: secret })),
  'half of an answer': (reply, secret) => reply.writeHead(200, json).end(`{"data": [{"${secret}`),
  'a connection that breaks': (reply, secret) => {
    reply.writeHead(200, { ...json, 'content-length': '99999', 'x-note': inHeader(secret) }).write(secret)
    setTimeout(() => reply.destroy(), 20)
  },
  'a wrong key': refusal(401, (secret) => JSON.stringify({ message: `the key ${secret} is wrong` })),
  'a project that the key may not read': refusal(403, (secret) => JSON.stringify({ message: secret })),
  'a thing that was created, with a warning': refusal(200, (secret) =>
    JSON.stringify({ id: 'to_1', name: 'x', warning: `${secret} is nearly used up` }),
  ),
  'a service in front that is down': refusal(504, (secret) => `upstream ${secret} timed out`, {
    'content-type': 'text/plain',
  }),
}

/** Rows that are wrong in a way that shows them: bad values, fields nobody knows, days nobody asked for. */
function spoil(items: Record<string, unknown>[], secrets: readonly string[]): void {
  for (const item of items)
    for (const [index, secret] of secrets.entries()) item[`extra ${index} ${secret}`] = { secret }
  const bad = [{ date: secrets[0] }, { brand: { [secrets[0]!]: secrets } }, { prompt: secrets }, secrets.join(' ')]
  // Few enough to be put in quarantine, not to fail the page.
  if (items.length > 90) items.push(...(bad as never[]))
}

/** Passes requests on to the real service, unless a way to repeat a secret is chosen for them. */
export async function startHostile(
  target: string,
  secrets: readonly string[],
  choose: (message: IncomingMessage, body: string) => string | undefined,
): Promise<HostileService> {
  const base = new URL(target)
  const used = new Set<string>()
  let turn = 0
  const server = createServer((message, reply) => {
    const chunks: Buffer[] = []
    message.on('data', (chunk: Buffer) => chunks.push(chunk))
    message.on('end', () => {
      const body = Buffer.concat(chunks)
      const way = choose(message, body.toString())
      if (way !== undefined && way !== 'rows') {
        used.add(way)
        return WAYS[way]!(reply, secrets[turn++ % secrets.length]!)
      }
      const { method, url } = message
      // The real service does not know the keys that are to be kept.
      const headers = { ...message.headers, 'x-api-key': COMPANY_KEY, 'accept-encoding': 'identity' }
      const onward = request({ host: base.hostname, port: base.port, path: url, method, headers }, (answer) => {
        if (way === undefined) {
          reply.writeHead(answer.statusCode!, answer.headers)
          answer.pipe(reply)
          return
        }
        const parts: Buffer[] = []
        answer.on('data', (part: Buffer) => parts.push(part))
        answer.on('end', () => {
          const page = JSON.parse(Buffer.concat(parts).toString()) as { data?: Record<string, unknown>[] }
          used.add(way)
          if (page.data !== undefined) spoil(page.data, secrets)
          reply.writeHead(answer.statusCode!, json).end(JSON.stringify(page))
        })
      })
      onward.on('error', () => reply.destroy())
      onward.end(body)
    })
  })
  const { origin, close } = await listening(server)
  return { url: origin + base.pathname, used, close }
}
