import { readFileSync } from 'node:fs'
import type { FastifyInstance } from 'fastify'
import { daysOfInterest } from '../core/config/load.ts'
import { dayOf } from '../core/day.ts'
import { OverloadedError, TimeLimitError, TransientError } from '../core/errors.ts'
import type { Monotonic } from '../core/monotonic.ts'
import { packageFile } from '../core/package-files.ts'
import { csvText } from '../core/text.ts'
import { type Body, bodyOf, sendBody } from './body.ts'
import { Cached } from './cached.ts'
import { address, type Filters, readFilters } from './insights/filters.ts'
import { type Insights, readAbsent, readAll, readInsights } from './insights/read-insights.ts'
import { SECTIONS } from './insights/statements.ts'
import { insightsPage } from './pages/insights-page.ts'
import type { View } from './view.ts'

export interface InsightsOptions {
  view: View
  monotonic: Monotonic
  version: string
}

// What analysts look at changes with a sync, not with the second.
const FRESH_MS = 15_000
const MOST_PAGES = 64
// A file may have megabytes.
const MOST_FILES = 4
const MOST_ROWS = 100_000
// On a machine that is too busy to read anew, a page that is a little older is better than none.
const STALE = {
  ms: 60_000,
  on: (error: unknown) => error instanceof OverloadedError || error instanceof TimeLimitError,
}
const ASSETS = { 'insights.css': 'text/css; charset=utf-8', 'insights.js': 'text/javascript; charset=utf-8' }

/** The insights page, its sections as files, and what the page is made with. */
export function insightsRoutes(app: FastifyInstance, { view, monotonic, version }: InsightsOptions): void {
  const { config } = view.services
  const { redactor, reports } = config
  const bodies = new Cached<Body>({ monotonic, freshMs: FRESH_MS, most: MOST_PAGES, stale: STALE })
  const files = new Cached<Body>({ monotonic, freshMs: FRESH_MS, most: MOST_FILES, stale: STALE })
  // Leafing through the absent prompts reads only those anew.
  const read = new Cached<Insights>({ monotonic, freshMs: FRESH_MS, most: MOST_FILES })

  const filtersOf = (query: unknown): Filters => {
    const today = dayOf(view.now())
    const interest = daysOfInterest(config, today)
    const filters = readFilters(query, { projects: view.projects, interest, today })
    if (!view.database.up) throw new TransientError('the database does not answer')
    return filters
  }

  app.get('/insights', async (request, reply) => {
    const filters = filtersOf(request.query)
    const body = await bodies.get(keyOf(filters), async () => {
      // One after the other: a page takes one of the few connections, not all.
      const insights = await read.get(keyOf({ ...filters, page: 1, print: false }), () =>
        view.insights((warehouse) => readInsights(warehouse, { reports, filters })),
      )
      const absent = await view.insights((warehouse) => readAbsent(warehouse, { reports, filters }))
      const projects = view.names(await view.state())
      return bodyOf(redactor.text(insightsPage({ version, now: view.now(), projects, filters, insights, absent })))
    })
    return sendBody(request, reply, 'text/html; charset=utf-8', body)
  })

  for (const section of SECTIONS) {
    app.get(`/insights/${section}.csv`, async (request, reply) => {
      const filters = filtersOf(request.query)
      const body = await files.get(`${section} ${keyOf(filters)}`, async () => {
        const { header, rows } = await view.insights((warehouse) =>
          readAll(warehouse, { reports, filters }, { section, most: MOST_ROWS }),
        )
        return bodyOf(redactor.text(csvText(header, rows)))
      })
      const name = `${section}-${filters.range.from}-${filters.range.to}.csv`
      reply.header('content-disposition', `attachment; filename="${name}"`)
      return sendBody(request, reply, 'text/csv; charset=utf-8', body)
    })
  }

  for (const [name, type] of Object.entries(ASSETS)) {
    const text = readFileSync(packageFile(`dist/web/assets/${name}`), 'utf8')
    app.get(`/assets/${name}`, { config: { isClean: true } }, async (_request, reply) =>
      reply.type(type).header('cache-control', 'public, max-age=3600').send(text),
    )
  }
}

/** A period moves with the days, so the days are part of it. */
const keyOf = (filters: Filters) => `${filters.range.from} ${filters.range.to} ${address(filters)}`
