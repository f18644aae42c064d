import cron from 'node-cron'
import * as z from 'zod'
import { isDay } from '../day.ts'
import { IDENTIFIER, IDENTIFIER_RULE } from '../identifier.ts'
import { grouped } from '../text.ts'
import {
  BASE_STREAMS,
  COMPARISONS,
  DIMENSIONS,
  EXTRA_STREAMS,
  FILTER_FIELDS,
  FILTER_OPERATORS,
  PAGE_LIMIT_MAX,
  REPORT_SUBJECTS,
} from '../vocabulary.ts'

/* Each `error` says what is allowed; the loader adds the field and the value in front of it. */

const matching = (pattern: RegExp, error: string) => z.string({ error }).regex(pattern, { error })
const passing = (isValid: (text: string) => boolean, error: string | ((issue: { input?: unknown }) => string)) =>
  z.string({ error }).refine(isValid, { error })
const listOf = <S extends z.ZodType>(item: S, error: string) => z.array(item, { error }).min(1, { error })
const flag = z.boolean({ error: 'true or false' })
const day = passing(isDay, 'a real calendar date, YYYY-MM-DD')

/** Settings with defaults, so that the group may be left out. */
function group<S extends z.ZodRawShape>(shape: S) {
  return z.strictObject(shape).prefault({} as never)
}

/** Numbers filled in from the environment arrive as text. */
function wholeNumber(from: number, to: number) {
  const error = `a whole number from ${grouped(from)} to ${grouped(to)}`
  return z.preprocess(
    (value) => (typeof value === 'string' && /^\d+$/.test(value) ? Number(value) : value),
    z.int({ error }).min(from, { error }).max(to, { error }),
  )
}

function oneOf<const T extends readonly string[]>(values: T) {
  return z.enum(values, { error: `one of ${values.join(', ')}` })
}

// The lookbehind keeps the time linear.
const withoutEndSlashes = (text: string) => text.replace(/(?<!\/)\/+$/, '')
const webAddress = z.url({ protocol: /^https?$/, error: 'an http:// or https:// address' }).transform(withoutEndSlashes)
const ADDRESS =
  'an http:// or https:// address that ends in the version, such as https://api.example.com/v1, or "reference"'
const baseUrl = z
  .string({ error: ADDRESS })
  .transform(withoutEndSlashes)
  .refine((text) => text === 'reference' || (/^https?:\/\/.*\/v\d+$/.test(text) && URL.canParse(text)), {
    error: ADDRESS,
  })
