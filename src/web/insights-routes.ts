import type { FastifyInstance } from 'fastify'
import { daysOfInterest } from '../core/config/load.ts'
import { dayOf } from '../core/day.ts'
import { TransientError } from '../core/errors.ts'
import { csvText } from '../core/text.ts'
import { bodyOf, sendBody } from './cache.ts'
import { address, type Filters, type PagePath, readFilters } from './insights/filters.ts'
import { readAll, readPage, SECTIONS } from './insights/read-page.ts'
import { insightsPage } from './pages/insights-page.ts'
import type { ServerOptions } from './server-options.ts'

// The numbers change with a sync, which clears the cache.
const TTL_MS = 15_000

export function insightsRoutes(app: FastifyInstance, { view, version }: Pick<ServerOptions, 'view' | 'version'>): void {
  const { config } = view.services
  const { redactor, reports } = config

  const filtersOf = (query: unknown, path: PagePath): Filters => {
    const today = dayOf(view.now())
    const interest = daysOfInterest(config, today)
    const filters = readFilters(query, { projects: view.projects, interest, today }, path)
    if (!view.database.up) throw new TransientError('the database does not answer')
    return filters
  }

  for (const path of Object.keys(SECTIONS) as PagePath[]) {
    app.get(path, async (request, reply) => {
      const filters = filtersOf(request.query, path)
      // A period moves with the days, so the days are part of its address.
      const key = `page ${filters.range.from} ${filters.range.to} ${address(filters)}`
      const body = await view.cache.get(key, TTL_MS, async () => {
        const found = await view.read((warehouse) => readPage(warehouse, { reports, filters }))
        const projects = view.names(await view.state())
        return bodyOf(redactor.text(insightsPage({ version, now: view.now(), projects, filters, found })))
      })
      return sendBody(request, reply, 'text/html; charset=utf-8', body)
    })
    for (const section of SECTIONS[path])
      app.get(`${path}/${section}.csv`, async (request, reply) => {
        const filters = filtersOf(request.query, path)
        const { header, rows } = await view.read((warehouse) => readAll(warehouse, { reports, filters }, section))
        const name = `${section}-${filters.range.from}-${filters.range.to}.csv`
        reply.header('content-disposition', `attachment; filename="${name}"`)
        return sendBody(request, reply, 'text/csv; charset=utf-8', await bodyOf(redactor.text(csvText(header, rows))))
      })
  }
}
