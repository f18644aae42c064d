import { createHash } from 'node:crypto'
import { sql } from 'kysely'
import type { Config, ReportConfig } from '../../core/config/load.ts'
import { codeOf, messageOf } from '../../core/errors.ts'
import { quote } from '../../core/identifier.ts'
import { BI_VIEWS, type BiView, type Dimension, EXTRA_STREAMS, type ReportSubject } from '../../core/vocabulary.ts'
import { reportStream, streamKinds } from '../../streams/registry.ts'
import type { Warehouse } from '../connect.ts'
import { dataTable, runText } from '../database.ts'
import type { Transaction } from '../transaction.ts'
import { byChannel, CHANNEL_TWINS, modelTwin, VIEWS, type ViewNote } from './catalogue.ts'
import { fillIn, REPORT, readSql, withParts } from './sql-files.ts'
import { readRelations, readReports, SQL_TYPES } from './stream-tables.ts'

export interface ViewResult {
  made: BiView[]
  remade: BiView[]
  left: { name: BiView; reason: string }[]
  /** Views that are there but have no rows, and why. */
  empty: { name: BiView; reason: string }[]
}

/**
 * Makes the views for BI from sql/views, those whose report is configured. A view is replaced, never dropped, and only
 * when its text changed: what people built on top of it stays, and nobody waits for a lock on every run. Views of domains and
 * URLs are made in any case: few services offer those reports, and what reads the catalogue must not fail for it.
 */
export async function applyViews(tx: Transaction, config: Config): Promise<ViewResult> {
  const there = await readRelations(tx, tx.schema)
  const fingerprints = await readFingerprints(tx)
  const earlier = await readReports(tx)
  const result: ViewResult = { made: [], remade: [], left: [], empty: [] }
  for (const name of BI_VIEWS) {
    const view = VIEWS[name]
    const { needs, of } = view
    // Rows of domains and URLs are shown even if the report is no longer configured.
    const report = reportOf(config.reports, view) ?? (of && reportOf(earlier, view))
    if (report === undefined && needs.length > 0) {
      const reason = (kind: string) => `needs an unfiltered ${kind} by ${needs.join(', ')}, and none is configured`
      if (of === undefined) {
        result.left.push({ name, reason: reason('report') })
        continue
      }
      result.empty.push({ name, reason: reason(`report of ${of}`) })
    }
    if (there.has(name) && !fingerprints.has(name)) {
      result.left.push({ name, reason: 'has a name that another table or view of this schema took first' })
      continue
    }
    const text = viewText(name, tx, report)
    if (there.has(name) && fingerprints.get(name) === fingerprintOf(text)) continue
    const problem = await replace(tx, text)
    if (problem !== undefined) {
      result.left.push({ name, reason: problem })
      continue
    }
    await saveFingerprint(tx, name, text)
    result.made.push(name)
    if (fingerprints.has(name) && !there.has(name)) result.remade.push(name)
  }
  return result
}

function viewText(name: BiView, warehouse: Warehouse, report: ReportConfig | undefined): string {
  const { of, needs } = VIEWS[name]
  const model = modelTwin(name)
  const text = withParts(readSql(`views/${model ?? name}`))
  const own = model === undefined ? text : byChannel(text)
  const isEmpty = report === undefined && of !== undefined
  return fillIn(isEmpty ? own.replaceAll(REPORT, () => noRows(needs, of)) : own, warehouse, report?.name)
}

/** Takes the place of a report that is not configured: its columns, so that the view keeps its types once it is. */
function noRows(dimensions: Dimension[], of: ReportSubject): string {
  const { columns } = reportStream({ name: 'none', of, dimensions, filters: [] })
  const nulls = columns.map(({ name, type }) => `null::${SQL_TYPES[type]} as ${quote(name)}`)
  return `(select null::text collate "C" as project_id, ${nulls.join(', ')} where false)`
}

/** The report that a view reads: the one with its dimensions or, for counts that add up, with the fewest more. */
function reportOf(reports: readonly ReportConfig[], { needs, of, mayBeFiner }: ViewNote): ReportConfig | undefined {
  const exact = reportBy(reports, needs, of)
  if (exact !== undefined || !mayBeFiner) return exact
  return reports
    .filter((report) => report.of === of && isWhole(report) && isFiner(report.dimensions, needs))
    .toSorted((a, b) => a.dimensions.length - b.dimensions.length)[0]
}

export function isWhole({ filters, having }: Pick<ReportConfig, 'filters' | 'having'>): boolean {
  return filters.length === 0 && having === undefined
}

/** Rows by tag overlap, so they do not add up. */
function isFiner(dimensions: readonly Dimension[], needs: readonly Dimension[]): boolean {
  return needs.every((name) => dimensions.includes(name)) && !dimensions.includes('tag_id')
}

/** Runs a text if it differs from the last one; true if it did. */
export async function applyText(
  tx: Transaction,
  name: string,
  { text, fingerprints }: { text: string; fingerprints: ReadonlyMap<string, string> },
): Promise<boolean> {
  if (fingerprints.get(name) === fingerprintOf(text)) return false
  await runText(tx.db, text)
  await saveFingerprint(tx, name, text)
  return true
}

export function reportBy(
  reports: readonly ReportConfig[],
  needs: readonly Dimension[],
  subject: ReportSubject = 'brands',
): ReportConfig | undefined {
  const wanted = [...needs].sort().join()
  return reports.find(
    ({ dimensions, of = 'brands', ...rest }) =>
      of === subject && isWhole(rest) && [...dimensions].sort().join() === wanted,
  )
}

