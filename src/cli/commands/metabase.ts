import { withExisting } from '../../app/open-services.ts'
import { refusePlainHttp, shownText } from '../../core/config/secrets.ts'
import { UsageError } from '../../core/errors.ts'
import { decoded } from '../../core/redactor.ts'
import { count } from '../../core/text.ts'
import { connectMetabase } from '../../packs/metabase/api.ts'
import { provision } from '../../packs/metabase/provision.ts'
import { listRestrictions } from '../../warehouse/schema/restrict-reader.ts'
import { readProjectNames, refuseUnread } from '../project-names.ts'
import type { Session } from '../session.ts'
import { readUse } from './pack.ts'

export async function metabase(session: Session, { url, project }: { url: string; project?: string }): Promise<number> {
  const { metabase: settings, warehouse, allow_http, redactor } = session.config
  if (!/^https?:\/\//.test(url) || !URL.canParse(url))
    throw new UsageError(`--url: got ${shownText(url)}; allowed: an address such as https://metabase.example.com`)
  refusePlainHttp(url, '--url', allow_http)
  if (settings.database_url === undefined)
    throw new UsageError(
      'METABASE_DATABASE_URL is not set: the warehouse as Metabase reaches it, with a reader role (npx visibility-sync grant)',
    )
  const details = connectionDetails(settings.database_url, warehouse.schema)
  const client = project === undefined ? undefined : await clientOf(session, project, details.user)
  const server = await connectMetabase(url, settings, redactor)
  const wanted = { schema: warehouse.schema, client, ...(await readUse(session)) }
  const result = await provision(server, details, wanted)
  const { database, fields, left, dashboard } = result
  const base = url.replace(/\/+$/, '')
  session.print({ url: base, ...result }, [
    `Connection ${database.made ? 'made' : 'updated'}, ${count(fields, 'field')} described.`,
    ...(['questions', 'models', 'metrics'] as const).map((kind) => {
      const made = result[kind].filter((card) => card.made).length
      return `${count(made, kind.slice(0, -1))} made, ${result[kind].length - made} updated.`
    }),
    // Views are missing where their report is not configured, and for a moment after an upgrade.
    left.length > 0 && `${count(left.length, 'card')} left out: Metabase does not know the view.`,
    ...left.map(({ name, view }) => `  ${view}: ${name}`),
    left.length > 0 && 'If "npx visibility-sync migrate" makes the view, run this again once Metabase has synced.',
    `Dashboard: ${base}/dashboard/${dashboard.id}`,
  ])
  return 0
}

/** The name of a client's project. The role that Metabase connects with must see this project alone. */
async function clientOf(session: Session, project: string, role: string): Promise<string> {
  return withExisting(session, async (warehouse) => {
    await refuseUnread(warehouse, session.config, [project])
    const names = await readProjectNames(warehouse)
    const sees = (await listRestrictions(warehouse)).find((restriction) => restriction.role === role)
    if (sees?.projects.join() !== project)
      throw new UsageError(
        `--project: the role "${role}" of METABASE_DATABASE_URL does not see this project alone; run: npx visibility-sync grant --role ${role} --project ${project}`,
      )
    const name = names.get(project) ?? project
    const isUnique = [...names.values()].filter((other) => other === name).length < 2
    return isUnique ? name : `${name} (${project})`
  })
}

const SSL_MODES = ['require', 'verify-ca', 'verify-full']

/**
 * The parts of a connection string for Metabase. Without an sslmode, Metabase tries SSL by itself and keeps what worked;
 * `ssl: false` would end that. Without options, plans are not compiled: that takes longer than to run them.
 */
function connectionDetails(url: string, schema: string): Record<string, unknown> & { user: string } {
  if (!URL.canParse(url)) {
    throw new UsageError(
      'METABASE_DATABASE_URL: not a valid address; it looks like postgres://user:password@host:5432/name',
    )
  }
  const parsed = new URL(url)
  const options = parsed.searchParams.get('options') ?? '-c jit=off'
  return {
    host: parsed.hostname,
    port: Number(parsed.port || 5432),
    dbname: decoded(parsed.pathname.slice(1)),
    user: decoded(parsed.username),
    password: decoded(parsed.password),
    ...sslDetails(parsed.searchParams.get('sslmode')),
    'advanced-options': true,
    'additional-options': options === '' ? '' : `options=${options.replaceAll(' ', '%20')}`,
    'schema-filters-type': 'inclusion',
    'schema-filters-patterns': schema,
  }
}

function sslDetails(mode: string | null): Record<string, unknown> {
  if (mode === null || mode === 'allow' || mode === 'prefer') return {}
  if (mode === 'disable') return { ssl: false }
  if (SSL_MODES.includes(mode)) return { ssl: true, 'ssl-mode': mode }
  throw new UsageError(`METABASE_DATABASE_URL: sslmode is not one of disable, allow, prefer, ${SSL_MODES.join(', ')}`)
}
