import type { AddressInfo } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { monotonic } from '../../src/core/waiting.ts'
import { createMetrics } from '../../src/observe/metrics.ts'
import { DatabaseWatch } from '../../src/schedule/database-watch.ts'
import { Live } from '../../src/schedule/live.ts'
import { createSidePool } from '../../src/warehouse/side-pool.ts'
import { createServer } from '../../src/web/server.ts'
import { View } from '../../src/web/view.ts'
import type { Setup } from './setup.ts'

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
  const app = createServer({
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
    async close() {
      await app.close()
      pool.close()
    },
  }
}
