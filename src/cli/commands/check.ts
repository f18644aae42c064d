import { messageOf, UsageError } from '../../core/errors.ts'
import { bad, good } from '../../core/paint.ts'
import { count } from '../../core/text.ts'
import { streamsOf } from '../../streams/registry.ts'
import type { Warehouse } from '../../warehouse/connect.ts'
import { openSource, openWarehouse } from '../open.ts'
import { type ProjectNames, projectNames, readProjectNames } from '../project-names.ts'
import type { Session } from '../session.ts'
import { wrap } from '../wrap.ts'

interface Verdict {
  what: string
  ok: boolean
  detail: string
  project_id?: string
}

/** `check`: one verdict each for configuration, key, every project, database and its privileges. */
export async function check(session: Session): Promise<number> {
  const { config, log, clock } = session
  const verdicts: Verdict[] = []
  const judge = async (what: string, work: () => Promise<string>, more: Pick<Verdict, 'project_id'> = {}) => {
    try {
      verdicts.push({ what, ok: true, detail: await work(), ...more })
    } catch (error) {
      verdicts.push({ what, ok: false, detail: messageOf(error), ...more })
    }
  }
  await judge(
    'configuration',
    async () => `${config.file ?? 'no file, defaults and environment'}: ${streamsOf(config).length} streams`,
  )
  const source = await openSource(config, clock)
  try {
    for (const project of source.projects) {
      const read = async () => {
        const { total, items } = await source.client.prompts(project.caller, { limit: 1 }, { signal: session.signal })
        if (items.length === 0) return 'readable, no prompts yet'
        return total === undefined ? 'readable' : `readable, ${count(total, 'prompt')}`
      }
      await judge(`project ${project.id}`, read, { project_id: project.id })
    }
  } finally {
    await source.close()
  }
  let database: Awaited<ReturnType<typeof openWarehouse>> | undefined
  let known = new Map<string, string>()
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
    // A role without privileges may not read names either, which was just said.
    known = await readProjectNames(warehouse).catch(() => known)
    await close()
  }
  const ok = verdicts.every((verdict) => verdict.ok)
  const names = projectNames(
    source.projects.map(({ id }) => id),
    known,
  )
  session.print({ ok, source: source.source, verdicts }, render(verdicts, source.source, names, session))
  return ok ? 0 : 1
}

function render(
  verdicts: Verdict[],
  source: string,
  names: ProjectNames,
  { width, command }: Pick<Session, 'width' | 'command'>,
): string {
  const lines = verdicts.map(({ what, ok, detail, project_id }) => {
    const shown = project_id === undefined ? what : `project ${names.heading(project_id)}`
    return wrap(`${ok ? good('✓') : bad('✗')} ${shown}: ${detail}`, width, '', '  ')
  })
  const end = verdicts.every(({ ok }) => ok)
    ? `${good('All well.')} Next: ${command('sync')}`
    : `${bad('Not ready:')} mend what is marked ✗ and check again.`
  return [wrap(source, width, 'Source: '), '', ...lines, '', end].join('\n')
}

async function privileges(warehouse: Warehouse): Promise<string> {
  const { rows } = await warehouse.pool.query<{
    may_temp: boolean
    may_create: boolean
    schemas: { name: string; usable: boolean }[] | null
  }>(
    `select has_database_privilege(current_database(), 'temp') as may_temp,
       has_database_privilege(current_database(), 'create') as may_create,
       (select json_agg(json_build_object('name', nspname, 'usable', has_schema_privilege(nspname, 'create') and has_schema_privilege(nspname, 'usage')))
        from pg_namespace where nspname = any($1)) as schemas`,
    [[warehouse.schema, warehouse.opsSchema]],
  )
  const { may_temp, may_create, schemas } = rows[0]!
  const lacking = [
    ...(may_temp ? [] : ['temp on the database']),
    ...((schemas?.length ?? 0) < 2 && !may_create ? ['create on the database (or both schemas made beforehand)'] : []),
    ...(schemas ?? []).filter(({ usable }) => !usable).map(({ name }) => `usage and create on schema ${name}`),
  ]
  if (lacking.length > 0)
    throw new UsageError(`the role lacks: ${lacking.join(', ')}; docs/operations.md lists the grants`)
  return `enough to make and fill ${warehouse.schema} and ${warehouse.opsSchema}`
}
