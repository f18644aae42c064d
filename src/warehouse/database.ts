import {
  CompiledQuery,
  type Expression,
  type Generated,
  IdentifierNode,
  Kysely,
  PostgresDialect,
  PostgresQueryCompiler,
  type RawBuilder,
  type RawNode,
  type RootOperationNode,
  type SchemableIdentifierNode,
  type SqlBool,
  sql,
} from 'kysely'
import { escapeLiteral, type Pool, type PoolClient, type QueryResult } from 'pg'
import { IDENTIFIER, quote } from '../core/identifier.ts'

/*
 * The database as Kysely sees it. Statements call the schemas `data` and `ops`, whatever their names are: `from ops.coverage`, in
 * texts of the tag `sql` too.
 */

export type RunOutcome = 'complete' | 'partial' | 'failed' | 'interrupted'
export type CoverageState = 'read' | 'quarantined' | 'held' | 'stale' | 'unreconciled'

export interface OpsTables {
  runs: {
    run_id: Generated<number>
    command: string
    started_at: Generated<Date>
    ended_at: Date | null
    outcome: RunOutcome | null
    host: string
    pid: number
    version: string
    source: string
    summary: unknown
    error: string | null
    lease_expires_at: Date | null
    process: Generated<string>
    lock_token: string | null
  }
  run_leases: { project_id: string; stream: string; run_id: number; is_shared: boolean }
  source: { only_row: Generated<boolean>; address: string; recorded_at: Generated<Date>; moved_from: string | null }
  coverage: {
    project_id: string
    stream: string
    date: string
    rows: number
    read_at: Date
    run_id: number
    state: CoverageState
    read_order: number
    held_since: Date | null
    reconciled_at: Date | null
    /** How it differs from the totals of the service, if it does. */
    difference: string | null
  }
  quarantine: {
    quarantine_id: Generated<number>
    project_id: string
    stream: string
    reason: string
    raw: unknown
    fingerprint: string
    from_date: string | null
    to_date: string | null
    run_id: number
    first_seen_at: Generated<Date>
    last_seen_at: Generated<Date>
    times_seen: Generated<number>
    occurrences: Generated<number>
    resolved_at: Date | null
    resolution: string | null
    dismissed_at: Date | null
    dismissed_because: string | null
  }
  drift: {
    project_id: string
    stream: string
    kind: string
    name: string
    example: string
    first_seen_at: Generated<Date>
    run_id: number
  }
  restatements: {
    project_id: string
    stream: string
    date: string
    rows_inserted: number
    rows_updated: number
    rows_deleted: number
    seen_at: Generated<Date>
    run_id: number
    cause: string | null
  }
  creations: {
    creation_id: Generated<number>
    project_id: string
    kind: 'prompt' | 'topic' | 'domain-classification' | 'url-classification'
    identity: string
    request: unknown
    state: 'sent' | 'created' | 'existing' | 'failed'
    id: string | null
    warning: string | null
    error: string | null
    attempts: Generated<number>
    sent_at: Generated<Date>
    settled_at: Date | null
  }
  workers: {
    worker_id: string
    host: string
    pid: number
    version: string
    concurrency: number
    started_at: Generated<Date>
    seen_at: Generated<Date>
    busy: Generated<number>
    done: Generated<number>
    source: string
    queue: string
    process: string
    state: Generated<'working' | 'backing off'>
    reason: string | null
  }
  run_windows: {
    window_id: string
    run_id: number
    queue: string
    project_id: string
    stream: string
    from_date: string | null
    to_date: string | null
    priority: number
    request: unknown
    state: Generated<'queued' | 'taken' | 'done'>
    worker_id: string | null
    failures: Generated<number>
    losses: Generated<number>
    queued_at: Generated<Date>
    taken_at: Date | null
    progress_at: Date | null
    stalls_at: Date | null
    result: unknown
  }
  request_budgets: { project_id: string; state: unknown; version: number; per_minute: number }
  alerts: {
    condition: string
    text: string
    /** The streams of projects that it concerns, if it can spread. */
    members: Generated<string[]>
    raised_at: Generated<Date>
    /** When the last message of this condition was sent. */
    told_at: Date | null
    /** False if some of it waits for the end of the quiet period. */
    is_told: Generated<boolean>
    cleared_at: Date | null
  }
  views: { name: string; fingerprint: string; made_at: Generated<Date> }
  reports: {
    name: string
    dimensions: string[]
    filters: unknown
    created_at: Generated<Date>
    of: Generated<string>
    having: unknown
  }
  not_offered: { project_id: string; stream: string; status: number; asked_at: Generated<Date> }
  unread_chats: { project_id: string; chat_id: string; status: number; asked_at: Generated<Date> }
  daily_requests: { project_id: string; stream: string; day: string; requests: number }
  custom_streams: { name: string; definition: unknown; created_at: Generated<Date> }
}

