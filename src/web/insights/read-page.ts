import { type RawBuilder, sql } from 'kysely'
import type { ReportConfig } from '../../core/config/load.ts'
import { addDays, countDays, type Day, type Range } from '../../core/day.ts'
import { UsageError } from '../../core/errors.ts'
import { type CsvValue, clip, count, grouped, listSome } from '../../core/text.ts'
import { readDiffering } from '../../ledger/days.ts'
import type { Warehouse } from '../../warehouse/connect.ts'
import { batch, dataTable, runText, writtenOut } from '../../warehouse/database.ts'
import { DETAIL_STATEMENTS } from './detail-statements.ts'
import { type Filters, noDays, type PagePath, weeksIn } from './filters.ts'
import type { Row } from './rows.ts'
import {
  BY_PROMPT_AND_MODEL,
  between,
  type Context,
  type DaysRead,
  daysRead,
  reportName,
  type Statement,
  type Write,
} from './sql.ts'
import { FIRST_STATEMENTS } from './statements.ts'

/* The first questions of analysts, from the views that BI tools read. The SQL that is shown is the SQL that is run. */

export const STATEMENTS = { ...FIRST_STATEMENTS, ...DETAIL_STATEMENTS }
export type Section = keyof typeof STATEMENTS
type RowOf<Write> = Write extends (context: Context) => { sql: RawBuilder<infer R> } ? R : never
/** What a row of each section has. */
export type Rows = { [S in Section]: RowOf<(typeof STATEMENTS)[S]> }
export const CHARTS = ['visibility', 'share-of-voice', 'position', 'sentiment'] as const
export type ChartSection = (typeof CHARTS)[number]

export const SECTIONS: Record<PagePath, readonly Section[]> = {
  '/insights': Object.keys(FIRST_STATEMENTS) as Section[],
  '/insights/topic': ['trend', 'brands', 'by-model', 'prompts'],
  '/insights/model': ['trend', 'brands', 'by-topic', 'prompts'],
  '/insights/channel': ['trend', 'brands', 'by-topic', 'prompts'],
  '/insights/prompt': ['trend', 'brands', 'by-model', 'chats', 'cited'],
  '/insights/source': ['source-prompts', 'source-pages'],
}

export type Brand = Record<'id' | 'name', string> & { isOwn: boolean }

/** The rows of a section, its SQL, and why there are none if it cannot be read. */
export interface Read<R> {
  sql: string
  rows: R[]
  missing?: string
}

interface InsightsRequest {
  reports: readonly ReportConfig[]
  filters: Filters
}

export type Found = Awaited<ReturnType<typeof readPage>>

export async function readPage(warehouse: Warehouse, request: InsightsRequest) {
  const { filters } = request
  const reader = await openReader(warehouse, request)
  const sections = {} as { [S in Section]: Read<Rows[S]> }
  let rival: Brand | undefined
  for (const section of SECTIONS[filters.path]) {
    if (section === 'head-to-head-by-model') rival = reader.chooseRival(sections['head-to-head'].rows)
    Object.assign(sections, { [section]: await reader.read(section) })
  }
  const first = sections['absent-prompts']?.rows ?? []
  const pages = Math.max(1, Math.ceil((first[0]?.whole_count ?? 0) / first.length || 0))
  // Pages may vanish between two looks: the last one is shown.
  const page = Math.min(filters.page, pages)
  if (page > 1) sections['absent-prompts'] = await reader.read('absent-prompts', page)
  const { brands, own, days, incomparable, extent, names, omitting } = reader
  const weeks = await reader.completeWeeks(reportName(request.reports, BY_PROMPT_AND_MODEL))
  const hasDomains = request.reports.some(({ of }) => of === 'domains')
  const known = { brands, own, rival, days, incomparable, sections, absent: { page, pages, first } }
  return { ...known, weeks, hasDomains, extent: await extent(), names: await names(), omitting: await omitting() }
}

const MOST_ROWS = 100_000

/** All rows of a section, for a file: as texts and numbers under the names of its columns. */
export async function readAll(warehouse: Warehouse, request: InsightsRequest, section: Section) {
  const reader = await openReader(warehouse, request)
  if (section === 'head-to-head-by-model') reader.chooseRival((await reader.read('head-to-head')).rows)
  const { sql: query, missing } = await reader.prepare<unknown>(STATEMENTS[section])
  if (missing !== undefined) throw new UsageError(missing)
  type Cells = Record<string, unknown>
  const rows = await reader.all(sql<Cells>`${query}\nlimit ${MOST_ROWS + 1}`)
  // A row of nulls has the names of the columns, too.
  const [first] =
    rows.length > 0 ? rows : await reader.all(sql<Cells>`select t.* from (select) one left join (${query}) t on true`)
  const header = Object.keys(first!)
  if (rows.length > MOST_ROWS)
    throw new UsageError(`from, to: more than ${grouped(MOST_ROWS)} rows; choose a shorter range`)
  const cell = (value: unknown) => (typeof value === 'object' && value !== null ? JSON.stringify(value) : value)
  return { header, rows: rows.map((row) => header.map((name) => cell(row[name]) as CsvValue)) }
}

