import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** A real server in front of another one, which answers with an error where it is told to; with status 0 not at all. */
export function startProxy(
  target: string,
  isBad: (message: IncomingMessage, body: string) => boolean,
  status = 500,
): Promise<Proxy> {
  return start(target, async ({ message, body, reply, forward }) => {
    if (!isBad(message, body)) {
      const answer = await forward()
      reply.writeHead(answer.statusCode!, answer.headers)
      answer.pipe(reply)
    } else if (status !== 0) reply.writeHead(status, { 'content-type': 'application/json' }).end('{"message":"no"}')
  })
}

/** A real server in front of another one, which changes the text of answers on their way. `body` is that of the request. */
export function startRewriter(
  target: string,
  rewrite: (text: string, message: IncomingMessage, body: string) => string | Buffer,
): Promise<Proxy> {
  return start(target, async ({ message, body, reply, forward }) => {
    const answer = await forward()
    const { 'content-length': _, 'transfer-encoding': __, ...kept } = answer.headers
    reply.writeHead(answer.statusCode!, kept).end(rewrite(await textOf(answer), message, body))
  })
}

export interface Proxy {
  url: string
  close(): Promise<void>
}

interface Request {
  message: IncomingMessage
  body: string
  reply: ServerResponse
  /** What the other server answers. */
  forward(): Promise<IncomingMessage>
}

async function textOf(message: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of message) chunks.push(chunk)
  return Buffer.concat(chunks).toString()
}

async function start(target: string, answer: (request: Request) => Promise<void>): Promise<Proxy> {
  const base = new URL(target)
  const handle = async (message: IncomingMessage, reply: ServerResponse) => {
    const body = await textOf(message)
    const { method, headers, url } = message
    const forward = () =>
      new Promise<IncomingMessage>((done, fail) => {
        const onward = request({ host: base.hostname, port: base.port, path: url, method, headers }, done)
        onward.on('error', fail)
        onward.end(body)
      })
    await answer({ message, body, reply, forward })
  }
  const server = createServer((message, reply) => void handle(message, reply).catch(() => reply.destroy()))
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}${base.pathname}`,
    close: () =>
      new Promise<void>((done) => {
        server.close(() => done())
        server.closeAllConnections()
      }),
  }
}
