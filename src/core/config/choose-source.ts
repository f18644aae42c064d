import { UsageError } from '../errors.ts'
import type { FileConfig } from './schema.ts'

/** The value of `VISIBILITY_API_URL` that asks for the reference service by name. */
export const REFERENCE = 'reference'

/** The value of `DATABASE_URL` that asks for the embedded Postgres by name. */
export const EMBEDDED = 'embedded'

type ChosenSource = { kind: 'reference' } | { kind: 'service'; baseUrl: string }

type Settings = Pick<FileConfig, 'source' | 'warehouse' | 'projects'>

/**
 * Which service is read. Synthetic rows must never reach a real warehouse, so the reference service is chosen only if
 * it is configured by name, or if neither a service nor a database is configured. Undefined if the address of a
 * real service is missing.
 */
export function chosenSource({ source, warehouse, projects }: Settings): ChosenSource | undefined {
  if (source.base_url === REFERENCE) return { kind: 'reference' }
  if (source.base_url !== undefined) return { kind: 'service', baseUrl: source.base_url }
  const hasKey = source.api_key !== undefined || projects.some(({ api_key }) => api_key !== undefined)
  return warehouse.url === undefined && !hasKey ? { kind: 'reference' } : undefined
}

/** As above, for commands that read the service: a missing address is bad usage. */
export function chooseSource(settings: Settings): ChosenSource {
  const chosen = chosenSource(settings)
  if (chosen !== undefined) return chosen
  const given = settings.warehouse.url === undefined ? 'an API key is set' : 'a database is configured'
  throw new UsageError(
    `VISIBILITY_API_URL: nothing is set, but ${given}; set it to the address of the service, such as ` +
      `https://api.example.com/v1, or to "${REFERENCE}" for synthetic data of the reference service`,
  )
}

/** The address of the warehouse, or `embedded`, which only synthetic data chooses by itself. Undefined if it is missing. */
export function chosenDatabase(settings: Settings): string | undefined {
  return settings.warehouse.url ?? (chosenSource(settings)?.kind === 'reference' ? EMBEDDED : undefined)
}

export function chooseDatabase(settings: Settings): string {
  const chosen = chosenDatabase(settings)
  if (chosen !== undefined) return chosen
  throw new UsageError(
    'DATABASE_URL: nothing is set, but a service is configured; set it to the warehouse, such as ' +
      `postgres://visibility@db.example.com/warehouse, or to "${EMBEDDED}" for an embedded Postgres under .data/`,
  )
}
