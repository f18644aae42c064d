import { existsSync, readFileSync } from 'node:fs'
import { parseDocument } from 'yaml'
import type { z } from 'zod'
import { addDays, type Day, dayOf, isDay, type Range } from '../day.ts'
import { messageOf, UsageError } from '../errors.ts'
import { didYouMean } from '../similar.ts'
import { clip } from '../text.ts'
import { BASE_STREAMS, BI_VIEWS } from '../vocabulary.ts'
import { interpolate } from './interpolate.ts'
import { configSchema, type FileConfig } from './schema.ts'
import { settingLike } from './settings.ts'

export type { FileConfig, ReportConfig } from './schema.ts'

export interface Config extends FileConfig {
  /** Undefined where nobody asked for one. */
  log_level: string | undefined
  /** `auto` leaves it to the command: lines for people, or JSON where programs read them. */
  log_format: LogFormat
  /** The file that was read, or undefined where there was none. */
  file: string | undefined
  /** Things worth saying that are not errors. */
  warnings: string[]
  /** What opens the parts of the HTTP server that start work. */
  token: string | undefined
  /** Where and how to reach a Metabase. */
  metabase: {
    api_key: string | undefined
    user: string | undefined
    password: string | undefined
    database_url: string | undefined
  }
}

const DEFAULT_FILE = 'config/sync.yaml'
const LOG_FORMATS = ['auto', 'json', 'text'] as const
export type LogFormat = (typeof LOG_FORMATS)[number]
const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']
const START_DAYS_AGO = 90

/** Names that a report may not take: they belong to other tables or views of the schema. */
const RESERVED = new Set([
  ...BASE_STREAMS,
  ...['projects', 'project_profiles', 'brands', 'topics', 'tags', 'models', 'prompt_tags', 'prompt_suggestion_tags'],
  ...['url_classifications', 'calendar', 'weeks_compared', 'months_compared', ...BI_VIEWS],
])

/** Reads the configuration file and the environment; the environment wins. With terminal.ts this is the only reader of `process.env`. */
export function loadConfig(options: { file?: string | undefined; env?: NodeJS.ProcessEnv } = {}): Config {
  const env = options.env ?? process.env
  const named = options.file ?? nonEmpty(env.VISIBILITY_CONFIG)
  const file = named ?? (existsSync(DEFAULT_FILE) ? DEFAULT_FILE : undefined)
  const document = file === undefined ? { values: {}, warnings: [] } : readDocument(file, env)
  const config = parse(withEnvironment(document.values, env), file ?? 'the configuration', env)
  const level = oneOf(env, 'LOG_LEVEL', LOG_LEVELS)
  checkSense(config, file ?? 'the configuration')
  return {
    ...config,
    log_level: level,
    log_format: oneOf(env, 'LOG_FORMAT', LOG_FORMATS) ?? 'auto',
    file,
    warnings: document.warnings,
    token: fromEnvironment(env, 'VISIBILITY_TOKEN'),
    metabase: {
      api_key: fromEnvironment(env, 'METABASE_API_KEY'),
      user: nonEmpty(env.METABASE_USER),
      password: fromEnvironment(env, 'METABASE_PASSWORD'),
      database_url: fromEnvironment(env, 'METABASE_DATABASE_URL'),
    },
  }
}

function oneOf<T extends string>(env: NodeJS.ProcessEnv, name: string, allowed: readonly T[]): T | undefined {
  const text = nonEmpty(env[name])
  if (text === undefined) return undefined
  const found = allowed.find((value) => value === text)
  if (found !== undefined) return found
  throw new UsageError(`${name}: got "${clip(text, 40)}"; allowed: ${allowed.join(', ')}${didYouMean(text, allowed)}`)
}

/** The configuration of commands that need none: the defaults, whatever file and environment say. */
export function defaultConfig(): Config {
  return { ...configSchema.parse({}), ...OUTSIDE_THE_FILE }
}

const OUTSIDE_THE_FILE: Omit<Config, keyof FileConfig> = {
  log_level: undefined,
  log_format: 'auto',
  file: undefined,
  warnings: [],
  token: undefined,
  metabase: { api_key: undefined, user: undefined, password: undefined, database_url: undefined },
}

/** The file that settings are read from, whether it exists or not. */
export function configFile(named: string | undefined, env: NodeJS.ProcessEnv = process.env): string {
  return named ?? nonEmpty(env.VISIBILITY_CONFIG) ?? DEFAULT_FILE
}

