import { type RawBuilder, sql } from 'kysely'
import type { ReportConfig } from '../../core/config/load.ts'
import { addDays, countDays, type Day, type Range } from '../../core/day.ts'
import { UsageError } from '../../core/errors.ts'
import { clip, count, grouped, listSome } from '../../core/text.ts'
import { readDiffering } from '../../ledger/days.ts'
import type { Warehouse } from '../../warehouse/connect.ts'
import { batch, dataTable, runText, writtenOut } from '../../warehouse/database.ts'
import { DETAIL_STATEMENTS } from './detail-statements.ts'
import { type Filters, noDays, type PagePath } from './filters.ts'
import { type Context, type DaysRead, daysRead, reportName, type Statement } from './sql.ts'
import { FIRST_STATEMENTS } from './statements.ts'

/* The first questions of analysts, from the views that BI tools read. The SQL that is shown is the SQL that is run. */

const STATEMENTS = { ...FIRST_STATEMENTS, ...DETAIL_STATEMENTS }
export type Section = keyof typeof STATEMENTS
export type ChartSection = 'visibility' | 'share-of-voice' | 'position' | 'sentiment'
export const CHARTS: readonly ChartSection[] = ['visibility', 'share-of-voice', 'position', 'sentiment']

/** The sections of each page, in their order. */
export const SECTIONS: Record<PagePath, readonly Section[]> = {
  '/insights': Object.keys(FIRST_STATEMENTS) as Section[],
  '/insights/topic': ['trend', 'brands', 'by-model', 'prompts'],
  '/insights/model': ['trend', 'brands', 'by-topic', 'prompts'],
  '/insights/channel': ['trend', 'brands', 'by-topic', 'prompts'],
  '/insights/prompt': ['trend', 'brands', 'by-model', 'chats', 'cited'],
  '/insights/source': ['source-prompts', 'source-pages'],
}

// Rows of a section that are shown at most. Its file has all.
const ABSENT_SHOWN = 25
const SHOWN: Partial<Record<Section, number>> = {
  ...{ movers: 12, falls: 3, 'absent-prompts': ABSENT_SHOWN, sources: 12, 'source-gaps': 12, chats: 20 },
  ...{ brands: 50, 'by-model': 50, 'by-topic': 50, prompts: 50, cited: 50, 'source-prompts': 50, 'source-pages': 50 },
}
// Without an own brand there is nothing that these could be about.
const OF_OWN: ReadonlySet<Section> = new Set<Section>(['summary', 'by-model', 'by-topic', 'prompts', 'source-pages'])

export interface Brand {
  id: string
  name: string
  isOwn: boolean
}

/** A number and the bounds of its interval. */
type Bounded<K extends string> = K | `${K}_low` | `${K}_high`

/** A row of any section: it has those of these columns that its statement selects, and they mean the same in all. */
export interface Row
  extends Record<'metric' | 'brand' | 'brand_id' | 'topic' | 'prompt' | 'prompt_id' | 'domain' | 'url', string>,
    Record<'rival_brand' | 'rival_brand_id' | 'lead_verdict' | 'grain' | 'grouped_by' | 'chat_id', string>,
    Record<'date' | 'week' | 'last_week', Day>,
    Record<'topic_id' | 'model' | 'model_id' | 'model_channel_id' | 'id' | 'name' | 'title', string | null>,
    Record<'rival' | 'rivals_in_their_best_week' | 'classification' | 'verdict', string | null>,
    Record<'is_own' | 'is_rival' | 'is_complete' | 'is_provisional' | 'comparison_is_complete', boolean | null>,
    Record<'visibility' | 'visibility_count' | 'weeks_absent' | 'citation_count' | 'value', number | null>,
    Record<Bounded<'own_visibility' | 'rival_visibility' | 'change' | 'retrieved_share'>, number | null>,
    Record<
      'visibility_low' | 'visibility_high' | 'low' | 'high' | 'previous_value' | 'previous_visibility',
      number | null
    >,
    Record<
      'sample' | 'previous_sample' | 'answers' | 'own_answers' | 'previous_answers' | 'count' | 'q_value' | 'lead',
      number | null
    >,
    Record<'best_rival_visibility' | 'own_share_of_both' | 'retrieved_chat_count' | 'weeks', number | null>,
    Record<'most_prompts_in_a_week', number | null>,
    // Counts of all rows, not only of those that are shown.
    Record<'whole_count' | 'judged_count' | 'clear_count', number> {
  rival_names: string[] | string | null
  /** As the service sent them, in whatever shape. Null if the content of the chat was not read. */
  messages: unknown
  sources: unknown
  brands_mentioned: unknown
}

/** The rows of a section, its SQL, and why there are none if it cannot be read. */
export interface Read {
  sql: string
  rows: Row[]
  missing?: string
}

type Names = Record<'topic' | 'topic_id' | 'prompt' | 'channel', string | null>

