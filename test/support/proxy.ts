import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http'
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { type Client, type ClientOptions, createClient } from '../../src/source/client.ts'
import { closeLater } from './close-later.ts'

/** Starts a server on a free port of this machine. */
export async function listening(server: Server): Promise<{ origin: string; close(): Promise<void> }> {
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: closeLater(() => {
      const closed = new Promise<void>((done) => server.close(() => done()))
      server.closeAllConnections()
      return closed
    }),
  }
}

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
  rewrite: (text: string, message: IncomingMessage, body: string) => string | Buffer | Promise<string>,
): Promise<Proxy> {
  return start(target, async ({ message, body, reply, forward }) => {
    const answer = await forward()
    const { 'content-length': _, 'transfer-encoding': __, ...kept } = answer.headers
    reply.writeHead(answer.statusCode!, kept).end(await rewrite(await text(answer), message, body))
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

async function start(target: string, answer: (request: Request) => Promise<void>): Promise<Proxy> {
  const base = new URL(target)
  const handle = async (message: IncomingMessage, reply: ServerResponse) => {
    const body = await text(message)
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
  const { origin, close } = await listening(server)
  return { url: origin + base.pathname, close }
}

/** A TCP proxy before a database, by which a test takes the database away in the ways that networks do. */
export interface TcpProxy {
  /** The target's connection string, through the proxy. */
  url: string
  /** Ends all connections and refuses new ones. */
  refuse(): void
  /** Packets just stop, in both directions; connections stay open and new ones get no answer. */
  freeze(): void
  /** Packets of the connections that are open now stop for good; new connections are served. */
  stall(): void
  /** Like `refuse`, as soon as a client sends this text; serves again after some attempts to connect. */
  loseAt(text: string): void
  /** The server closes stalled connections, as it does when nothing acknowledges its keepalive packets. */
  dropStalled(): void
  /** Serves again. What was frozen flows on. */
  resume(): void
  /** Ends all connections; new ones are served. */
  cut(): void
  /** From now on new connections go to another server. */
  retarget(url: string): void
  close(): Promise<void>
}

interface Pair {
  client: Socket
  upstream: Socket
  isStalled: boolean
}

export async function startTcpProxy(target: string): Promise<TcpProxy> {
  let goal = new URL(target)
  let state: 'open' | 'refusing' | 'frozen' = 'open'
  let [fatal, refusals]: [string | undefined, number] = [undefined, 0]
  const pairs = new Set<Pair>()
  const server = createTcpServer((client) => {
    if (state === 'refusing' || refusals-- > 0) {
      client.destroy()
      return
    }
    const upstream = connect(Number(goal.port || 5432), goal.hostname)
    const pair: Pair = { client, upstream, isStalled: false }
    pairs.add(pair)
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      from.on('data', (chunk: Buffer) => {
        if (from === client && fatal !== undefined && chunk.includes(fatal)) {
          ;[fatal, refusals] = [undefined, 3]
          cut()
        } else if (!to.write(chunk)) from.pause()
      })
      to.on('drain', () => {
        if (state !== 'frozen' && !pair.isStalled) from.resume()
      })
      from.on('error', () => {})
      from.on('close', () => {
        to.destroy()
        pairs.delete(pair)
      })
    }
    if (state === 'frozen') pause(pair)
  })
  const pause = ({ client, upstream }: Pair) => {
    client.pause()
    upstream.pause()
  }
  const cut = () => {
    for (const { client, upstream } of pairs) {
      client.resetAndDestroy()
      upstream.destroy()
    }
  }
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const url = new URL(target)
  url.hostname = '127.0.0.1'
  url.port = String((server.address() as AddressInfo).port)
  return {
    url: url.href,
    refuse() {
      state = 'refusing'
      cut()
    },
    loseAt(text) {
      fatal = text
    },
    freeze() {
      state = 'frozen'
      for (const pair of pairs) pause(pair)
    },
    resume() {
      state = 'open'
      for (const { client, upstream, isStalled } of pairs) {
        if (isStalled) continue
        client.resume()
        upstream.resume()
      }
    },
    stall() {
      for (const pair of pairs) {
        pair.isStalled = true
        pause(pair)
      }
    },
    dropStalled() {
      for (const { upstream, isStalled } of pairs) if (isStalled) upstream.destroy()
    },
    cut,
    retarget(next) {
      goal = new URL(next)
    },
    close: closeLater(() => {
      const closed = new Promise<void>((done) => server.close(() => done()))
      cut()
      return closed
    }),
  }
}

/** A client that is closed after the test. */
export function openClient(baseUrl: string, options: Partial<ClientOptions> = {}): Client {
  const client = createClient({ baseUrl, compress: false, requestsPerMinute: 100_000, ...options })
  closeLater(() => client.close())
  return client
}