export async function readableRelations({ db, schema }: Pick<Warehouse, 'db' | 'schema'>) {
  const { rows } = await sql<{ name: string }>`
    select c.relname as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = ${schema} and c.relkind in ('r', 'p', 'v') and has_table_privilege(c.oid, 'select')`.execute(db)
  return new Set(rows.map(({ name }) => name))
}

export async function openReader(warehouse: Warehouse, { reports, filters }: InsightsRequest) {
  const { schema, slowDb } = warehouse
  const { project } = filters
  const all = async <R>(query: RawBuilder<R>) => (await batch(slowDb, query))[0]
  const relations = await readableRelations(warehouse)
  const hasRows = async (table: string) =>
    (
      await all(
        sql<{ found: boolean }>`select exists (select from ${dataTable(table)} where project_id = ${project}) as found`,
      )
    )[0]!.found
  const brands = await all(
    sql<Brand>`select brand_id as id, coalesce(name, brand_id) as name, is_own as "isOwn"
     from ${dataTable('brands')} where project_id = ${project} order by is_own desc, 2, 1`,
  )
  const owns = brands.filter(({ isOwn }) => isOwn)
  const own = filters.brand === undefined ? owns[0] : find('brand', filters.brand, owns)
  const context: Context = {
    ...{ schema, reports, filters, before: filters.before, project, own: own?.id ?? '', rival: '' },
    hasContents:
      filters.path === '/insights/prompt' && relations.has('chat_contents') && (await hasRows('chat_contents')),
  }
  const streamOf = ({ report }: Statement) => reportName(reports, report) || reportName(reports)
  const known = new Map<string, DaysRead>()
  async function daysOf(stream: string, range = filters.range, before = filters.before) {
    const key = [stream, range.from, range.to, before.from, before.to].join()
    const days = known.get(key) ?? (await all(daysRead(project, stream, range, before)))[0]!
    known.set(key, days)
    return days
  }
  const days = await daysOf(streamOf(STATEMENTS[SECTIONS[filters.path][0]!](context)))
  const incomparable = whyIncomparable(days, filters.before)

  /** Why the rows of a statement are not compared with those before; undefined if they are. */
  async function whyNotCompared(statement: Statement) {
    const { week } = statement
    if (week === undefined) return incomparable ?? whyIncomparable(await daysOf(streamOf(statement)), filters.before)
    const before = { from: addDays(week, -7), to: addDays(week, -1) }
    return whyIncomparable(await daysOf(reportName(reports), { from: week, to: addDays(week, 6) }, before), before)
  }

  /** A statement for what can be compared; if it cannot be read, `missing` is the reason. */
  async function prepare<R>(write: Write<R>): Promise<Statement<R>> {
    const statement = write(context)
    const missing = statement.missing ?? missingFor(statement, reports, relations)
    const reason = missing === undefined ? await whyNotCompared(statement) : undefined
    if (missing === undefined && reason === undefined) return statement
    if (missing !== undefined || statement.isComparison) return { ...statement, missing: missing ?? reason }
    return write({ ...context, before: noDays(filters.range) })
  }

  return {
    ...{ brands, own, days, incomparable, all, prepare, context },
    async completeWeeks(stream: string) {
      const weeks = sql<{ weeks: number }>`
        select count(*) as weeks from (
          select from ${dataTable('data_status')}
          where project_id = ${project} and stream = ${stream} and ${between('date', weeksIn(filters.range))} and is_complete
          group by date_trunc('week', date::timestamp) having count(*) = 7
        ) w`
      return (await all(weeks))[0]!.weeks
    },
    /** What the days of a stream leave open, and what they are compared with. */
    async judge(stream: string, range = filters.range) {
      const { before, comparison } = filters
      const read = await daysOf(stream, range)
      const why = incomparable ?? whyIncomparable(read, before)
      const gap = countDays(before) - read.whole_days_before
      const lack = why ?? (gap > 0 ? `In the period before, ${gap} days are incomplete.` : '')
      const notes = [noteOnDays(read, range), ...(comparison === 'none' || lack === '' ? [] : [lack])]
      return { comparedWith: why === undefined ? before : undefined, notes }
    },
    /** The rival that was asked for, or the one that is named most often. */
    chooseRival(leads: readonly Row<'rival_brand_id'>[]) {
      const rivals = brands.filter(({ isOwn }) => !isOwn)
      const asked = filters.rival
      const rival =
        asked === undefined ? rivals.find(({ id }) => id === leads[0]?.rival_brand_id) : find('rival', asked, rivals)
      context.rival = rival?.id ?? ''
      return rival
    },
    async read<S extends Section>(section: S, page = 1): Promise<Read<Rows[S]>> {
      const { sql: query, missing, shown = 0, isOfOwn } = await prepare<unknown>(STATEMENTS[section])
      if (missing !== undefined) return { sql: '', rows: [], missing }
      const offset = page === 1 ? sql`` : sql` offset ${(page - 1) * shown}`
      const limit = shown === 0 ? sql`` : sql`\nlimit ${shown}`
      const text = writtenOut(slowDb, sql`${query}${limit}${offset};`)
      return { sql: text, rows: own === undefined && isOfOwn ? [] : await runText<Rows[S]>(slowDb, text) }
    },
    /** Reports of which the service leaves out rows without mentions. */
    async omitting() {
      const differing = await readDiffering(warehouse, 'settled', filters.project)
      return differing.flatMap(({ stream }) => (stream === 'chats' ? [] : [stream]))
    },
    async extent() {
      const found = await all(
        sql<Record<'first' | 'last', Day>>`
          select first_day as first, last_day as last from ${dataTable('freshness')}
          where project_id = ${project} and stream = ${reportName(reports)} and first_day is not null`,
      )
      return found[0]
    },
    async names() {
      const { topic, prompt, channel } = filters.subject
      const [found] = await all(
        sql<
          Record<'topic' | 'topic_id' | 'prompt' | 'channel', string | null>
        >`select coalesce(t.name, t.topic_id) as topic, t.topic_id, p.text as prompt, h.name as channel
         from (select ${project} as project_id, ${topic ?? ''} as topic_id, ${prompt ?? ''} as prompt_id, ${channel ?? ''} as model_channel_id) s
         left join ${dataTable('prompts')} p using (project_id, prompt_id)
         left join ${dataTable('model_channels')} h using (project_id, model_channel_id)
         left join ${dataTable('topics')} t on t.project_id = s.project_id and t.topic_id = coalesce(nullif(s.topic_id, ''), p.topic_id)`,
      )
      return found!
    },
  }
}

