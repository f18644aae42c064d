import { existsSync, readFileSync } from 'node:fs'
import type { z } from 'zod'
import { addDays, type Day, dayOf, isDay, type Range } from '../day.ts'
import { codeOf, UsageError } from '../errors.ts'
import { createRedactor, type Redactor } from '../redactor.ts'
import { clip, count, didYouMean, isMisspelt } from '../text.ts'
import { BASE_STREAMS, BI_VIEWS, EXTRA_STREAMS } from '../vocabulary.ts'
import { chosenSource, REFERENCE } from './choose-source.ts'
import { describeIssue } from './describe-issue.ts'
import { type Variables, withEnvFile } from './env-file.ts'
import { type Explained, explain } from './explain.ts'
import { readDocument } from './read-document.ts'
import { channelTwins, configSchema, type FileConfig, type ReportConfig } from './schema.ts'
import { mayHoldSecret, refusePlainHttp, secretsIn, secretsOfAddress, shownText, textsIn } from './secrets.ts'
import { configFile, DEFAULT_FILE, ONLY_VARIABLES, PLACEHOLDER, VARIABLES } from './variables.ts'

export type { FileConfig, ReportConfig } from './schema.ts'

export interface Config extends FileConfig {
  reports: ReportConfig[]
  /** Undefined if nobody asked for one. */
  log_level: string | undefined
  /** `auto` leaves it to the command: lines for people, or JSON where programs read them. */
  log_format: LogFormat
  /** Parts of the fast path that are switched off, to find out whether one is to blame. */
  disabled: readonly FastPart[]
  file: string | undefined
  /** Things worth saying that are not errors. */
  warnings: string[]
  /** True while VISIBILITY_PROJECTS is "all" and the service has not been asked yet which projects there are. */
  all_projects: boolean
  token: string | undefined
  metabase: {
    api_key: string | undefined
    user: string | undefined
    password: string | undefined
    database_url: string | undefined
  }
  variables: Variables
  /** Knows every secret of this configuration; whatever leaves the program passes through it. */
  redactor: Redactor
}

interface LoadOptions {
  file?: string | undefined
  env?: NodeJS.ProcessEnv | undefined
  /** Gets every secret as soon as it is read, so that it can clean the errors of a configuration that is not valid. */
  redactor?: Redactor
}

/** The value of VISIBILITY_PROJECTS that asks for whatever the service lists. */
const ALL_PROJECTS = 'all'
const LOG_FORMATS = ['auto', 'json', 'text'] as const
type LogFormat = (typeof LOG_FORMATS)[number]
const FAST_PARTS = ['template-parser', 'window-digest'] as const
type FastPart = (typeof FAST_PARTS)[number]
const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']
const START_DAYS_AGO = 90
/** Variables that hold a secret, or an address with a password. */
const SECRET_VARIABLES = [
  ...['VISIBILITY_API_URL', 'VISIBILITY_API_KEY', 'DATABASE_URL', 'VISIBILITY_TOKEN', 'PGPASSWORD'],
  ...['METABASE_API_KEY', 'METABASE_PASSWORD', 'METABASE_DATABASE_URL'],
]

const ALL_VARIABLES = [
  ...['VISIBILITY_CONFIG', 'VISIBILITY_PROJECTS'],
  ...[...Object.values(VARIABLES), ...Object.keys(ONLY_VARIABLES)],
  ...SECRET_VARIABLES.map((name) => `${name}_FILE`),
]
const OUR_VARIABLES = ALL_VARIABLES.filter((name) => name.startsWith('VISIBILITY_'))

/** Names that a report may not take: they belong to other tables or views of the schema. */
const RESERVED = new Set([
  ...[...BASE_STREAMS, ...EXTRA_STREAMS, ...BI_VIEWS],
  ...['project_profiles', 'models', 'prompt_tags', 'prompt_suggestion_tags', 'chat_contents'],
  ...['prompt_history', 'brand_history'],
])

/** Reads the configuration file, `.env` and the environment, which wins. Only core/config reads `process.env`. */
export function loadConfig({ file, env = process.env, redactor = createRedactor() }: LoadOptions = {}): Config {
  const variables = learnVariables(redactor, env, file)
  const named = file ?? nonEmpty(env.VISIBILITY_CONFIG)
  const hints: string[] = []
  try {
    return read(named ?? (existsSync(DEFAULT_FILE) ? DEFAULT_FILE : undefined), variables, redactor, hints)
  } catch (error) {
    if (!(error instanceof UsageError)) throw error
    throw new UsageError(redactor.text([error.message, ...hints].join('\n')))
  }
}

