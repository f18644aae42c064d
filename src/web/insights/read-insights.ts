import type { ReportConfig } from '../../core/config/load.ts'
import { addDays, countDays, type Day, type Range } from '../../core/day.ts'
import { UsageError } from '../../core/errors.ts'
import { clip, count, grouped, listSome } from '../../core/text.ts'
import { slowQuery, type Warehouse } from '../../warehouse/connect.ts'
import { reportBy } from '../../warehouse/schema/views.ts'
import { DETAIL_STATEMENTS, DETAILS, type DetailSection, DOMAINS_BY_PROMPT, detailNeeds } from './detail-statements.ts'
import { type Filters, noDays } from './filters.ts'
import { ENOUGH } from './format.ts'
import {
  dailyStream,
  daysRead,
  needsOf,
  relation,
  type Section,
  STATEMENTS,
  type StatementContext,
} from './statements.ts'

/* What analysts ask first, from the same views that BI tools read. The SQL that is shown is the SQL that is run. */

export interface Brand {
  id: string
  name: string
  isOwn: boolean
}

/** The rows of a section, its SQL, and why there are none if it cannot be read. */
export interface Read<R> {
  sql: string
  rows: R[]
  missing?: string
}

export type Numbers<K extends string> = Record<K, number>
export type NumbersOrNull<K extends string> = Record<K, number | null>
/** A share and the bounds of its interval. */
export type Share<K extends string> = K | `${K}_low` | `${K}_high`

export interface SummaryRow
  extends NumbersOrNull<
    'value' | 'low' | 'high' | 'previous_value' | Share<'change'> | 'count' | Sample | `previous_${Sample}`
  > {
  metric: 'visibility' | 'share_of_voice' | 'position' | 'sentiment'
  verdict: string | null
}
type Sample = 'sample' | 'answers'

/** A point of a chart; the metric's own columns have its names. */
export interface ChartRow {
  week?: Day
  date?: Day
  brand_id: string
  brand: string
  is_own: boolean
  is_complete: boolean | null
  is_provisional: boolean | null
  [metric: string]: string | number | boolean | null | undefined
}

export interface HeatRow extends Numbers<Share<'visibility'> | 'visibility_count' | 'answers'> {
  topic_id: string | null
  topic: string
  /** One of both: what the rows are grouped by. */
  model_id?: string | null
  model_channel_id?: string | null
  model: string | null
  previous_visibility: number | null
  verdict: string
}

export interface LeadRow extends NumbersOrNull<Share<`${'own' | 'rival'}_visibility`> | 'own_share_of_both' | 'lead'> {
  rival_brand_id: string
  rival_brand: string
  model_id?: string | null
  lead_verdict: string
  answers: number
}

export interface MoverRow
  extends Numbers<'visibility' | 'previous_visibility' | Share<'change'> | 'answers' | 'previous_answers'>,
    // Counts of all rows, not only of those that are shown.
    Numbers<'whole_count' | 'judged_count' | 'clear_count'> {
  brand: string
  is_own: boolean
  topic_id: string | null
  topic: string
  model_id: string | null
  /** What the rows compare: the finest grain with enough answers. */
  grain: 'topic and model' | 'topic' | 'model' | 'brand'
  verdict: string
  q_value: number | null
  /** Of a week only. */
  comparison_is_complete?: boolean
}

interface AbsentRow extends Numbers<'weeks_absent' | 'answers' | 'best_rival_visibility' | 'whole_count'> {
  prompt_id: string
  prompt: string
  topic_id: string | null
  topic: string
  model_id: string | null
  last_week: Day
  rivals_in_their_best_week: string
}

interface DomainRow extends NumbersOrNull<'citation_count' | 'retrieved_chat_count'> {
  domain: string
  classification: string | null
  is_own: boolean
  is_rival: boolean
  whole_count: number
}

/** A domain that answers retrieve and cite. */
export interface SourceRow extends DomainRow, NumbersOrNull<'answers' | Share<'retrieved_share'>> {}

/** A domain that answers cite where rivals appear and the own brand does not. */
export interface SourceGapRow extends DomainRow, Numbers<'most_prompts_in_a_week' | 'weeks'> {
  last_week: Day
}

