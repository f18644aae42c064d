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