/** Collects the secrets of all variables, whether or not the rest of the configuration can be read. */
export function learnVariables(redactor: Redactor, env: NodeJS.ProcessEnv = process.env, file?: string): Variables {
  const learn = (from: NodeJS.ProcessEnv) => {
    for (const name of SECRET_VARIABLES) redactor.add(secretsOfVariable(name, nonEmpty(from[name])))
  }
  learn(env)
  const variables = withEnvFile(configFile(file, env), env)
  learn(variables.env)
  return variables
}

function secretsOfVariable(name: string, value: string | undefined): string[] {
  if (value === undefined) return []
  return name.endsWith('_URL') ? secretsOfAddress(value) : [value]
}

export function defaultConfig(): Config {
  return read(undefined, { env: {}, file: '', fromFile: new Set() }, createRedactor(), [])
}

function read(file: string | undefined, variables: Variables, redactor: Redactor, hints: string[]): Config {
  const { env } = variables
  const document = file === undefined ? { written: {}, values: {}, warnings: [] } : readDocument(file, env, redactor)
  hints.push(...unknownVariables(env, document.written))
  const secrets: string[] = []
  const learn = (more: string[]) => {
    secrets.push(...more)
    redactor.add(more)
  }
  const fromEnv = (name: string) => {
    const secret = fromEnvironment(env, name)
    learn(secretsOfVariable(name, secret))
    return secret
  }
  const token = fromEnv('VISIBILITY_TOKEN')
  refuseShortToken(token)
  const metabase = {
    api_key: fromEnv('METABASE_API_KEY'),
    user: nonEmpty(env.METABASE_USER),
    password: fromEnv('METABASE_PASSWORD'),
    database_url: fromEnv('METABASE_DATABASE_URL'),
  }
  const merged = withEnvironment(document.values, env, fromEnv)
  learn(secretsIn(merged))
  const origin = file ?? 'the configuration'
  const config = parse(merged, document.written, origin, env)
  const level = oneOf('LOG_LEVEL', nonEmpty(env.LOG_LEVEL), LOG_LEVELS)
  const projects = nonEmpty(env.VISIBILITY_PROJECTS)
  checkSense(config, origin, projects === undefined ? origin : 'VISIBILITY_PROJECTS')
  const isAll = projects === ALL_PROJECTS
  if (isAll && config.source.api_key === undefined && chosenSource(config)?.kind === 'service')
    throw new UsageError('VISIBILITY_API_KEY: nothing is set; VISIBILITY_PROJECTS=all needs a key that lists projects')
  refuseStraySecrets(config, secrets, origin)
  return {
    ...config,
    reports: config.extras === 'auto' ? [...config.reports, ...channelTwins(config.reports)] : config.reports,
    log_level: level,
    log_format: oneOf('LOG_FORMAT', nonEmpty(env.LOG_FORMAT), LOG_FORMATS) ?? 'auto',
    disabled: listed(env.VISIBILITY_DISABLE).map((name) => oneOf('VISIBILITY_DISABLE', name, FAST_PARTS)!),
    file,
    warnings: [...document.warnings, ...hints],
    all_projects: isAll,
    token,
    metabase,
    variables,
    redactor,
  }
}

function oneOf<T extends string>(name: string, text: string | undefined, allowed: readonly T[]): T | undefined {
  const found = allowed.find((value) => value === text)
  if (text === undefined || found !== undefined) return found
  throw new UsageError(
    `${name}: got ${shownText(text, 40)}; allowed: ${allowed.join(', ')}${didYouMean(text, allowed)}`,
  )
}

/** Container platforms set variables with the name of a service, which is likely to begin like ours. */
const OF_A_CLUSTER = /_(SERVICE_HOST|SERVICE_PORT.*|PORT(_.*)?)$/

/** A misspelt variable would be ignored silently. Names that the file mentions are the user's own. */
function unknownVariables(env: NodeJS.ProcessEnv, written: unknown): string[] {
  const own = [...textsIn(written)].flatMap(({ text }) => [...text.matchAll(PLACEHOLDER)].map(([, name]) => name!))
  const known = new Set([...ALL_VARIABLES, ...own])
  return Object.keys(env).flatMap((name) => {
    if (known.has(name) || OF_A_CLUSTER.test(name)) return []
    const isOurs = name.startsWith('VISIBILITY_')
    // Other programs have variables of their own, so fewer letters may differ, and only of long names.
    const isMeant = (other: string) => other.length > 10 && !env[other] && isMisspelt(name, other)
    const meant = isOurs ? OUR_VARIABLES : ALL_VARIABLES.filter(isMeant)
    const hint = didYouMean(name, meant)
    return isOurs || hint !== '' ? [`${clip(name, 60)}: unknown variable, ignored${hint}`] : []
  })
}

