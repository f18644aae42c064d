import type { PoolClient } from 'pg'
import type { Config } from '../../core/config/load.ts'
import { listSome } from '../../core/text.ts'
import { BI_VIEWS } from '../../core/vocabulary.ts'
import type { Warehouse } from '../connect.ts'
import { HELPER_VIEWS, TABLES } from './catalogue.ts'
import { madeBy, readMigrations } from './migrations.ts'
import { readSql } from './views.ts'

/*
 * Who owns a table can put a trigger on it, which then runs with the rights of this role. So schemas, tables, views and functions
 * that we use, and functions that triggers, rules, defaults and constraints of these tables call, have to belong to this role, to a
 * role that it is a member of, or to a superuser, who needs no such trick.
 */

/** A complaint about objects that we use and that belong to somebody else; undefined if there are none. */
export async function findForeignObjects(
  client: Pick<PoolClient, 'query'>,
  { schema, opsSchema }: Warehouse,
  { reports, custom_streams }: Config,
): Promise<string | undefined> {
  const functions = madeBy(readMigrations()).filter(({ kind }) => kind === 'function')
  const named = [...reports, ...custom_streams, ...functions].map(({ name }) => name)
  const { rows } = await client.query<{ what: string; owner: string }>(readSql('queries/foreign_objects'), [
    schema,
    [opsSchema, `${schema}_queue`],
    [...Object.keys({ ...TABLES, ...HELPER_VIEWS }), ...BI_VIEWS, ...named],
  ])
  if (rows.length === 0) return undefined
  return (
    `these belong to roles that this role is not a member of: ${listSome(rows.map(({ what, owner }) => `${what} (of ${owner})`))}. ` +
    'Their owners could run code with the rights of this role. Give them to this role ("alter … owner to"), drop them, or set ' +
    'warehouse.allow_foreign_owner: true if you trust the owners'
  )
}
