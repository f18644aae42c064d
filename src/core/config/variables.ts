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

/** Whether output is coloured, by the conventions of NO_COLOR and FORCE_COLOR, of which the latter wins. */
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