function noteOnDays(read: DaysRead, range: Range): string {
  const all = countDays(range)
  const reasons = [
    [all - read.days, 'never read'],
    [read.held_days, 'held for review'],
    [read.unreconciled_days, "unreconciled with the service's totals"],
    [read.quarantined_days, 'with rows in quarantine'],
    [read.provisional_days, 'provisional, whose numbers may still change'],
  ].flatMap(([days, words]) => (days === 0 ? [] : [`; ${count(days as number, 'day')} ${words}`]))
  const open = reasons.join('') || ' and final'
  if (all === 1) return `The day is ${read.whole_days === 1 ? 'complete' : 'incomplete'}${open}.`
  return `${read.whole_days === all ? 'All' : `Incomplete: only ${read.whole_days} of`} ${all} days of the period are complete${open}.`
}

// With fewer days, a change would mostly show which days are missing.
const LEAST_SHARE_BEFORE = 0.8

function whyIncomparable({ whole_days_before }: DaysRead, before: Range) {
  const all = countDays(before)
  if (all === 0) return 'Nothing is compared, as chosen.'
  const least = Math.ceil(LEAST_SHARE_BEFORE * all)
  if (whole_days_before >= least) return undefined
  return `Nothing is compared: of the ${count(all, 'day')} from ${before.from} to ${before.to}, ${count(whole_days_before, 'is', 'are')} complete, and a comparison needs ${least}.`
}

function find(name: 'brand' | 'rival', asked: string, brands: readonly Brand[]): Brand {
  const found = brands.find(({ id }) => id === asked)
  if (found !== undefined) return found
  const kind = name === 'brand' ? 'own brands' : 'rivals'
  const ids = listSome(brands.map(({ id }) => id)) || 'none'
  throw new UsageError(`${name}: got "${clip(asked, 60)}"; ${kind} are: ${ids}`)
}

function missingFor(
  { views = [], report }: Statement,
  reports: readonly ReportConfig[],
  relations: ReadonlySet<string>,
) {
  const view = views.find((name) => !relations.has(name))
  if (view !== undefined)
    return `The view ${view} is not there, or the role may not read it: "npx visibility-sync migrate" names the report that it needs.`
  if (report === undefined) return undefined
  const name = reportName(reports, report)
  if (name === '')
    return `No report by ${report.join(', ')} is configured: add one under "reports", and run "npx visibility-sync sync".`
  return relations.has(name) ? undefined : `The table ${name} is not there yet: run "npx visibility-sync sync".`
}