// The last one is not one of libpq, but of pg.
const SSL_MODES = ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full', 'no-verify']
const DATABASE = 'a postgres:// connection string, or "embedded"'
const databaseUrl = z
  .string({ error: DATABASE })
  .refine((text) => text === 'embedded' || /^postgres(ql)?:\/\//.test(text), { error: DATABASE, abort: true })
  .refine((text) => text === 'embedded' || isWellEscaped(text), {
    error: 'a postgres:// connection string; escape the password: percent-encode @ : / ? # as %40 %3A %2F %3F %23',
  })
  .refine(hasKnownSslMode, { error: `a postgres:// connection string with sslmode one of ${SSL_MODES.join(', ')}` })
const secret = z.string({ error: 'a text' }).min(1, { error: 'a text that is not empty' }).max(4096)
const projectId = matching(/^[\w.:-]{1,255}$/, 'a project id such as or_…: letters, digits, "_", "-", "." or ":"')
const cronText = passing(cron.validate, ({ input }) => `a cron expression such as "15 * * * *"${cronProblem(input)}`)
const timeZone = passing(isTimeZone, 'a time zone such as UTC or Europe/Berlin')

const CRON_FIELDS = ['second', 'minute', 'hour', 'day of the month', 'month', 'day of the week']

/** Which fields are wrong. The text itself may be a secret in the wrong place. */
function cronProblem(input: unknown): string {
  const given = typeof input === 'string' ? input.trim().split(/\s+/) : []
  if (given.length !== 5 && given.length !== 6) return ': five fields, or six with seconds'
  const fields = CRON_FIELDS.slice(-given.length)
  const wrong = fields.filter(
    (_, at) => !cron.validate(fields.map((_, other) => (other === at ? given[at] : '*')).join(' ')),
  )
  return wrong.length > 0 ? `; wrong: ${wrong.join(', ')}` : '; this one never fires: none of its months has such a day'
}

/**
 * A "/", "?" or "#" in a password ends the host for a parser of the address: what should be the password is then
 * taken for a host, a port or a database, and shown as such. An "@" behind the host gives that away.
 */
function isWellEscaped(text: string): boolean {
  if (!URL.canParse(text)) return false
  const { pathname, search, hash } = new URL(text)
  return hash === '' && !pathname.includes('@') && !search.includes('@')
}

/** pg takes any other value for verify-full. */
function hasKnownSslMode(text: string): boolean {
  if (!URL.canParse(text)) return true
  return new URL(text).searchParams.getAll('sslmode').every((mode) => SSL_MODES.includes(mode))
}

function isTimeZone(text: string): boolean {
  if (text === 'UTC') return true
  try {
    return new Intl.DateTimeFormat('en', { timeZone: text }).resolvedOptions().timeZone !== ''
  } catch {
    return false
  }
}

const filter = z.strictObject({
  field: oneOf(FILTER_FIELDS).refine((field) => field !== 'brand_id', {
    error:
      'a filter on another field: a brand_id filter shrinks the denominator of share_of_voice, so every share would be ' +
      'wrong; use `having`, which selects brands after the sums are made',
  }),
  operator: oneOf(FILTER_OPERATORS),
  values: listOf(z.string().min(1), 'a list with at least one value'),
})

const having = z.union(
  [
    z.strictObject({
      field: oneOf(FILTER_FIELDS),
      operator: z.literal('in'),
      values: z.array(z.string().min(1)).min(1),
    }),
    z.strictObject({ field: z.string().regex(/^[a-z_]+$/), operator: oneOf(COMPARISONS), value: z.number() }),
  ],
  {
    error:
      'a condition such as { field: brand_id, operator: in, values: [kw_1] } or { field: mention_count, operator: gte, value: 5 }',
  },
)

const report = z.strictObject({
  name: matching(IDENTIFIER, `a safe table name: ${IDENTIFIER_RULE}`),
  of: oneOf(REPORT_SUBJECTS).optional(),
  dimensions: z
    .array(oneOf(DIMENSIONS), { error: `a list of dimensions: ${DIMENSIONS.join(', ')}` })
    .refine((dimensions) => dimensions.includes('date'), { error: 'a list with the dimension date in it' })
    .refine((dimensions) => new Set(dimensions).size === dimensions.length, { error: 'each dimension once' }),
  filters: z.array(filter).default([]),
  having: listOf(having, 'a list with at least one condition').optional(),
})
export type ReportConfig = z.infer<typeof report> & {
  /** Set for a report that nobody configured: the twin by channel of a default report by model. */
  isTwin?: true
}

/** Enough to answer the twelve questions that docs/reference/questions.md lists. */
export const DEFAULT_REPORTS: ReportConfig[] = [
  { name: 'brand_daily', dimensions: ['date'], filters: [] },
  { name: 'brand_daily_by_model', dimensions: ['date', 'model_id'], filters: [] },
  { name: 'brand_daily_by_channel', dimensions: ['date', 'model_channel_id'], filters: [] },
  { name: 'brand_daily_by_topic', dimensions: ['date', 'topic_id'], filters: [] },
  { name: 'brand_daily_by_tag', dimensions: ['date', 'tag_id'], filters: [] },
  { name: 'brand_daily_by_country', dimensions: ['date', 'country_code'], filters: [] },
  { name: 'brand_daily_by_topic_model', dimensions: ['date', 'topic_id', 'model_id'], filters: [] },
  { name: 'brand_daily_by_prompt_model', dimensions: ['date', 'prompt_id', 'model_id'], filters: [] },
]

/**
 * Reports by channel beside default ones by model: a channel stays the same when the model behind it changes. Only
 * `extras: auto` reads them, because not every service has channels.
 */
export function channelTwins(reports: readonly ReportConfig[]): ReportConfig[] {
  return reports.flatMap((one) => {
    const isDefault = DEFAULT_REPORTS.some(
      ({ name, dimensions }) => name === one.name && dimensions.join() === one.dimensions.join(),
    )
    const twin: ReportConfig = {
      name: one.name.replace('model', 'channel'),
      dimensions: one.dimensions.map((name) => (name === 'model_id' ? 'model_channel_id' : name)),
      filters: [],
      isTwin: true,
    }
    const isThere = reports.some(({ name }) => name === twin.name)
    return isDefault && one.dimensions.includes('model_id') && one.filters.length === 0 && !isThere ? [twin] : []
  })
}

const EXTRAS = `off, auto, or a list of ${EXTRA_STREAMS.join(', ')}`
const KEEP = 'true, false, or a list of streams'
const FROM_0_TO_1 = 'a share from 0 to 1'
const SHARE = 'a share of the chats above 0, up to 1'
const HOST_NAME = 'a host name such as status.example.com, without scheme and port'
const hostName = matching(/^[\w-]+(\.[\w-]+)*\.?$/, HOST_NAME)
const MAIL_ADDRESS = 'an e-mail address such as oncall@example.com, or "A name <oncall@example.com>"'
const mailAddress = matching(/^(?:[^<>@\r\n]*<[^<>@\s]+@[^<>@\s]+>|[^<>@\s]+@[^<>@\s]+)$/, MAIL_ADDRESS)
const mailServer = passing(
  (text) => /^smtps?:\/\//.test(text) && URL.canParse(text) && new URL(text).hostname !== '',
  'the address of a mail server such as smtp://user@mail.example.com:587, without the password',
)

/** `status` derives the lookback that is needed from the restatements of so many days. */
const LOOKBACK_EVIDENCE_DAYS = 60

const name = z.string({ error: 'a name' }).min(1, { error: 'a name that is not empty' })

function byId<S extends z.ZodType>(label: S) {
  return z
    .preprocess(
      (value, context) => {
        // zod drops this one silently.
        if (typeof value === 'object' && value !== null && Object.hasOwn(value, '__proto__')) {
          context.addIssue({ code: 'custom', message: 'ids other than __proto__', input: '__proto__' })
        }
        return value
      },
      z.record(z.string(), label),
    )
    .default({})
}

/* Streams that a person defines: names, paths and types. There are no expressions, so nothing of it is ever run. */

const COLUMNS = 'a list of 1 to 100 columns'
/** Columns that every table has, or may have, besides those that are defined. */
const TAKEN = ['project_id', 'changed_at', 'first_seen_at', 'removed_at', 'listed_at']

const identifier = (what: string) => matching(IDENTIFIER, `${what}: ${IDENTIFIER_RULE}`)
const about = (what: string) => z.string({ error: what }).min(1).max(500).optional()
const PATH = 'a path below the address of the service, such as reports/shopping'
const FIELD = 'the path of a field in an item, such as id or brand.id'

const column = z.strictObject({
  name: identifier('a safe column name').refine((name) => !TAKEN.includes(name), {
    error: `a name other than ${TAKEN.join(', ')}, which are made by themselves`,
  }),
  path: matching(/^[A-Za-z_]\w*(\.[A-Za-z_]\w*){0,4}$/, FIELD)
    .max(200, { error: FIELD })
    .refine((path) => !/(^|\.)(__proto__|constructor|prototype)(\.|$)/.test(path), { error: FIELD }),
  type: oneOf(['text', 'number', 'boolean', 'json', 'date']),
  about: about('what it means, for the comment of the column'),
})

const customStream = z
  .strictObject({
    name: identifier('a safe table name'),
    about: about('what it holds, for the comment of the table'),
    path: matching(/^[\w-]+(\/[\w-]+)*$/, PATH).max(200, { error: PATH }),
    method: oneOf(['GET', 'POST']).default('GET'),
    by: oneOf(['list', 'day']),
    dimensions: z.array(oneOf(DIMENSIONS)).default([]),
    columns: listOf(column, COLUMNS).max(100, { error: COLUMNS }),
    key: listOf(z.string(), 'the columns that identify a row, at least one'),
    adds: z.array(z.string()).default([]),
  })
  .superRefine((stream, context) => {
    for (const [path, input, message] of [...problemsOfColumns(stream), ...problemsOfRoles(stream)])
      context.addIssue({ code: 'custom', path: [path], input, message })
  })
export type CustomStreamConfig = z.infer<typeof customStream>

type Problem = [path: string, input: unknown, message: string]

function* problemsOfColumns({ columns, by, key }: CustomStreamConfig): Generator<Problem> {
  if (new Set(columns.map(({ name }) => name)).size < columns.length) yield ['columns', columns, 'each column once']
  for (const { path } of columns.filter(({ type }) => type !== 'json')) {
    if (columns.some((other) => other.path.startsWith(`${path}.`)))
      yield ['columns', path, 'a field with parts has the type json']
  }
  const isDated = columns.some(({ name, type }) => name === 'date' && type === 'date') && key.includes('date')
  if (by === 'day' && !isDated)
    yield ['columns', 'no date', 'a stream by day has a column date of type date, which is in its key']
}

function* problemsOfRoles(stream: CustomStreamConfig): Generator<Problem> {
  const { key, adds, dimensions } = stream
  const typeOf = new Map(stream.columns.map(({ name, type }) => [name, type]))
  for (const list of ['key', 'adds', 'dimensions'] as const) {
    if (new Set(stream[list]).size < stream[list].length) yield [list, stream[list], 'each column once']
  }
  for (const name of key) {
    if (!['text', 'date'].includes(typeOf.get(name) ?? '')) yield ['key', name, 'columns of type text or date']
  }
  for (const name of adds) {
    if (typeOf.get(name) !== 'number' || key.includes(name))
      yield ['adds', name, 'columns of type number that are not in the key']
  }
  if (dimensions.length > 0 && stream.method === 'GET')
    yield ['dimensions', dimensions, 'dimensions only with the method POST']
  for (const name of dimensions) {
    if (!typeOf.has(name) || !key.includes(name))
      yield ['dimensions', name, 'dimensions that are columns of the same name and in the key']
  }
}

export const configSchema = z.strictObject({
  source: group({
    base_url: baseUrl.optional(),
    api_key: secret.optional(),
    requests_per_minute: wholeNumber(1, 100_000).default(200),
    page_limit: wholeNumber(2, PAGE_LIMIT_MAX).default(PAGE_LIMIT_MAX),
    concurrency: wholeNumber(1, 64).default(4),
    timeout_seconds: wholeNumber(1, 3600).default(60),
    max_window_days: wholeNumber(1, 100_000).default(100_000),
    max_attempts: wholeNumber(1, 100).default(6),
    patience_seconds: wholeNumber(1, 3600).default(60),
    run_minutes: wholeNumber(1, 30_000).default(720),
    max_response_mb: wholeNumber(1, 1024).default(64),
    compress: flag.default(true),
  }),
  warehouse: group({
    url: databaseUrl.optional(),
    schema: matching(IDENTIFIER, `a safe schema name: ${IDENTIFIER_RULE}`)
      .refine((text) => !text.startsWith('pg_'), { error: 'a name that does not start with pg_' })
      .default('visibility'),
    partition: oneOf(['none', 'month']).default('none'),
    allow_foreign_owner: flag.default(false),
    patience_seconds: wholeNumber(1, 86_400).default(120),
  }),
  allow_http: flag.default(false),
  queue: group({ mode: oneOf(['none', 'pg-boss']).default('none') }),
  projects: z.array(z.strictObject({ id: projectId.optional(), api_key: secret.optional() })).default([]),
  earliest_date: day.default('2020-01-01'),
  start_date: day.optional(),
  end_date: day.optional(),
  lookback_days: wholeNumber(0, 3650).default(7),
  reconcile: group({ history_hours: wholeNumber(0, 8760).default(24), ignore: z.array(z.string()).default([]) }),
  max_bad_share: z.number({ error: FROM_0_TO_1 }).min(0).max(1, { error: FROM_0_TO_1 }).default(0.05),
  streams: z
    .array(oneOf([...BASE_STREAMS, ...EXTRA_STREAMS]))
    .refine((streams) => new Set(streams).size === streams.length, { error: 'each stream once' })
    .default([...BASE_STREAMS]),
  extras: z.union([z.literal(['off', 'auto']), z.array(oneOf(EXTRA_STREAMS))], { error: EXTRAS }).default('auto'),
  reports: z.array(report).default(DEFAULT_REPORTS),
  keep_unknown_fields: z.union([z.boolean(), z.array(z.string())], { error: KEEP }).default(false),
  custom_streams: z.array(customStream).default([]),
  chat_contents: z
    .strictObject({
      share: z.number({ error: SHARE }).gt(0, { error: SHARE }).max(1, { error: SHARE }).optional(),
      prompts: listOf(z.string().min(1).max(255), 'a list of ids of prompts, at least one').optional(),
      requests_per_day: wholeNumber(1, 1_000_000).default(200),
    })
    .refine(({ share, prompts }) => share !== undefined || prompts !== undefined, { error: 'share, prompts, or both' })
    .optional(),
  schedule: group({
    cron: cronText.default('15 * * * *'),
    timezone: timeZone.default('UTC'),
    audit_cron: cronText.default('40 3 * * *'),
    jitter_seconds: wholeNumber(0, 3600).default(0),
  }),
  serve: group({
    host: z.string({ error: 'an address to listen on' }).min(1).default('127.0.0.1'),
    port: wholeNumber(0, 65_535).default(8080),
    hosts: z.array(hostName, { error: `a list: ${HOST_NAME}` }).default([]),
    max_staleness: matching(/^\d{1,5}[mhd]$/, 'a number of minutes, hours or days, as 90m, 26h or 2d').default('26h'),
    grace_seconds: wholeNumber(1, 3600).default(25),
  }),
  mcp: group({ database_url: databaseUrl.optional() }),
  labels: group({
    brands: byId(z.strictObject({ own: flag.optional(), name: name.optional() })),
    topics: byId(name),
    tags: byId(name),
  }),
  alerts: group({
    webhook_url: webAddress.optional(),
    slack_url: webAddress.optional(),
    pagerduty_key: secret.optional(),
    pagerduty_url: webAddress.default('https://events.pagerduty.com/v2/enqueue'),
    smtp_url: mailServer.optional(),
    smtp_password: secret.optional(),
    email_from: mailAddress.optional(),
    email_to: z.array(mailAddress, { error: `a list: ${MAIL_ADDRESS}` }).default([]),
    page_url: webAddress.optional(),
    quiet_minutes: wholeNumber(0, 10_080).default(60),
    ping_url: webAddress.optional(),
  }),
  metrics: group({
    push_url: webAddress.optional(),
    textfile: matching(/.\.prom$/, 'the path of a file that ends in .prom').optional(),
  }),
  lineage: group({
    url: webAddress.optional(),
    api_key: secret.optional(),
    file: z.string({ error: 'the path of a file' }).min(1, { error: 'the path of a file' }).optional(),
    namespace: name.default('visibility-sync'),
  }),
  retention: group({
    runs_days: wholeNumber(7, 36_500).default(180),
    restatements_days: wholeNumber(LOOKBACK_EVIDENCE_DAYS, 36_500).default(90),
    quarantine_days: wholeNumber(1, 36_500).default(90),
    creations_days: wholeNumber(7, 36_500).default(365),
    queue_days: wholeNumber(1, 36_500).default(30),
    logs_days: wholeNumber(1, 36_500).default(30),
  }),
})
export type FileConfig = z.infer<typeof configSchema>