export type DaysRead = Numbers<'days' | 'whole_days' | 'provisional_days' | 'whole_days_before'>

export type ChartSection = 'visibility' | 'share-of-voice' | 'position' | 'sentiment'
export const CHARTS: readonly ChartSection[] = ['visibility', 'share-of-voice', 'position', 'sentiment']

export interface Insights {
  brands: Brand[]
  /** The own brand that is looked at; undefined if no brand is own. */
  own: Brand | undefined
  /** The first and the last day that were ever read of the project. */
  extent: { first: Day; last: Day } | undefined
  days: DaysRead
  /** Why the numbers are not compared with the period before; undefined if they are. */
  incomparable: string | undefined
  summary: Read<SummaryRow>
  charts: Record<ChartSection, Read<ChartRow>>
  heat: Read<HeatRow>
  leads: Read<LeadRow>
  rival: Brand | undefined
  leadsByModel: Read<LeadRow>
  movers: Read<MoverRow>
  sources: Read<SourceRow>
  sourceGaps: Read<SourceGapRow>
  /** What is worth a look first. */
  next: { absent: AbsentRow[]; falls: Read<MoverRow> }
}

/** A section of any page. */
export type AnySection = Section | DetailSection

const isDetail = (section: AnySection): section is DetailSection => section in DETAIL_STATEMENTS

const needsFor = (section: AnySection, filters: Filters, reports: readonly ReportConfig[]) =>
  isDetail(section) ? detailNeeds(section, filters, reports) : needsOf(section, filters, reports)

const sqlFor = (section: AnySection, context: StatementContext) =>
  ({ ...STATEMENTS, ...DETAIL_STATEMENTS })[section](context)

export interface InsightsRequest {
  reports: readonly ReportConfig[]
  filters: Filters
}

const MOVERS_SHOWN = 12
export const ABSENT_SHOWN = 25
const SOURCES_SHOWN = 12

// The list of what to do next is short.
const NEXT_SHOWN = 3

/** Everything of the page but the absent prompts, which have pages of their own. */
export async function readInsights(warehouse: Warehouse, request: InsightsRequest): Promise<Insights> {
  const reader = await openReader(warehouse, request)
  const { brands, own, context } = reader
  const extent = await reader.extent()
  const compared = await reader.compare()
  const charts = {} as Insights['charts']
  for (const name of CHARTS) charts[name] = await reader.read<ChartRow>(name)
  const leads = await reader.read<LeadRow>('head-to-head')
  const rival = chooseRival(brands, leads.rows, request.filters.rival)
  context.rival = rival?.id ?? ''
  return {
    brands,
    own,
    extent,
    ...compared,
    summary: await reader.read<SummaryRow>('summary'),
    charts,
    heat: await reader.read<HeatRow>('topics-by-model'),
    leads,
    rival,
    leadsByModel: await reader.read<LeadRow>('head-to-head-by-model'),
    movers: await reader.read<MoverRow>('movers', `\nlimit ${MOVERS_SHOWN}`),
    sources: await reader.read<SourceRow>('sources', `\nlimit ${SOURCES_SHOWN}`),
    sourceGaps: await reader.read<SourceGapRow>('source-gaps', `\nlimit ${SOURCES_SHOWN}`),
    next: await readNext(reader),
  }
}

async function readNext(reader: Reader): Promise<Insights['next']> {
  const absent = await reader.read<AbsentRow>('absent-prompts', `\nlimit ${NEXT_SHOWN}`)
  const falls = await reader.read<MoverRow>('falls', `\nlimit ${NEXT_SHOWN}`)
  return { absent: absent.rows.filter(({ answers }) => answers >= ENOUGH), falls }
}

export interface AbsentPrompts extends Read<AbsentRow> {
  /** How many there are on all pages. */
  whole: number
  page: number
  pages: number
}