/** Every setting as it was understood, and where it came from; nothing of it is secret. */
export function explainConfig({ variables, ...config }: Config): Explained[] {
  const { env, file, fromFile } = variables
  const written = config.file === undefined ? {} : readDocument(config.file, env, config.redactor).written
  const withFile = (name: string) => (fromFile.has(name) ? `${name} (${file})` : name)
  return explain(config, written, env).map((row) => ({ ...row, from: row.from.replace(/\w+/g, withFile) }))
}

export function daysOfInterest(config: Config, today: Day): Range {
  const to = config.end_date ?? today
  const usual = addDays(to < today ? to : today, -START_DAYS_AGO)
  const from = config.start_date ?? (usual < config.earliest_date ? config.earliest_date : usual)
  return { from, to }
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === undefined || text.trim() === '' ? undefined : text.trim()
}

/** The parts of a text that commas separate. */
function listed(text = ''): string[] {
  const parts = text.split(',').map((part) => part.trim())
  return parts.filter((part) => part !== '')
}

function withEnvironment(
  values: Record<string, unknown>,
  env: NodeJS.ProcessEnv,
  fromEnv: (name: string) => string | undefined,
): Record<string, unknown> {
  const merged = { ...values }
  const set = (section: string, field: string, value: string | undefined) => {
    if (value === undefined) return
    const present = merged[section] ?? {}
    // A wrong kind of section in the file is refused, not covered up.
    if (typeof present === 'object' && !Array.isArray(present)) merged[section] = { ...present, [field]: value }
  }
  set('source', 'base_url', nonEmpty(env.VISIBILITY_API_URL))
  set('source', 'api_key', fromEnv('VISIBILITY_API_KEY'))
  set('warehouse', 'url', fromEnv('DATABASE_URL'))
  const projects = nonEmpty(env.VISIBILITY_PROJECTS)
  // A wrong kind of list in the file is refused, not covered up.
  if (projects !== undefined && (merged.projects === undefined || Array.isArray(merged.projects))) {
    const ids = listed(projects)
    // The service lists these projects. The file may hold keys for some of them.
    if (projects === ALL_PROJECTS) return merged
    if (ids.includes(ALL_PROJECTS))
      throw new UsageError(
        `VISIBILITY_PROJECTS: got "${ALL_PROJECTS}" among ids; allowed: "${ALL_PROJECTS}" alone, or ids`,
      )
    const known = Array.isArray(merged.projects) ? (merged.projects as { id?: string }[]) : []
    merged.projects = ids.map((id) => known.find((project) => project?.id === id) ?? { id })
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
    throw new UsageError(`${name}_FILE: ${shownPath(file)} cannot be read (${codeOf(cause) ?? 'not a file'})`)
  }
}

// Whoever reaches the pages may guess.
const SHORTEST_TOKEN = 16

function refuseShortToken(token: string | undefined): void {
  if (token === undefined || token.length >= SHORTEST_TOKEN) return
  throw new UsageError(
    `VISIBILITY_TOKEN: got ${count(token.length, 'character')}; allowed: at least ${SHORTEST_TOKEN}, as "openssl rand -hex 24" prints them`,
  )
}

/** People may write the secret itself where the name of its file belongs. */
function shownPath(path: string): string {
  return /^\.{0,2}\/[^:@]*$/.test(path) ? path : 'a path that is not shown'
}

function parse(values: unknown, written: unknown, origin: string, env: NodeJS.ProcessEnv): FileConfig {
  const result = configSchema.safeParse(values, { reportInput: true })
  if (result.success) return result.data
  // The environment wins over the file, so the problem is there if it was set.
  const blamed = (issue: z.core.$ZodIssue) => {
    const isProject = issue.path[0] === 'projects' && issue.path[2] === 'id'
    const variable = isProject ? 'VISIBILITY_PROJECTS' : VARIABLES[issue.path.join('.')]
    return variable !== undefined && (env[variable] || env[`${variable}_FILE`]) ? variable : undefined
  }
  const lines = result.error.issues.flatMap((issue) => {
    const variable = blamed(issue)
    const problems = describeIssue(issue, variable === undefined ? written : undefined)
    return problems.map((problem) => `${variable ?? origin}: ${problem}`)
  })
  throw new UsageError(lines.join('\n'))
}

/** A secret in any other setting, through an alias or a variable, would end up in a table, a page or a request. */
function refuseStraySecrets(config: FileConfig, secrets: readonly string[], origin: string): void {
  for (const { path, text } of textsIn(config)) {
    const own = new Set(mayHoldSecret(path) ? [text, ...secretsIn({ [path.at(-1)!]: text })] : [])
    const isStray = (part: string) =>
      secrets.some(
        (secret) =>
          !own.has(secret) &&
          ((part === secret && secret.length >= 8) || (secret.length >= 16 && part.includes(secret))),
      )
    if ([...path, text].some(isStray))
      throw new UsageError(`${origin}: ${path.join('.')}: holds a secret of another setting; allowed: no secret`)
  }
}