/** The days of interest on a given day: from `start_date` (90 days ago) to `end_date` (today). */
export function daysOfInterest(config: Config, today: Day): Range {
  const to = config.end_date ?? today
  const from = config.start_date ?? addDays(to < today ? to : today, -START_DAYS_AGO)
  return { from, to }
}

/** Every value that must not be printed, for the logger's last line of defence. */
export function secretsOf(config: Config): string[] {
  const password = config.warehouse.url === undefined ? '' : new URL(config.warehouse.url).password
  return [
    config.source.api_key,
    ...config.projects.map((project) => project.api_key),
    password === '' ? undefined : config.warehouse.url,
    password,
    password === '' ? undefined : decoded(password),
    config.alerts.webhook_url,
    config.alerts.webhook_url === undefined ? undefined : new URL(config.alerts.webhook_url).href,
    config.token,
    config.metabase.api_key,
    config.metabase.password,
    config.metabase.database_url,
  ].filter((secret) => secret !== undefined && secret !== '') as string[]
}

/** A stray percent sign is part of the password as it stands. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === undefined || text.trim() === '' ? undefined : text.trim()
}

function readDocument(file: string, env: NodeJS.ProcessEnv): { values: Record<string, unknown>; warnings: string[] } {
  let text: string
  try {
    text = readFileSync(file, 'utf8')
  } catch (cause) {
    throw new UsageError(
      `${file}: cannot be read (${messageOf(cause)}); name another with --config or VISIBILITY_CONFIG`,
    )
  }
  const document = parseDocument(text, { uniqueKeys: true })
  const [problem] = document.errors
  if (problem !== undefined) throw new UsageError(`${file}: not valid YAML: ${problem.message.split('\n')[0]}`)
  const raw: unknown = document.toJS() ?? {}
  if (typeof raw !== 'object' || Array.isArray(raw))
    throw new UsageError(`${file}: must hold settings such as "projects:"`)
  const warnings = secretsWrittenIn(raw as Record<string, unknown>).map(
    (field) =>
      `${file}: ${field} is written in the file; a variable such as \${VISIBILITY_API_KEY} keeps it out of there`,
  )
  try {
    return { values: interpolate(raw, env) as Record<string, unknown>, warnings }
  } catch (error) {
    throw new UsageError(`${file}: ${messageOf(error)}`)
  }
}

function secretsWrittenIn(raw: Record<string, unknown>): string[] {
  const source = raw.source as { api_key?: unknown } | undefined
  const projects = Array.isArray(raw.projects) ? (raw.projects as ({ api_key?: unknown } | null)[]) : []
  const written = (value: unknown) => typeof value === 'string' && value !== '' && !value.includes('${')
  return [
    ...(written(source?.api_key) ? ['source.api_key'] : []),
    ...projects.flatMap((project, index) => (written(project?.api_key) ? [`projects.${index}.api_key`] : [])),
  ]
}

function withEnvironment(values: Record<string, unknown>, env: NodeJS.ProcessEnv): Record<string, unknown> {
  const merged = { ...values }
  const set = (section: string, field: string, value: string | undefined) => {
    if (value === undefined) return
    const present = merged[section]
    merged[section] = { ...(typeof present === 'object' ? present : {}), [field]: value }
  }
  set('source', 'base_url', nonEmpty(env.VISIBILITY_API_URL))
  set('source', 'api_key', fromEnvironment(env, 'VISIBILITY_API_KEY'))
  set('warehouse', 'url', fromEnvironment(env, 'DATABASE_URL'))
  const projects = nonEmpty(env.VISIBILITY_PROJECTS)
  // A wrong kind of list in the file is refused, not covered up.
  if (projects !== undefined && (merged.projects === undefined || Array.isArray(merged.projects))) {
    const ids = projects.split(',').map((id) => id.trim())
    const known = Array.isArray(merged.projects) ? (merged.projects as { id?: string }[]) : []
    merged.projects = ids.filter((id) => id !== '').map((id) => known.find((project) => project?.id === id) ?? { id })
  }
  return merged
}

/** A secret may be given in a variable, or in a file that NAME_FILE names (as container secrets are). */
function fromEnvironment(env: NodeJS.ProcessEnv, name: string): string | undefined {
  const direct = nonEmpty(env[name])
  const file = nonEmpty(env[`${name}_FILE`])
  if (direct !== undefined && file !== undefined)
    throw new UsageError(`${name} and ${name}_FILE are both set; set one of them`)
  if (file === undefined) return direct
  try {
    return nonEmpty(readFileSync(file, 'utf8'))
  } catch (cause) {
    throw new UsageError(`${name}_FILE: ${file} cannot be read (${messageOf(cause)})`)
  }
}

