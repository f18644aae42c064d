import { UsageError } from '../../core/errors.ts'
import { decoded } from '../../core/secret-forms.ts'

/**
 * The parts of a connection string as Metabase wants them. If the address says nothing of SSL, neither do these:
 * Metabase tries SSL by itself when the connection is made and keeps what worked, and `ssl: false` would end that.
 */
export function connectionDetails(url: string, schema: string): Record<string, unknown> {
  let parsed: URL
  try {
    parsed = new URL(url)
  } catch {
    throw new UsageError(
      'METABASE_DATABASE_URL: not a valid address; it looks like postgres://user:password@host:5432/name',
    )
  }
  return {
    host: parsed.hostname,
    port: Number(parsed.port || 5432),
    dbname: decoded(parsed.pathname.slice(1)),
    user: decoded(parsed.username),
    password: decoded(parsed.password),
    ...sslDetails(parsed.searchParams.get('sslmode')),
    'schema-filters-type': 'inclusion',
    'schema-filters-patterns': schema,
  }
}

const MODES = ['require', 'verify-ca', 'verify-full']

function sslDetails(mode: string | null): Record<string, unknown> {
  // With `allow` and `prefer` either is well: Metabase finds out.
  if (mode === null || mode === 'allow' || mode === 'prefer') return {}
  if (mode === 'disable') return { ssl: false }
  if (MODES.includes(mode)) return { ssl: true, 'ssl-mode': mode }
  throw new UsageError(`METABASE_DATABASE_URL: sslmode is not one of disable, allow, prefer, ${MODES.join(', ')}`)
}