/** All that a page shows. */
export interface Found {
  brands: Brand[]
  /** The own brand that is looked at; undefined if no brand is own. */
  own: Brand | undefined
  /** The rival that it is compared with by model. */
  rival: Brand | undefined
  /** The first and the last day that were ever read of the project. */
  extent: { first: Day; last: Day } | undefined
  days: DaysRead
  /** Why the numbers are not compared with the period before; undefined if they are. */
  incomparable: string | undefined
  /** Reports of which the service leaves out rows without mentions. */
  omitting: string[]
  /** The names of what the page is about. */
  names: Names
  /** The sections of the page. */
  sections: Record<Section, Read>
  /** Of the absent prompts: the page that is shown, how many there are, and the first rows of all. */
  absent: { page: number; pages: number; first: Row[] }
}

interface InsightsRequest {
  reports: readonly ReportConfig[]
  filters: Filters
}

export async function readPage(warehouse: Warehouse, request: InsightsRequest): Promise<Found> {
  const { filters } = request
  const reader = await openReader(warehouse, request)
  const sections = {} as Found['sections']
  let rival: Brand | undefined
  for (const section of SECTIONS[filters.path]) {
    if (section === 'head-to-head-by-model') rival = reader.chooseRival(sections['head-to-head'].rows)
    sections[section] = await reader.read(section)
  }
  const first = sections['absent-prompts']?.rows ?? []
  const pages = Math.max(1, Math.ceil((first[0]?.whole_count ?? 0) / ABSENT_SHOWN))
  // Pages may vanish between two looks: the last one is shown.
  const page = Math.min(filters.page, pages)
  if (page > 1) sections['absent-prompts'] = await reader.read('absent-prompts', page)
  const { brands, own, days, incomparable } = reader
  const [extent, names] = [await reader.extent(), await reader.names()]
  const absent = { page, pages, first }
  return { brands, own, rival, extent, days, incomparable, omitting: await reader.omitting(), names, sections, absent }
}

type Cell = string | number | boolean | null

/** All rows of a section, for a file: as texts and numbers under the names of its columns. */
export async function readAll(
  warehouse: Warehouse,
  request: InsightsRequest,
  { section, most }: { section: Section; most: number },
): Promise<{ header: string[]; rows: Cell[][] }> {
  const reader = await openReader(warehouse, request)
  if (section === 'head-to-head-by-model') reader.chooseRival((await reader.read('head-to-head')).rows)
  const { query, missing } = await reader.prepare(section)
  if (query === undefined) throw new UsageError(missing)
  const run = (limited: RawBuilder<unknown>) => reader.all(limited as RawBuilder<Record<string, unknown>>)
  const rows = await run(sql`${query}\nlimit ${most + 1}`)
  // A row of nulls has the names of the columns, too.
  const [first] = rows.length > 0 ? rows : await run(sql`select t.* from (select) one left join (${query}) t on true`)
  const header = Object.keys(first!)
  if (rows.length > most) throw new UsageError(`from, to: more than ${grouped(most)} rows; choose a shorter range`)
  const cell = (value: unknown) => (typeof value === 'object' && value !== null ? JSON.stringify(value) : value)
  return { header, rows: rows.map((row) => header.map((name) => cell(row[name]) as Cell)) }
}

