import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import type { FastifyInstance } from 'fastify'
import { monotonic } from '../../src/core/waiting.ts'
import { createMetrics } from '../../src/observe/metrics.ts'
import { DatabaseWatch } from '../../src/schedule/database-watch.ts'
import { Live } from '../../src/schedule/live.ts'
import { createSidePool } from '../../src/warehouse/side-pool.ts'
import { createServer as createPageServer } from '../../src/web/server.ts'
import { View } from '../../src/web/view.ts'
import { closeLater } from './close-later.ts'
import { startOutside } from './outside.ts'
import type { Setup } from './setup.ts'

/** A cron that does not come round during a test. */
export const NEVER = '0 0 1 1 *'

export async function until(what: () => Promise<boolean> | boolean): Promise<void> {
  for (let attempt = 0; attempt < 1200; attempt++) {
    if (await what()) return
    await new Promise((done) => setTimeout(done, 50))
  }
  throw new Error('waited in vain')
}

export interface Answer {
  status: number
  text: string
  json(): any
  headers: Headers
}

export async function get(url: string, init?: RequestInit): Promise<Answer> {
  const response = await fetch(url, init)
  const answer = await response.text()
  return { status: response.status, text: answer, json: () => JSON.parse(answer), headers: response.headers }
}

/** A request under any name: `fetch` does not let one choose the Host header. */
export async function getAs(url: string, host: string | undefined): Promise<{ status: number; text: string }> {
  const asked = request(url, { setHost: false, agent: false, headers: host === undefined ? {} : { host } }).end()
  const [answer] = (await once(asked, 'response')) as [IncomingMessage]
  return { status: answer.statusCode!, text: await text(answer) }
}

export interface Webhook {
  url: string
  /** The messages that were taken. */
  told: any[]
  /** What was told, as "raised run". */
  events(): string[]
  /** How many requests came, answered or not. */
  asked(): number
  close(): Promise<void>
}

/** A webhook that answers with a status, or not at all. */
export async function startWebhook(answer: () => number | 'nothing' = () => 200): Promise<Webhook> {
  const { url, heard, close } = await startOutside(answer)
  const told = () => heard.filter(({ status }) => status === 200).map(({ body }) => JSON.parse(body))
  return {
    url: `${url}/hook/secret-path`,
    get told() {
      return told()
    },
    events: () => told().map(({ event, condition }) => `${event} ${condition}`),
    asked: () => heard.length,
    close,
  }
}

export interface Pages {
  url: string
  app: FastifyInstance
  /** To have runs go on. */
  live: Live
  close(): Promise<void>
}

const DAY_MS = 86_400_000

/** The HTTP server alone, in this process: nothing runs on a schedule, so a test decides what there is to see. */
export async function startPages({ services, projects, database }: Setup, token?: string): Promise<Pages> {
  const { log, clock } = services
  const pool = createSidePool(database.warehouse, {
    name: 'pages of a test',
    connections: 2,
    waiting: 64,
    patienceMs: 10_000,
    limitMs: 30_000,
  })
  const watch = new DatabaseWatch({ pool, clock, monotonic, log })
  await watch.look()
  const live = new Live(() => new Date())
  const view = new View({
    services: { ...services, clock: () => new Date() },
    projects,
    pool,
    watch,
    monotonic,
  })
  const app = createPageServer({
    view,
    live,
    metrics: createMetrics(services.streams.all.map(({ name }) => name)),
    monotonic,
    version: 'test',
    warehouse: 'postgres://localhost/test',
    maxStalenessMs: DAY_MS,
    hosts: [],
    token,
    next: () => ({ sync: new Date(Date.now() + 900_000), audit: undefined }),
    alerts: () => [],
    failedToStart: () => undefined,
    sync: () => ({ begun: true }),
    backfill: async () => ({ busy: 'nothing runs here' }),
  })
  await app.listen({ host: '127.0.0.1', port: 0 })
  const { port } = app.server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    app,
    live,
    close: closeLater(async () => {
      await app.close()
      pool.close()
    }),
  }
}