type Fail = (message: string, blamed?: string) => never

/** Checks that concern more than one field. */
function checkSense(config: FileConfig, origin: string, originOfProjects: string): void {
  const fail: Fail = (message, blamed = origin) => {
    throw new UsageError(`${blamed}: ${message}`)
  }
  checkDates(config, fail)
  if (config.chat_contents !== undefined && !config.streams.includes('chats'))
    fail('chat_contents: needs the stream chats, which is not in streams')
  checkNames(config, fail)
  for (const { path, text } of textsIn(config)) {
    if (path.at(-1)!.endsWith('url') && !carriesNoSecret(config, path.join('.'), text))
      refusePlainHttp(text, `${origin}: ${path.join('.')}`, config.allow_http)
  }
  checkMail(config, fail)
  checkProjects(config, (message) => fail(message, originOfProjects))
  checkKeys(config, fail)
}

function checkDates(config: FileConfig, fail: Fail): void {
  const { start_date, end_date, earliest_date } = config
  const today = dayOf(new Date())
  for (const name of ['start_date', 'end_date'] as const) {
    const day = config[name]
    if (day !== undefined && day < earliest_date) fail(`${name}: ${tooEarly(day, earliest_date)}`)
  }
  if (start_date !== undefined && end_date !== undefined && end_date < start_date)
    fail(`end_date: got "${end_date}"; allowed: start_date (${start_date}) or later`)
  for (const name of ['earliest_date', 'start_date'] as const) {
    if ((config[name] ?? today) > today)
      fail(`${name}: got "${config[name]}"; allowed: today (${today}, UTC, by the clock of this machine) or earlier`)
  }
}

function checkNames(config: FileConfig, fail: Fail): void {
  const names = new Set<string>()
  for (const list of ['reports', 'custom_streams'] as const) {
    for (const [index, { name }] of config[list].entries()) {
      const got = `${list}.${index}.name: got "${name}"`
      if (RESERVED.has(name)) fail(`${got}; it is the name of another table or stream`)
      if (names.has(name)) fail(`${got} a second time; allowed: each name once`)
      names.add(name)
    }
  }
}

function checkMail({ alerts }: FileConfig, fail: Fail): void {
  const { smtp_url, smtp_password, email_to } = alerts
  if (smtp_url !== undefined && email_to.length === 0) fail('alerts.email_to: nothing is set; set who gets the e-mails')
  if (smtp_url === undefined && (email_to.length > 0 || smtp_password !== undefined))
    fail('alerts.smtp_url: nothing is set; set the mail server, such as smtp://user@mail.example.com:587')
}

function checkProjects({ projects }: FileConfig, fail: Fail): void {
  const ids = projects.map(({ id }) => id)
  const twice = ids.find((id, index) => ids.indexOf(id) !== index)
  if (new Set(ids).size !== ids.length)
    fail(`projects: got ${twice ?? 'a project without id'} twice; allowed: each project once`)
  if (ids.includes(undefined) && ids.length > 1)
    fail('projects: a project without id is allowed only alone, with a project key: with several, each needs its id')
}

function checkKeys({ source, projects }: FileConfig, fail: Fail): void {
  if (source.base_url === undefined || source.base_url === REFERENCE || source.api_key !== undefined) return
  if (projects.length === 0 || projects.some(({ api_key }) => api_key === undefined))
    fail(
      'source.api_key: nothing is set; set VISIBILITY_API_KEY (or VISIBILITY_API_KEY_FILE) to the key of the service',
    )
}

/** Over these addresses go numbers and names of tables, and no key: inside a cluster they are plain http as a rule. */
function carriesNoSecret({ lineage }: FileConfig, setting: string, address: string): boolean {
  if (!['metrics.push_url', 'alerts.page_url', 'lineage.url'].includes(setting)) return false
  const { username, password } = new URL(address)
  return username === '' && password === '' && !(setting === 'lineage.url' && lineage.api_key !== undefined)
}

/** A year that was mistyped would be thousands of requests. */
function tooEarly(day: Day, earliest: Day): string {
  return `got "${day}"; allowed: ${earliest} (earliest_date) or later`
}

export function parseFirstDay(text: string, option: string, { earliest_date }: FileConfig): Day {
  const day = parseDay(text, option)
  if (day < earliest_date) throw new UsageError(`${option}: ${tooEarly(day, earliest_date)}`)
  return day
}

export function parseDay(text: string, option: string): Day {
  if (isDay(text)) return text
  throw new UsageError(`${option}: got ${shownText(text, 40)}; allowed: a real calendar date, YYYY-MM-DD`)
}