interface Facts {
  earlier: readonly ReportConfig[]
  filled: ReadonlySet<string>
}

const NOTHING_READ: Facts = { earlier: [], filled: new Set() }

export async function readFacts(warehouse: Warehouse, config: Config): Promise<Facts> {
  const { db, schema } = warehouse
  const earlier = await readReports(warehouse)
  const there = await readRelations(warehouse, schema)
  const channelReports = channelTwinsOf([...config.reports, ...earlier]).map(({ report }) => report)
  const tables = new Set([...Object.keys(LEAVES), 'chat_contents', ...channelReports])
  const questions = [...tables]
    .filter((name) => there.has(name))
    .map((name) => sql`select ${name}::text as name where exists (select from ${dataTable(name)})`)
  const { rows } = await sql<{ name: string }>`${sql.join(questions, sql` union all `)}`.execute(db)
  return { earlier, filled: new Set(rows.map(({ name }) => name)) }
}

/** Tables that no view or page reads, and the stream that fills each. */
const LEAVES: Record<string, string> = {
  prompt_suggestions: 'prompt_suggestions',
  prompt_suggestion_tags: 'prompt_suggestions',
  domain_classifications: 'domain_classifications',
  url_classifications: 'url_classifications',
}

/** Reports and views by channel that are there by model, too, each with the report that fills it. */
function channelTwinsOf(reports: readonly ReportConfig[]): { name: string; report: string }[] {
  const names = ['brand_daily_by_channel', 'brand_daily_by_topic_channel', 'brand_daily_by_prompt_channel']
  const views = Object.entries(CHANNEL_TWINS) as [BiView, BiView][]
  return [
    ...names
      .filter((twin) => reports.some(({ name }) => name === twin.replace('channel', 'model')))
      .map((name) => ({ name, report: name })),
    ...views
      .filter(([model]) => reportBy(reports, VIEWS[model].needs) !== undefined)
      .map(([, name]) => ({ name, report: reportBy(reports, VIEWS[name].needs)?.name ?? name })),
  ]
}

/**
 * The tables and views without rows that nothing fills: their stream is not configured, or the service does not offer it. Those
 * by channel are filled if the service lists its channels.
 */
export function unusedRelations(config: Config, { earlier, filled }: Facts = NOTHING_READ): string[] {
  const isRead = (stream: string) =>
    streamKinds(config).some(({ name }) => name === stream) &&
    (config.extras !== 'auto' || !EXTRA_STREAMS.some((name) => name === stream) || filled.has(stream))
  const reports = [...config.reports, ...earlier]
  const hasNoReport = (name: BiView) => {
    const { of } = VIEWS[name]
    return of !== undefined && reportOf(reports, VIEWS[name]) === undefined
  }
  const twins = isRead('model_channels') ? [] : channelTwinsOf(reports).filter(({ report }) => !filled.has(report))
  return [
    ...Object.keys(LEAVES).filter((table) => !isRead(LEAVES[table]!) && !filled.has(table)),
    ...twins.map(({ name }) => name),
    ...(config.chat_contents === undefined && !filled.has('chat_contents') ? ['chat_contents'] : []),
    ...BI_VIEWS.filter(hasNoReport),
  ]
}

/** The views by model whose twins have rows of every project. Packs use the twins instead. */
export async function viewsByChannel(
  { db }: Warehouse,
  reports: readonly ReportConfig[],
): Promise<ReadonlySet<string>> {
  const found = new Set<string>()
  for (const [view, twin] of Object.entries(CHANNEL_TWINS) as [BiView, BiView][]) {
    const [models, channels] = [view, twin].map((name) => reportBy(reports, VIEWS[name].needs)?.name)
    if (models === undefined || channels === undefined) continue
    const { rows } = await sql<{ is_whole: boolean | null }>`
      select bool_and(exists (
        select from ${dataTable(channels)} c
        where c.project_id = p.project_id and c.model_channel_id is not null)) as is_whole
      from data.projects p
      where exists (select from ${dataTable(models)} m where m.project_id = p.project_id)`.execute(db)
    if (rows[0]!.is_whole === true) found.add(view)
  }
  return found
}

function fingerprintOf(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}

export async function readFingerprints({ db }: Warehouse): Promise<Map<string, string>> {
  const made = await db.selectFrom('ops.views').select(['name', 'fingerprint']).execute()
  return new Map(made.map(({ name, fingerprint }) => [name, fingerprint]))
}

async function saveFingerprint({ db }: Warehouse, name: string, text: string): Promise<void> {
  const fingerprint = fingerprintOf(text)
  await db
    .insertInto('ops.views')
    .values({ name, fingerprint })
    .onConflict((conflict) => conflict.column('name').doUpdateSet({ fingerprint }))
    .execute()
}

/** Undefined if it worked. Somebody's own view may stand on a column whose type would change: then the old one stays. */
async function replace({ db }: Transaction, text: string): Promise<string | undefined> {
  await sql`savepoint view`.execute(db)
  try {
    await runText(db, text)
    await sql`release savepoint view`.execute(db)
    return undefined
  } catch (error) {
    await sql`rollback to savepoint view`.execute(db)
    // Columns cannot be renamed or retyped in place, or the object belongs to somebody else.
    if (!['42P16', '42501', '42809'].includes(codeOf(error) ?? '')) throw error
    return `could not be replaced, so it stays as it is (${messageOf(error)})`
  }
}
