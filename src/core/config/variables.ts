import { UsageError } from '../errors.ts'

export const PLACEHOLDER = /\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}/g

/**
 * Fills `${NAME}` and `${NAME:-default}` into every text of a parsed document. It works on values, not on the file's
 * text, so a variable can never change the structure of the document.
 */
export function interpolate(value: unknown, env: NodeJS.ProcessEnv, path: string[] = []): unknown {
  if (typeof value === 'string') return fill(value, env, path)
  if (Array.isArray(value)) return value.map((item, index) => interpolate(item, env, [...path, String(index)]))
  if (typeof value === 'object' && value !== null) {
    return Object.fromEntries(
      Object.entries(value)
        .map(([key, item]) => [key, interpolate(item, env, [...path, key])] as const)
        // A variable that is set to nothing, or defaults to nothing, leaves the field out.
        .filter(([key, item]) => !(item === '' && typeof (value as Record<string, unknown>)[key] === 'string')),
    )
  }
  return value
}

function fill(text: string, env: NodeJS.ProcessEnv, path: string[]): string {
  return text.replaceAll(PLACEHOLDER, (_, variable: string, fallback: string | undefined) => {
    const found = Object.hasOwn(env, variable) ? env[variable] : undefined
    if (found !== undefined && found !== '') return found
    if (fallback !== undefined) return fallback
    throw new UsageError(`${path.join('.')}: the environment variable ${variable} is not set, and there is no default`)
  })
}

/* Variables of the environment that win over the file. */

export const VARIABLES: Record<string, string> = {
  'source.base_url': 'VISIBILITY_API_URL',
  'source.api_key': 'VISIBILITY_API_KEY',
  'warehouse.url': 'DATABASE_URL',
}

/** Settings that only the environment has. */
export const ONLY_VARIABLES = {
  VISIBILITY_TOKEN: 'token',
  METABASE_API_KEY: 'metabase.api_key',
  METABASE_USER: 'metabase.user',
  METABASE_PASSWORD: 'metabase.password',
  METABASE_DATABASE_URL: 'metabase.database_url',
  VISIBILITY_DISABLE: 'disabled',
  LOG_LEVEL: 'log_level',
  LOG_FORMAT: 'log_format',
} as const

export const DEFAULT_FILE = 'config/sync.yaml'

/** The configuration file, whether it exists or not. */
export function configFile(named: string | undefined, env: NodeJS.ProcessEnv = process.env): string {
  return named ?? (env.VISIBILITY_CONFIG?.trim() || DEFAULT_FILE)
}

export function given(variable: string, env: NodeJS.ProcessEnv = process.env): string | undefined {
  if (env[variable]?.trim()) return `variable ${variable}`
  return env[`${variable}_FILE`]?.trim() ? `the file that ${variable}_FILE names` : undefined
}

export function wantsColour(isTerminal: boolean, env: NodeJS.ProcessEnv = process.env): boolean {
  if (env.FORCE_COLOR !== undefined) return !['0', 'false'].includes(env.FORCE_COLOR)
  if (env.NO_COLOR !== undefined && env.NO_COLOR !== '') return false
  return isTerminal && env.TERM !== 'dumb'
}

/** The variables that a program of the system needs, and none of ours, which may be secret. */
export function systemEnvironment(env: NodeJS.ProcessEnv = process.env): NodeJS.ProcessEnv {
  const { PATH, HOME, TMPDIR, TZ, LD_LIBRARY_PATH } = env
  return { PATH, HOME, TMPDIR, TZ, LD_LIBRARY_PATH }
}
