import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** A real server in front of another one, which answers with an error where it is told to; with status 0 not at all. */
export function startProxy(
  target: string,
  isBad: (message: IncomingMessage, body: string) => boolean,
  status = 500,
): Promise<Proxy> {
  return start(target, (message, body, { reply, forward }) => {
    if (!isBad(message, body))
      return forward((answer) => {
        reply.writeHead(answer.statusCode!, answer.headers)
        answer.pipe(reply)
      })
    if (status !== 0) reply.writeHead(status, { 'content-type': 'application/json' }).end('{"message":"no"}')
  })
}

/** A real server in front of another one, which changes the text of answers on their way. `body` is that of the request. */
export function startRewriter(
  target: string,
  rewrite: (text: string, message: IncomingMessage, body: string) => string | Buffer,
): Promise<Proxy> {
  return start(target, (message, body, { reply, forward }) =>
    forward(async (answer) => {
      const { 'content-length': _, 'transfer-encoding': __, ...kept } = answer.headers
      reply.writeHead(answer.statusCode!, kept).end(rewrite(await textOf(answer), message, body))
    }),
  )
}

export interface Proxy {
  url: string
  close(): Promise<void>
}

interface Ways {
  reply: ServerResponse
  forward(answered: (answer: IncomingMessage) => void): void
}

async function textOf(message: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of message) chunks.push(chunk)
  return Buffer.concat(chunks).toString()
}

async function start(
  target: string,
  handle: (message: IncomingMessage, body: string, ways: Ways) => void,
): Promise<Proxy> {
  const base = new URL(target)
  const server = createServer(async (message, reply) => {
    const body = await textOf(message)
    const forward: Ways['forward'] = (answered) => {
      const { method, headers, url } = message
      const onward = request({ host: base.hostname, port: base.port, path: url, method, headers }, answered)
      onward.on('error', () => reply.destroy())
      onward.end(body)
    }
    handle(message, body, { reply, forward })
  })
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