const VARIABLES: Record<string, string> = {
  'source.base_url': 'VISIBILITY_API_URL',
  'source.api_key': 'VISIBILITY_API_KEY',
  'warehouse.url': 'DATABASE_URL',
}

function parse(values: unknown, place: string, env: NodeJS.ProcessEnv): FileConfig {
  const result = configSchema.safeParse(values, { reportInput: true })
  if (result.success) return result.data
  // The environment wins over the file, so it is to blame where it was set.
  const origin = (issue: z.core.$ZodIssue) => {
    const variable = VARIABLES[issue.path.join('.')]
    return variable !== undefined && (env[variable] || env[`${variable}_FILE`]) ? variable : place
  }
  const problems = result.error.issues.flatMap((issue) => describe(issue).map((text) => `${origin(issue)}: ${text}`))
  throw new UsageError(problems.join('\n'))
}

function describe(issue: z.core.$ZodIssue): string[] {
  const path = issue.path.join('.')
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => {
      const meant = settingLike(issue.path, key)
      const hint = meant === undefined ? 'see docs/configuration.md for every setting' : `did you mean "${meant}"?`
      return `${path === '' ? key : `${path}.${key}`}: unknown; ${hint}`
    })
  }
  const value = shown(issue.input, path)
  const hint = issue.code === 'invalid_value' ? didYouMean(issue.input, issue.values.map(String)) : ''
  return [`${path === '' ? 'the whole file' : path}: got ${value}; allowed: ${issue.message}${hint}`]
}

/** Where a secret belongs, or may stand by mistake: a key in place of the section that should hold it. */
const SECRET = /(^|\.)(api_key|url|base_url|webhook_url)$|^(source|warehouse|alerts|projects)(\.\d+)?$/

/** A value for an error message: nothing that may be, or contain, a secret. */
function shown(input: unknown, path: string): string {
  if (input === undefined) return 'nothing'
  if (Array.isArray(input)) return 'a list'
  if (typeof input === 'object' && input !== null) return 'a group of settings'
  return SECRET.test(path) && typeof input === 'string' ? 'a text that is not shown' : clip(JSON.stringify(input), 80)
}

/** What no single field can tell. */
function checkSense(config: FileConfig, place: string): void {
  const fail = (message: string): never => {
    throw new UsageError(`${place}: ${message}`)
  }
  const { start_date, end_date } = config
  if (start_date !== undefined && end_date !== undefined && end_date < start_date) {
    fail(`end_date: got "${end_date}"; allowed: start_date (${start_date}) or later`)
  }
  if (start_date !== undefined && end_date === undefined && start_date > dayOf(new Date())) {
    fail(`start_date: got "${start_date}"; allowed: today (UTC) or earlier, unless end_date is set`)
  }
  const names = new Set<string>()
  for (const [index, report] of config.reports.entries()) {
    if (RESERVED.has(report.name))
      fail(`reports.${index}.name: got "${report.name}"; it is the name of another table or stream`)
    if (names.has(report.name))
      fail(`reports.${index}.name: got "${report.name}" a second time; allowed: each name once`)
    names.add(report.name)
  }
  const ids = config.projects.map((project) => project.id)
  const twice = ids.find((id, index) => ids.indexOf(id) !== index)
  if (new Set(ids).size !== ids.length)
    fail(`projects: got ${twice ?? 'a project without id'} twice; allowed: each project once`)
  if (ids.includes(undefined) && ids.length > 1) {
    fail('projects: a project without id is allowed only alone, with a project key: with several, each needs its id')
  }
  if (config.source.base_url !== undefined) {
    const missing = config.projects.find((project) => project.api_key === undefined)
    if (config.source.api_key === undefined && (config.projects.length === 0 || missing !== undefined)) {
      fail(
        'source.api_key: nothing is set; set VISIBILITY_API_KEY (or VISIBILITY_API_KEY_FILE) to the key of the service',
      )
    }
  }
}

/** A date from the command line. */
export function parseDay(text: string, option: string): Day {
  if (isDay(text)) return text
  throw new UsageError(`${option}: got "${clip(text, 40)}"; allowed: a real calendar date, YYYY-MM-DD`)
}
