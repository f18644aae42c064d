import { Kysely, PostgresDialect } from 'kysely'
import type { Pool, PoolClient } from 'pg'
import type { Ops, OpsTables, Tables, WarehouseTables } from './database.ts'

interface Schemas {
  schema: string
  opsSchema: string
}

/** Typed queries of the data schema and of the ops schema. */
export function bindTables({ schema, opsSchema }: Schemas, pool: Pool): { tables: Tables; ops: Ops } {
  const bind = <T>(name: string) => new Kysely<T>({ dialect: new PostgresDialect({ pool }) }).withSchema(name)
  return { tables: bind<WarehouseTables>(schema), ops: bind<OpsTables>(opsSchema) }
}

/** A pool of one connection that is released elsewhere. Statements that are asked for at once are sent one after the other. */
export function poolOf(client: PoolClient): Pool {
  let last: Promise<unknown> = Promise.resolve()
  const query = (...args: Parameters<PoolClient['query']>) => {
    const next = last.then(() => client.query(...args))
    last = Promise.resolve(next).catch(() => {})
    return next
  }
  return { query, connect: async () => ({ query, release: () => {} }), end: async () => {} } as unknown as Pool
}
