import { type Day, dayOf, daysIn } from '../core/day.ts'
import { IncompleteError } from '../core/errors.ts'
import { quote } from '../core/identifier.ts'
import { METRICS, type Metric } from '../core/vocabulary.ts'
import { readCoverage } from '../ledger/coverage.ts'
import { brandReport } from '../streams/brand-report.ts'
import { RowList } from '../streams/stream.ts'
import { Density } from '../sync/plan/density.ts'
import { WindowFeed } from '../sync/plan/window-feed.ts'
import { readWindow } from '../sync/read/read-window.ts'
import { slowQuery, tableName } from '../warehouse/connect.ts'
import { auditChats, promptReport } from './audit-chats.ts'
import { type AuditContext, type AuditedStream, UNKNOWN } from './audit-context.ts'
import { readSample, sampleRange } from './sample.ts'
import { addUp, type DaySums, differingDays, fromRows } from './sums.ts'

/*
 * One coarse report of the whole history, compared with the sums in the warehouse: cheap enough to run every day, and
 * it finds every day whose history the service rewrote in a way that changes a total.
 *
 * Left out, with the reason: breakdowns by tag (a prompt carries several tags, so their rows overlap and do not add
 * up), and reports with filters (they see only a part).
 */

const COARSE = brandReport({ name: 'audit', dimensions: ['date'], filters: [] })
const ADDITIVE: Metric[] = [
  'mention_count',
  'visibility_count',
  'visibility_total',
  'sentiment_sum',
  'sentiment_count',
  'position_sum',
  'position_count',
]
/** Audits one project: every report that adds up, and the chats. `only` restricts it to some days. */
export async function auditProject(context: AuditContext, only?: ReadonlySet<Day>): Promise<AuditedStream[]> {
  const { services, project } = context
  const { config, warehouse } = services
  const results: AuditedStream[] = []
  const candidates: { name: string; table: string; exact: boolean; columns: Metric[]; days: Set<Day> }[] = []
  const today = dayOf(services.clock())
  const everything = { from: '0001-01-01', to: '9999-12-31' }
  const coveredDays = async (stream: string) => {
    const coverage = await readCoverage(warehouse, { projectId: project.id, stream }, everything)
    // A day that is not over moves by itself, and is read again anyway.
    const days = coverage.filter(
      ({ state, date }) => (state === 'read' || state === 'stale') && date < today && (only?.has(date) ?? true),
    )
    return new Set(days.map(({ date }) => date))
  }
  for (const report of config.reports) {
    const { of = 'brands' } = report
    const leftOut =
      of !== 'brands'
        ? `it is about ${of}, whose rows overlap: an answer cites several, so their sums say nothing about the total`
        : report.dimensions.includes('tag_id')
          ? 'rows by tag overlap: a prompt carries several tags, so their sums say nothing about the total'
          : report.filters.length > 0
            ? 'it has filters, so it sees only a part of the total'
            : undefined
    const days = await coveredDays(report.name)
    if (leftOut !== undefined)
      results.push({
        project_id: project.id,
        stream: report.name,
        columns: [],
        days_compared: 0,
        differing: [],
        left_out: leftOut,
      })
    else if (days.size > 0) {
      const exact = report.dimensions.length === 1
      candidates.push({ name: report.name, table: report.name, exact, columns: exact ? [...METRICS] : ADDITIVE, days })
    }
  }
  const chatDays = config.streams.includes('chats') ? await coveredDays('chats') : new Set<Day>()
  const all = new Set([...candidates.flatMap(({ days }) => [...days]), ...chatDays])
  if (all.size === 0) return results

  const coarse = await readCoarse(context, [...all].sort())
  for (const candidate of candidates) {
    const base = { project_id: project.id, stream: candidate.name }
    const columns = candidate.exact
      ? candidate.columns
      : await columnsThatAddUp(context, candidate.name, candidate.days, coarse)
    if (columns.length === 0) {
      const left_out =
        'on the sampled days its rows do not add up to the total of this service, so a difference would mean nothing'
      results.push({ ...base, columns: [], days_compared: 0, differing: [], left_out })
      continue
    }
    const sums = await warehouseSums(context, candidate.table, columns, candidate.days)
    const differing = differingDays(coarse, sums, columns, candidate.days)
    results.push({ ...base, columns, days_compared: candidate.days.size, differing })
  }
  if (chatDays.size > 0) {
    const byPrompt = results.find(({ stream, left_out }) => stream === promptReport(context) && left_out === undefined)
    results.push(await auditChats(context, chatDays, { coarse, byPrompt }))
  }
  return results
}

/** The total of each day and brand, in as few requests as it takes. */
async function readCoarse(context: AuditContext, days: Day[]): Promise<DaySums> {
  const { services, project } = context
  const today = dayOf(services.clock())
  const range = { from: days[0]!, to: days.at(-1)! }
  const reference =
    services.config.reports.find(
      ({ dimensions, filters, of = 'brands' }) => of === 'brands' && dimensions.length === 1 && filters.length === 0,
    )?.name ?? ''
  const coverage = await readCoverage(services.warehouse, { projectId: project.id, stream: reference }, range)
  const feed = new WindowFeed(days, new Density(coverage, today), () => context.limit.current)
  const sums: DaySums = new Map()
  for (let window = feed.next(); window !== undefined; window = feed.next()) {
    const answer = await readWindow(
      { ...services, limit: context.limit, answers: context.answers },
      { caller: project.caller, stream: COARSE, range: window, known: UNKNOWN },
      context.call,
      () => new RowList(),
    )
    if (answer.kind === 'rows') {
      if (answer.sifted.rejects.length > 0) throw new IncompleteError(`audit: ${answer.sifted.rejects[0]!.reason}`)
      addUp(sums, fromRows(COARSE, answer.sifted.rows.values), METRICS)
      feed.density.learn(window, new Map(daysIn(window).map((day) => [day, sums.get(day)?.size ?? 0])))
    }
    if (answer.kind === 'rows') feed.markLoaded()
    else feed.split(window)
  }
  return sums
}

/** Asks the service itself for a few days at the finer grain: only columns that add up there can be compared. */
async function columnsThatAddUp(
  context: AuditContext,
  stream: string,
  days: ReadonlySet<Day>,
  coarse: DaySums,
): Promise<Metric[]> {
  const fine = brandReport(context.services.config.reports.find(({ name }) => name === stream)!)
  const { rows, range } = await readSample(context, fine, sampleRange(days))
  const sums: DaySums = new Map()
  addUp(sums, fromRows(fine, rows), ADDITIVE)
  const sampled = new Set([...days].filter((day) => day >= range.from && day <= range.to))
  return ADDITIVE.filter((column) => differingDays(coarse, sums, [column], sampled).length === 0)
}

async function warehouseSums(
  { services, project }: AuditContext,
  table: string,
  columns: readonly Metric[],
  days: ReadonlySet<Day>,
): Promise<DaySums> {
  const { warehouse } = services
  const sorted = [...days].sort()
  const { rows } = await warehouse.pool.query<{ date: Day; brand_id: string } & Record<string, number | null>>(
    slowQuery(
      `select date, brand_id, ${columns.map((column) => `sum(${quote(column)}) as ${quote(column)}`).join(', ')}
       from ${tableName(warehouse, table)} where project_id = $1 and date between $2 and $3 group by date, brand_id`,
      [project.id, sorted[0], sorted.at(-1)],
    ),
  )
  const sums: DaySums = new Map()
  addUp(sums, rows, columns)
  return sums
}
