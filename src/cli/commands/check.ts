import type { Config } from '../../core/config/load.ts'
import { messageOf, UsageError } from '../../core/errors.ts'
import { streamsOf } from '../../streams/registry.ts'
import type { Warehouse } from '../../warehouse/connect.ts'
import { openSource, openWarehouse } from '../open.ts'
import type { Session } from '../session.ts'

interface Verdict {
  what: string
  ok: boolean
  detail: string
}

/** `check`: one verdict each for configuration, key, every project, database and its privileges. */
export async function check(session: Session): Promise<number> {
  const { config, log, clock } = session
  const verdicts: Verdict[] = []
  const judge = async (what: string, work: () => Promise<string>) => {
    try {
      verdicts.push({ what, ok: true, detail: await work() })
      return true
    } catch (error) {
      verdicts.push({ what, ok: false, detail: messageOf(error) })
      return false
    }
  }
  await judge(
    'configuration',
    async () => `${config.file ?? 'no file, defaults and environment'}: ${streamsOf(config).length} streams`,
  )
  const source = await openSource(impatient(config), clock)
  try {
    for (const project of source.projects) {
      await judge(`project ${project.id}`, async () => {
        const { total, items } = await source.client.prompts(project.caller, { limit: 1 }, { signal: session.signal })
        return `readable at ${source.source}${total === undefined ? '' : `, ${total} prompts`}${items.length === 0 ? ', no prompts yet' : ''}`
      })
    }
  } finally {
    await source.close()
  }
  let database: Awaited<ReturnType<typeof openWarehouse>> | undefined
  await judge('database', async () => {
    database = await openWarehouse(config, log)
    const { rows } = await database.warehouse.pool.query<{ version: string }>(
      "select current_setting('server_version') as version",
    )
    return `Postgres ${rows[0]?.version} at ${database.shown}`
  })
  if (database !== undefined) {
    const { warehouse, close } = database
    await judge('privileges', () => privileges(warehouse))
    await close()
  }
  const ok = verdicts.every((verdict) => verdict.ok)
  const lines = verdicts.map((verdict) => `${verdict.ok ? '✓' : '✗'} ${verdict.what}: ${verdict.detail}`)
  session.print(
    { ok, verdicts },
    [
      ...lines,
      '',
      ok ? 'All well. Next: npx visibility-sync sync' : 'Not ready: mend what is marked ✗ and check again.',
    ].join('\n'),
  )
  return ok ? 0 : 1
}

/** Whoever checks is waiting for the result. */
function impatient(config: Config): Config {
  const { timeout_seconds, max_attempts, patience_seconds } = config.source
  const source = {
    ...config.source,
    timeout_seconds: Math.min(15, timeout_seconds),
    max_attempts: Math.min(2, max_attempts),
    patience_seconds: Math.min(5, patience_seconds),
  }
  return { ...config, source }
}

async function privileges(warehouse: Warehouse): Promise<string> {
  const { rows } = await warehouse.pool.query<{
    may_temp: boolean
    may_create: boolean
    is_read_only: boolean
    schemas: { name: string; usable: boolean }[] | null
  }>(
    `select has_database_privilege(current_database(), 'temp') as may_temp,
       has_database_privilege(current_database(), 'create') as may_create,
       current_setting('transaction_read_only')::boolean as is_read_only,
       (select json_agg(json_build_object('name', nspname, 'usable', has_schema_privilege(nspname, 'create') and has_schema_privilege(nspname, 'usage')))
        from pg_namespace where nspname = any($1)) as schemas`,
    [[warehouse.schema, warehouse.opsSchema]],
  )
  const { may_temp, may_create, is_read_only, schemas } = rows[0]!
  if (is_read_only)
    throw new UsageError('the server can only be read, as a standby can: name the primary in DATABASE_URL')
  const lacking = [
    ...(may_temp ? [] : ['temp on the database']),
    ...((schemas?.length ?? 0) < 2 && !may_create ? ['create on the database (or both schemas made beforehand)'] : []),
    ...(schemas ?? []).filter(({ usable }) => !usable).map(({ name }) => `usage and create on schema ${name}`),
  ]
  if (lacking.length > 0)
    throw new UsageError(`the role lacks: ${lacking.join(', ')}; docs/operations.md lists the grants`)
  return `enough to make and fill ${warehouse.schema} and ${warehouse.opsSchema}`
}
