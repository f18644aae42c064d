import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

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
  /** Serves again. What was frozen flows on. */
  resume(): void
  /** Ends all connections; new ones are served. */
  cut(): void
  /** From now on new connections go to another server. */
  retarget(url: string): void
  /** How many connections are open. */
  connections(): number
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
  const pairs = new Set<Pair>()
  const server = createServer((client) => {
    if (state === 'refusing') {
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
      from.on('data', (chunk) => {
        if (!to.write(chunk)) from.pause()
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
    cut,
    retarget(next) {
      goal = new URL(next)
    },
    connections: () => pairs.size,
    close: () =>
      new Promise<void>((done) => {
        server.close(() => done())
        cut()
      }),
  }
}
