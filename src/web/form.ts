import type { FastifyInstance } from 'fastify'
import { readQuery } from './query.ts'

/** Lets routes of this scope take what HTML forms send. */
export function acceptForms(app: FastifyInstance): void {
  app.addContentTypeParser('application/x-www-form-urlencoded', { parseAs: 'string' }, (_request, body, done) => {
    const fields: Record<string, string | string[]> = {}
    for (const [name, value] of new URLSearchParams(String(body))) {
      const known = fields[name]
      fields[name] = known === undefined ? value : [known, value].flat()
    }
    done(null, fields)
  })
}

/** The fields that a form knows, each given once at most; those that nobody filled in are left out. */
export function readForm<K extends string>(body: unknown, known: readonly K[]): Partial<Record<K, string>> {
  return readQuery(body ?? {}, known)
}
