import type { McpRequestContext } from '@modelcontextprotocol/server'
import type { FastifyInstance } from 'fastify'
import type { Warehouse } from '../warehouse/connect.ts'
import type { Guard } from '../web/server-options.ts'
import type { McpOptions } from './server.ts'

const PATH = '/mcp'

/**
 * The same tools over HTTP, for those with the token. A page of another site cannot ask, even if it knows the token. What answers is
 * loaded with the first question.
 */
export function mcpRoutes(app: FastifyInstance, guard: Guard, options: McpOptions & { warehouse: Warehouse }): void {
  const { page_url } = options.config.alerts
  const open = async () => {
    const { createMcpServer, createReader } = await import('./server.ts')
    const { createMcpHandler } = await import('./sdk.ts')
    const pool = createReader(options.warehouse)
    const create = ({ requestInfo: asked }: McpRequestContext) =>
      createMcpServer(pool, options, page_url ?? (asked && new URL(asked.url).origin))
    return { handler: createMcpHandler(create, { maxSubscriptions: 0 }), pool }
  }
  let opened: ReturnType<typeof open> | undefined
  app.addHook('onClose', async () => {
    if (opened === undefined) return
    const { handler, pool } = await opened
    pool.close()
    await handler.close()
  })
  app.route({
    method: ['POST', 'GET', 'DELETE'],
    url: PATH,
    onRequest: async (request, reply) => {
      // Programs send no origin. A browser sends that of the page, which must be one of ours.
      const { origin } = request.headers
      const isOurs = origin === undefined || (URL.canParse(origin) && new URL(origin).host === request.host)
      if (!isOurs) throw Object.assign(new Error('this origin may not ask'), { statusCode: 403 })
      await guard(request, reply)
    },
    handler: async (request, reply) => {
      opened ??= open()
      const { handler } = await opened
      const { body, headers, method, protocol, host } = request
      const asked = new Request(`${protocol}://${host}${PATH}`, {
        method,
        headers: headers as Record<string, string>,
        ...(method === 'POST' && { body: JSON.stringify(body) }),
      })
      const answer = await handler.fetch(asked, method === 'POST' ? { parsedBody: body } : {})
      const type = answer.headers.get('content-type')
      if (type !== null) reply.type(type)
      return reply.code(answer.status).send(await answer.text())
    },
  })
}