/** The tables of data that every warehouse has, as far as queries name their columns. */
export interface DataTables {
  projects: { project_id: string; name: string | null }
  prompts: { project_id: string; prompt_id: string }
}

type Named<Prefix extends string, Tables> = { [Name in keyof Tables & string as `${Prefix}.${Name}`]: Tables[Name] }

export type Database = Named<'ops', OpsTables> & Named<'data', DataTables>

export interface Schemas {
  schema: string
  opsSchema: string
}

type Connect = () => Promise<Pick<PoolClient, 'query' | 'release'>>

export class Db extends Kysely<Database> {
  readonly literal: LiteralCompiler

  constructor({ schema, opsSchema }: Schemas, connect: Connect) {
    const names = { data: schema, ops: opsSchema }
    const dialect = new PostgresDialect({ pool: { connect, end: async () => {} } as unknown as Pool })
    super({ dialect: Object.assign(dialect, { createQueryCompiler: () => new NamingCompiler(names) }) })
    this.literal = new LiteralCompiler(names)
  }
}

type Names = Readonly<Record<string, string>>

// What is in quotes stays as it is.
const SCHEMA_OR_QUOTED = /"[^"]*"|'[^']*'|(?<![\w.])(?:data|ops)(?=\.[a-z])/g

/** Gives the schemas of a statement their names, while it is written. */
class NamingCompiler extends PostgresQueryCompiler {
  constructor(private readonly names: Names) {
    super()
  }

  protected override visitSchemableIdentifier(node: SchemableIdentifierNode): void {
    const name = node.schema && this.names[node.schema.name]
    this.writeNamed(name === undefined ? node : { ...node, schema: IdentifierNode.create(name) })
  }

  protected override visitRaw(node: RawNode): void {
    const nameOf = (found: string) => (found in this.names ? quote(this.names[found]!) : found)
    super.visitRaw({
      ...node,
      sqlFragments: node.sqlFragments.map((text) => text.replaceAll(SCHEMA_OR_QUOTED, nameOf)),
    })
  }

  protected writeNamed(node: SchemableIdentifierNode): void {
    super.visitSchemableIdentifier(node)
  }
}

/** Messages with several statements have no parameters, and people read and copy statements of pages. */
class LiteralCompiler extends NamingCompiler {
  protected override appendValue(value: unknown): void {
    this.append(literal(value))
  }

  /** As people type it: behind a schema, even a keyword needs no quotes. */
  protected override writeNamed(node: SchemableIdentifierNode): void {
    const { schema, identifier } = node
    if (schema?.name === 'visibility' && IDENTIFIER.test(identifier.name)) this.append(`visibility.${identifier.name}`)
    else super.writeNamed(node)
  }
}

type Query = PoolClient['query']

/** Connections of a pool. Kysely releases them without their errors. But one whose query got no answer must not be used again. */
export function connectionsOf(pool: Pool, prepare: (client: PoolClient) => void = () => {}): Connect {
  return async () => {
    const client = await pool.connect()
    prepare(client)
    let failure: Error | undefined
    const query = (...args: Parameters<Query>) =>
      rowsOfAll(client.query(...args)).catch((error: Error) => {
        failure = error
        throw error
      })
    return { query: query as unknown as Query, release: () => client.release(failure) }
  }
}

