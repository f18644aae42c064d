import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { daysOfInterest } from '../core/config/load.ts'
import { dayOf } from '../core/day.ts'
import { TransientError } from '../core/errors.ts'
import { csvText } from '../core/text.ts'
import { bodyOf, sendBody } from './cache.ts'
import { DETAILS } from './insights/detail-statements.ts'
import { address, type Filters, PAGES, type PagePath, readFilters } from './insights/filters.ts'
import { readDetail } from './insights/read-detail.ts'
import { type AnySection, readAbsent, readAll, readInsights } from './insights/read-insights.ts'
import { type Section, STATEMENTS } from './insights/statements.ts'
import { detailPage } from './pages/detail-page.ts'
import { insightsPage } from './pages/insights-page.ts'
import type { ServerOptions } from './server-options.ts'

// The numbers change with a sync, which clears the cache.
const TTL_MS = 15_000
const MOST_ROWS = 100_000

/** The insights pages, and their sections as files. */
export function insightsRoutes(app: FastifyInstance, { view, version }: Pick<ServerOptions, 'view' | 'version'>): void {
  const { config } = view.services
  const { redactor, reports } = config

  const filtersOf = (query: unknown, path: PagePath = '/insights'): Filters => {
    const today = dayOf(view.now())
    const interest = daysOfInterest(config, today)
    const filters = readFilters(query, { projects: view.projects, interest, today }, path)
    if (!view.database.up) throw new TransientError('the database does not answer')
    return filters
  }

  app.get('/insights', async (request, reply) => {
    const filters = filtersOf(request.query)
    const body = await view.cache.get(`page ${keyOf(filters)}`, TTL_MS, async () => {
      // Paging through the absent prompts reads nothing else again. One read follows the other: a page takes one of the
      // few connections, not all.
      const insights = await view.cache.get(keyOf({ ...filters, page: 1, print: false }), TTL_MS, () =>
        view.read((warehouse) => readInsights(warehouse, { reports, filters })),
      )
      const absent = await view.read((warehouse) => readAbsent(warehouse, { reports, filters }))
      const projects = view.names(await view.state())
      return bodyOf(redactor.text(insightsPage({ version, now: view.now(), projects, filters, insights, absent })))
    })
    return sendBody(request, reply, 'text/html; charset=utf-8', body)
  })

  const sendFile = async (request: FastifyRequest, reply: FastifyReply, path: PagePath, section: AnySection) => {
    const filters = filtersOf(request.query, path)
    const { header, rows } = await view.read((warehouse) =>
      readAll(warehouse, { reports, filters }, { section, most: MOST_ROWS }),
    )
    const name = `${section}-${filters.range.from}-${filters.range.to}.csv`
    reply.header('content-disposition', `attachment; filename="${name}"`)
    return sendBody(request, reply, 'text/csv; charset=utf-8', await bodyOf(redactor.text(csvText(header, rows))))
  }
  for (const section of Object.keys(STATEMENTS) as Section[])
    app.get(`/insights/${section}.csv`, (request, reply) => sendFile(request, reply, '/insights', section))

  for (const path of (Object.keys(PAGES) as PagePath[]).filter((page) => page !== '/insights')) {
    app.get(path, async (request, reply) => {
      const filters = filtersOf(request.query, path)
      const body = await view.cache.get(`page ${keyOf(filters)}`, TTL_MS, async () => {
        const detail = await view.read((warehouse) => readDetail(warehouse, { reports, filters }))
        const projects = view.names(await view.state())
        return bodyOf(redactor.text(detailPage({ version, projects, filters, detail })))
      })
      return sendBody(request, reply, 'text/html; charset=utf-8', body)
    })
    for (const section of DETAILS[path])
      app.get(`${path}/${section}.csv`, (request, reply) => sendFile(request, reply, path, section))
  }
}

/** A period moves with the days, so the days are part of it. */
const keyOf = (filters: Filters) => `${filters.range.from} ${filters.range.to} ${address(filters)}`