/** One page of the prompts on which the own brand is absent; the last one if there are fewer. */
export async function readAbsent(warehouse: Warehouse, request: InsightsRequest): Promise<AbsentPrompts> {
  const reader = await openReader(warehouse, request)
  const paged = (page: number) => `\nlimit ${ABSENT_SHOWN} offset ${(page - 1) * ABSENT_SHOWN}`
  let { page } = request.filters
  let found = await reader.read<AbsentRow>('absent-prompts', paged(page))
  if (found.rows.length === 0 && page > 1 && found.missing === undefined) {
    const first = await reader.read<AbsentRow>('absent-prompts', paged(1))
    page = Math.max(1, Math.ceil((first.rows[0]?.whole_count ?? 0) / ABSENT_SHOWN))
    found = await reader.read<AbsentRow>('absent-prompts', paged(page))
  }
  const whole = found.rows[0]?.whole_count ?? 0
  return { ...found, whole, page, pages: Math.max(1, Math.ceil(whole / ABSENT_SHOWN)) }
}

/** All rows of a section, for a file: as texts and numbers under the names of its columns. */
export async function readAll(
  warehouse: Warehouse,
  request: InsightsRequest,
  { section, most }: { section: AnySection; most: number },
): Promise<{ header: string[]; rows: (string | number | boolean | null)[][] }> {
  const reader = await openReader(warehouse, request)
  const { brands, context } = reader
  if (section === 'head-to-head-by-model') {
    const leads = await reader.read<LeadRow>('head-to-head')
    context.rival = chooseRival(brands, leads.rows, request.filters.rival)?.id ?? ''
  }
  await reader.compare()
  const missing = reader.missing(section)
  if (missing !== undefined) throw new UsageError(missing)
  const { rows, fields } = await warehouse.pool.query<(string | number | boolean | null)[]>({
    ...slowQuery(`${reader.sqlOf(section)}\nlimit ${most + 1}`),
    rowMode: 'array',
  })
  if (rows.length > most) throw new UsageError(`from, to: more than ${grouped(most)} rows; choose a shorter range`)
  const cell = (value: unknown) => (typeof value === 'object' && value !== null ? JSON.stringify(value) : value)
  return { header: fields.map(({ name }) => name), rows: rows.map((row) => row.map(cell) as typeof row) }
}

type Reader = Awaited<ReturnType<typeof openReader>>