/** One connection that is released elsewhere. Statements that are asked for at once are sent one after the other. */
export function oneConnection(client: PoolClient): Connect {
  let last: Promise<unknown> = Promise.resolve()
  const query = (...args: Parameters<Query>) => {
    const next = last.then(() => rowsOfAll(client.query(...args)))
    last = next.catch(() => {})
    return next
  }
  return async () => ({ query: query as unknown as Query, release: () => {} })
}

/** The result of several statements in one message is one row for each, with its rows. */
async function rowsOfAll(answer: unknown): Promise<unknown> {
  const result = (await answer) as QueryResult | QueryResult[]
  return Array.isArray(result) ? { rows: result.map(({ rows }) => rows) } : result
}

export async function runText<Row>(db: Db, text: string, values: readonly unknown[] = []): Promise<Row[]> {
  return (await db.executeQuery<Row>(CompiledQuery.raw(text, [...values]))).rows
}

export async function runTexts(db: Db, texts: readonly string[]): Promise<void> {
  if (texts.length > 0) await runText(db, texts.join(';\n'))
}

/** A relation or function of the data schema, whose name may come from the configuration. */
export function dataTable(name: string): RawBuilder<unknown> {
  return sql.table(`data.${name}`)
}

/** One parameter for any number of values, unlike `in`. */
export function anyOf(column: string, values: readonly string[]): RawBuilder<SqlBool> {
  return sql`${sql.ref(column)} = any(${values})`
}

export type Queries<Rows extends unknown[]> = { [Index in keyof Rows]: Expression<Rows[Index]> }
export type RowsOfAll<Rows extends unknown[]> = { [Index in keyof Rows]: Rows[Index][] }

/**
 * Runs several statements in one message, and gives the rows of each. Each is still a statement of its own, which sees what was
 * committed before it began: a statement after a lock sees what the last holder wrote.
 */
export async function batch<Rows extends unknown[]>(db: Db, ...queries: Queries<Rows>): Promise<RowsOfAll<Rows>> {
  const text = queries.map((query) => writtenOut(db, query)).join(';\n')
  const { rows } = await db.executeQuery(CompiledQuery.raw(text))
  return (queries.length === 1 ? [rows] : rows) as RowsOfAll<Rows>
}

/** Reads with several queries in one statement. A value that JSON does not have comes as its text; no query, no rows. */
export function together<Rows extends unknown[]>(
  ...queries: { [Index in keyof Rows]: Expression<Rows[Index]> | undefined }
): RawBuilder<{ rows: RowsOfAll<Rows> }> {
  const rowsOf = queries.map((query) =>
    query === undefined ? sql`'[]'::json` : sql`(select coalesce(json_agg(q), '[]') from (${query}) q)`,
  )
  return sql`select json_build_array(${sql.join(rowsOf)}) as rows`
}

/** A query with its values filled in. If people see it, this text is run: Postgres could give parameters other types. */
export function writtenOut(db: Db, query: Expression<unknown>): string {
  return db.literal.compileQuery(query.toOperationNode() as RootOperationNode, { queryId: '' }).sql
}

function literal(value: unknown): string {
  if (value === null || value === undefined) return 'null'
  if (typeof value === 'number' || typeof value === 'bigint') return value < 0 ? `(${value})` : String(value)
  if (typeof value === 'boolean') return String(value)
  const text = textOf(value)
  if (text.includes('\0')) throw new RangeError('a value with a NUL character cannot be sent to Postgres')
  return escapeLiteral(text)
}

function textOf(value: unknown): string {
  if (typeof value === 'string') return value
  if (value instanceof Date) return value.toISOString()
  if (Array.isArray(value)) return `{${value.map(elementOf).join()}}`
  return JSON.stringify(value)
}

function elementOf(value: unknown): string {
  return value === null ? 'null' : `"${textOf(value).replaceAll(/["\\]/g, '\\$&')}"`
}