/** The tables and views of the data schema that the role may read. */
export async function readableRelations({ db, schema }: Pick<Warehouse, 'db' | 'schema'>): Promise<Set<string>> {
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
  const brands = await all(
    sql<Brand>`select brand_id as id, coalesce(name, brand_id) as name, is_own as "isOwn"
     from ${dataTable('brands')} where project_id = ${project} order by is_own desc, 2, 1`,
  )
  const owns = brands.filter(({ isOwn }) => isOwn)
  const own = filters.brand === undefined ? owns[0] : find('brand', filters.brand, owns)
  const context: Context = {
    ...{ schema, reports, filters, before: filters.before, project, own: own?.id ?? '', rival: '' },
    hasContents: relations.has('chat_contents'),
  }
  const streamOf = ({ report }: Statement) => reportName(reports, report) || reportName(reports)
  const daysOf = async (stream: string, range: Range, before: Range) =>
    (await all(daysRead(context, stream, range, before)))[0]!
  const pageStream = streamOf(STATEMENTS[SECTIONS[filters.path][0]!](context))
  const days = await daysOf(pageStream, filters.range, filters.before)
  const incomparable = whyIncomparable(days, filters.before)
  const streams = new Map([[pageStream, incomparable]])

  /** Why the rows of a statement are not compared with those before; undefined if they are. */
  async function whyNotCompared(statement: Statement): Promise<string | undefined> {
    const { week } = statement
    if (week !== undefined) {
      const before = { from: addDays(week, -7), to: addDays(week, -1) }
      return whyIncomparable(await daysOf(reportName(reports), { from: week, to: addDays(week, 6) }, before), before)
    }
    const stream = streamOf(statement)
    if (incomparable === undefined && !streams.has(stream))
      streams.set(stream, whyIncomparable(await daysOf(stream, filters.range, filters.before), filters.before))
    return incomparable ?? streams.get(stream)
  }

  /** The SQL of a section or of another statement, or why it cannot be read. */
  async function prepare(
    asked: Section | ((context: Context) => Statement),
  ): Promise<{ query: RawBuilder<unknown>; missing?: undefined } | { query?: undefined; missing: string }> {
    const write = typeof asked === 'string' ? STATEMENTS[asked] : asked
    const statement: Statement = write(context)
    const missing = statement.missing ?? missingFor(statement, reports, relations)
    if (missing !== undefined) return { missing }
    const reason = await whyNotCompared(statement)
    if (reason === undefined) return { query: statement.sql }
    if (statement.isComparison) return { missing: reason }
    return { query: write({ ...context, before: noDays(filters.range) }).sql }
  }

  return {
    ...{ brands, own, days, incomparable, all, prepare, context },
    /** What the days of a stream leave open, and what they are compared with. */
    async judge(stream: string): Promise<{ comparedWith: Range | undefined; notes: string[] }> {
      const { range, before, comparison } = filters
      const read = await daysOf(stream, range, before)
      const why = incomparable ?? whyIncomparable(read, before)
      const gap = countDays(before) - read.whole_days_before
      const lack = why ?? (gap > 0 ? `In the period before, ${gap} days are incomplete.` : '')
      const notes = [noteOnDays(read, range), ...(comparison === 'none' || lack === '' ? [] : [lack])]
      return { comparedWith: why === undefined ? before : undefined, notes }
    },
    /** The rival that was asked for, or the one that is named most often. */
    chooseRival(leads: readonly Row[]): Brand | undefined {
      const rivals = brands.filter(({ isOwn }) => !isOwn)
      const asked = filters.rival
      const rival =
        asked === undefined ? rivals.find(({ id }) => id === leads[0]?.rival_brand_id) : find('rival', asked, rivals)
      context.rival = rival?.id ?? ''
      return rival
    },
    async read(section: Section, page = 1): Promise<Read> {
      const { query, missing } = await prepare(section)
      if (query === undefined) return { sql: '', rows: [], missing }
      const shown = SHOWN[section]
      const offset = shown === undefined || page === 1 ? sql`` : sql` offset ${(page - 1) * shown}`
      const limit = shown === undefined ? sql`` : sql`\nlimit ${shown}`
      const text = writtenOut(slowDb, sql`${query}${limit}${offset};`)
      return { sql: text, rows: own === undefined && OF_OWN.has(section) ? [] : await runText<Row>(slowDb, text) }
    },
    async omitting(): Promise<string[]> {
      const differing = await readDiffering(warehouse, 'settled', filters.project)
      return differing.flatMap(({ stream }) => (stream === 'chats' ? [] : [stream]))
    },
    async extent(): Promise<Found['extent']> {
      const [found] = await all(
        sql<{ first: Day | null; last: Day }>`
          select first_day as first, last_day as last from ${dataTable('freshness')}
          where project_id = ${project} and stream = ${reportName(reports)}`,
      )
      return found === undefined || found.first === null ? undefined : { first: found.first, last: found.last }
    },
    async names(): Promise<Names> {
      const { topic, prompt, channel } = filters.subject
      const [found] = await all(
        sql<Names>`select coalesce(t.name, t.topic_id) as topic, t.topic_id, p.text as prompt, h.name as channel
         from (select ${project} as project_id, ${topic ?? ''} as topic_id, ${prompt ?? ''} as prompt_id, ${channel ?? ''} as model_channel_id) s
         left join ${dataTable('prompts')} p using (project_id, prompt_id)
         left join ${dataTable('model_channels')} h using (project_id, model_channel_id)
         left join ${dataTable('topics')} t on t.project_id = s.project_id and t.topic_id = coalesce(nullif(s.topic_id, ''), p.topic_id)`,
      )
      return found!
    },
  }
}

/** What the days of a period leave open. */
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

function whyIncomparable({ whole_days_before }: DaysRead, before: Range): string | undefined {
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

/** Why a section cannot be read, and what helps; undefined if it can. */
function missingFor(
  { views = [], report }: Statement,
  reports: readonly ReportConfig[],
  relations: ReadonlySet<string>,
): string | undefined {
  const view = views.find((name) => !relations.has(name))
  if (view !== undefined)
    return `The view ${view} is not there: "visibility-sync migrate" names the report that it needs.`
  if (report === undefined) return undefined
  const name = reportName(reports, report)
  if (name === '')
    return `No report by ${report.join(', ')} is configured: add one under "reports", and run "visibility-sync sync".`
  return relations.has(name) ? undefined : `The table ${name} is not there yet: run "visibility-sync sync".`
}