export async function openReader(warehouse: Warehouse, { reports, filters }: InsightsRequest) {
  const { schema, pool } = warehouse
  const relations = await relationsIn(warehouse)
  const all = async <R extends object>(sql: string) => (await pool.query<R>(slowQuery(sql))).rows
  const { rows: brands } = await pool.query<Brand>(
    `select brand_id as id, coalesce(name, brand_id) as name, is_own as "isOwn"
     from ${relation(schema, 'brands')} where project_id = $1 order by is_own desc, 2, 1`,
    [filters.project],
  )
  const own = chooseOwn(brands, filters.brand)
  const context: StatementContext = {
    schema,
    reports,
    filters,
    before: filters.before,
    own: own?.id ?? '',
    rival: '',
    hasContents: relations.has('chat_contents'),
  }
  const streamOf = (section: AnySection) =>
    reportBy(reports, needsFor(section, filters, reports).report ?? [])?.name ?? dailyStream(reports)
  const pageStream = streamOf(DETAILS[filters.path][0] ?? 'summary')
  /** Why the rows of a stream are not compared; a stream without an entry is. */
  const incomparable = new Map<string, string | undefined>()
  let noMoversOfWeek: string | undefined
  const missing = (section: AnySection) => {
    const reason = missingFor(section, { filters, reports }, relations)
    if (section === 'movers' && filters.week !== undefined) return reason ?? noMoversOfWeek
    return reason ?? (section === 'movers' || section === 'falls' ? incomparable.get(streamOf(section)) : undefined)
  }
  const readDays = async (stream: string, range: Range, before: Range) =>
    (await all<DaysRead>(daysRead(context, stream, { range, before })))[0]!
  const sqlOf = (section: AnySection) => {
    const isCompared = incomparable.get(streamOf(section)) === undefined
    return sqlFor(section, isCompared ? context : { ...context, before: noDays(filters.range) })
  }
  return {
    brands,
    own,
    context,
    missing,
    sqlOf,
    /** Finds out whether enough of the period before was read. If not, nothing is compared with it. */
    async compare() {
      const { range, before, week, path } = filters
      const days = await readDays(pageStream, range, before)
      const reason = whyIncomparable(days, before)
      const sections: AnySection[] = path === '/insights' ? ['topics-by-model', 'movers', 'falls'] : [...DETAILS[path]]
      incomparable.set(pageStream, reason)
      for (const stream of new Set(sections.map(streamOf)))
        if (stream !== pageStream)
          incomparable.set(stream, reason ?? whyIncomparable(await readDays(stream, range, before), before))
      if (week !== undefined) {
        const weekBefore = { from: addDays(week, -7), to: addDays(week, -1) }
        const ofWeek = await readDays(dailyStream(reports), { from: week, to: addDays(week, 6) }, weekBefore)
        noMoversOfWeek = whyIncomparable(ofWeek, weekBefore)
      }
      return { days, incomparable: reason }
    },
    async read<R extends object>(section: AnySection, page = ''): Promise<Read<R>> {
      const reason = missing(section)
      if (reason !== undefined) return { sql: '', rows: [], missing: reason }
      const sql = `${sqlOf(section)}${page};`
      // Without an own brand there is nothing that most sections could be about.
      if (own === undefined && !WITHOUT_OWN.has(section)) return { sql, rows: [] }
      return { sql, rows: await all<R>(sql) }
    },
    async extent(): Promise<Insights['extent']> {
      const { rows } = await pool.query<{ first: Day | null; last: Day | null }>(
        `select first_day as first, last_day as last from ${relation(schema, 'freshness')} where project_id = $1 and stream = $2`,
        [filters.project, dailyStream(reports)],
      )
      const [found] = rows
      return found === undefined || found.first === null ? undefined : { first: found.first, last: found.last! }
    },
  }
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

const WITHOUT_OWN: ReadonlySet<AnySection> = new Set<AnySection>([
  ...[...CHARTS, 'movers' as const, 'sources' as const],
  ...['trend' as const, 'brands' as const, 'chats' as const, 'cited' as const],
])

function chooseOwn(brands: readonly Brand[], asked: string | undefined): Brand | undefined {
  const own = brands.filter(({ isOwn }) => isOwn)
  return asked === undefined ? own[0] : find('brand', asked, own)
}

/** The rival that was asked for, or the one that is named most often. */
function chooseRival(brands: readonly Brand[], leads: readonly LeadRow[], asked: string | undefined) {
  const rivals = brands.filter(({ isOwn }) => !isOwn)
  return asked === undefined ? rivals.find(({ id }) => id === leads[0]?.rival_brand_id) : find('rival', asked, rivals)
}

function find(name: 'brand' | 'rival', asked: string, brands: readonly Brand[]): Brand {
  const found = brands.find(({ id }) => id === asked)
  if (found !== undefined) return found
  const kind = name === 'brand' ? 'own brands' : 'rivals'
  throw new UsageError(
    `${name}: got "${clip(asked, 60)}"; ${kind} are: ${listSome(brands.map(({ id }) => id)) || 'none'}`,
  )
}

async function relationsIn({ pool, schema }: Warehouse): Promise<Set<string>> {
  const { rows } = await pool.query<{ name: string }>(
    'select c.relname as name from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1',
    [schema],
  )
  return new Set(rows.map(({ name }) => name))
}

/** Why a section cannot be read, and what helps; undefined if it can. */
function missingFor(section: AnySection, { filters, reports }: InsightsRequest, relations: ReadonlySet<string>) {
  const { views, report } = needsFor(section, filters, reports)
  if (section === 'source-prompts' && reportBy(reports, DOMAINS_BY_PROMPT, 'domains') === undefined)
    return 'No report of domains by prompt and model is configured.'
  for (const view of views) {
    if (!relations.has(view))
      return `The view ${view} is not there: "visibility-sync migrate" names the report that it needs.`
  }
  if (report === undefined) return undefined
  const name = reportBy(reports, report)?.name
  if (name === undefined)
    return `No report by ${report.join(', ')} is configured: add one under "reports", and run "visibility-sync sync".`
  return relations.has(name) ? undefined : `The table ${name} is not there yet: run "visibility-sync sync".`
}
