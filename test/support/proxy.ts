import { createServer, type IncomingMessage, request } from 'node:http'
import type { AddressInfo } from 'node:net'

/** A real server in front of another one, which answers with an error where it is told to; with status 0 not at all. */
export async function startProxy(
  target: string,
  isBad: (message: IncomingMessage, body: string) => boolean,
  status = 500,
) {
  const base = new URL(target)
  const server = createServer((message, reply) => {
    const chunks: Buffer[] = []
    message.on('data', (chunk: Buffer) => chunks.push(chunk))
    message.on('end', () => {
      const body = Buffer.concat(chunks)
      if (isBad(message, body.toString())) {
        if (status === 0) return
        reply.writeHead(status, { 'content-type': 'application/json' }).end('{"message":"no"}')
        return
      }
      const { method, headers, url } = message
      const onward = request({ host: base.hostname, port: base.port, path: url, method, headers }, (answer) => {
        reply.writeHead(answer.statusCode!, answer.headers)
        answer.pipe(reply)
      })
      onward.on('error', () => reply.destroy())
      onward.end(body)
    })
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

/** A real server in front of another one, which changes the text of answers on their way. `body` is that of the request. */
export async function startRewriter(
  target: string,
  rewrite: (text: string, message: IncomingMessage, body: string) => string | Buffer,
) {
  const base = new URL(target)
  const server = createServer((message, reply) => {
    const { method, headers, url } = message
    const asked: Buffer[] = []
    message.on('data', (chunk: Buffer) => asked.push(chunk))
    const onward = request({ host: base.hostname, port: base.port, path: url, method, headers }, (answer) => {
      const chunks: Buffer[] = []
      answer.on('data', (chunk: Buffer) => chunks.push(chunk))
      answer.on('end', () => {
        const { 'content-length': _, 'transfer-encoding': __, ...kept } = answer.headers
        const text = rewrite(Buffer.concat(chunks).toString(), message, Buffer.concat(asked).toString())
        reply.writeHead(answer.statusCode!, kept).end(text)
      })
    })
    onward.on('error', () => reply.destroy())
    message.pipe(onward)
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
