import * as z from 'zod'
import type { ReportConfig } from '../core/config/load.ts'
import { addDays, countDays, type Day, isDay, type Range } from '../core/day.ts'
import { UsageError } from '../core/errors.ts'
import { quote } from '../core/identifier.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import {
  address,
  comparedRange,
  defaultGrain,
  type Filters,
  type PagePath,
  type Subject,
} from '../web/insights/filters.ts'
import { openReader, type Section } from '../web/insights/read-page.ts'
import { type Context, isWhole, reportName, type Statement, text } from '../web/insights/sql.ts'
import { rangeOf } from '../web/query.ts'
import type { Answer, Columns } from './answer.ts'
import { find, listed, type Named } from './names.ts'
import { noteOnDays } from './phrases.ts'

/* A question about a project and a period, and the database in one read-only transaction to answer it. */

/** What a tool works with. */
export interface Desk {
  warehouse: Warehouse
  /** Those that the role may read. */
  reports: readonly ReportConfig[]
  today: Day
  /** Where people reach the pages of `serve`; undefined if that is not known. */
  pages: string | undefined
  /** Rows of a statement, which `sql` remembers. */
  all<R extends object>(sql: string): Promise<R[]>
  sql: string[]
  /** The quoted name of a table or view. */
  of(name: string): string
}

export interface Tool<I extends z.ZodObject = z.ZodObject> {
  name: string
  title: string
  description: string
  input: I
  columns: Columns
  /** What the rows are. */
  about: string
  answer(desk: Desk, input: z.infer<I>): Promise<Answer>
}

/** Keeps the type of the input between the schema and the answer. */
export const defineTool = <I extends z.ZodObject>(tool: Tool<I>): Tool => tool as unknown as Tool

const WEEKS = 4
export const aName = (about: string) => z.string().min(1).max(500).describe(about)
export const aDay = (about: string) => z.string().refine(isDay, 'a calendar date, YYYY-MM-DD').describe(about)

export const ofProject = {
  project: aName('Name or id of the project; needed if there are several.').optional(),
  include_sql: z.boolean().default(false).describe('Also give the SQL that was run.'),
}
export const ofPeriod = {
  weeks: z.int().min(1).max(104).optional().describe(`The last so many complete weeks; ${WEEKS} by default.`),
  from: aDay('First day, instead of weeks.').optional(),
  to: aDay('Last day.').optional(),
}
export const ofComparison = {
  compare: z.enum(['before', 'year', 'none']).default('before').describe('With the period before, or a year ago.'),
}
export const ofList = { limit: z.int().min(1).max(50).default(20), offset: z.int().min(0).max(100_000).default(0) }

type Asked = Partial<Record<'project' | 'from' | 'to', string | undefined>> & {
  weeks?: number | undefined
  compare?: 'before' | 'year' | 'none' | undefined
}

export async function findProject(desk: Desk, asked: string | undefined): Promise<Named> {
  const projects = await desk.all<Named>(
    `select project_id as id, coalesce(name, project_id) as name from ${desk.of('projects')} order by 2, 1`,
  )
  const [first] = projects
  if (first === undefined) throw new UsageError('there is no project yet: run "visibility-sync sync" first')
  if (asked !== undefined) return find('project', asked, projects)
  // An answer about the first of several would pass for one about all.
  if (projects.length > 1)
    throw new UsageError(`there are several projects, so name one: ${listed('project', projects)}`)
  return first
}

/** Four complete weeks, the newest last, unless other days are asked for. */
async function periodOf(desk: Desk, project: string, { weeks, from, to }: Asked): Promise<Range> {
  if (weeks !== undefined && (from ?? to) !== undefined)
    throw new UsageError('weeks, from, to: got both; allowed: either weeks, or from and to')
  if (from !== undefined && to !== undefined) return rangeOf({ from, to }, to, desk.today)
  const [found] = await desk.all<{ week: Day | null; last: Day | null }>(
    `select max(week) filter (where days = 7) as week, max(last) as last
from (
  select date_trunc('week', s.date::timestamp)::date as week, count(*) filter (where ${isWhole('s')}) as days, max(s.date) as last
  from ${desk.of('data_status')} s
  where s.project_id = ${text(project)} and s.stream = ${text(reportName(desk.reports))}
  group by 1
) w`,
  )
  const last = to ?? (found?.week ? addDays(found.week, 6) : (found?.last ?? desk.today))
  return rangeOf({ from: from ?? addDays(last, 1 - 7 * (weeks ?? WEEKS)), to: last }, last, desk.today)
}

export type Question = Awaited<ReturnType<typeof openQuestion>>

export async function openQuestion(desk: Desk, asked: Asked, chosen: Pick<Partial<Filters>, 'subject' | 'grain'> = {}) {
  const { warehouse, reports, pages } = desk
  const project = await findProject(desk, asked.project)
  const range = await periodOf(desk, project.id, asked)
  const comparison = asked.compare ?? 'none'
  const filters: Filters = {
    ...{
      path: '/insights',
      subject: {},
      project: project.id,
      period: undefined,
      usualPeriod: '90d',
      range,
      comparison,
    },
    ...{ before: comparedRange(range, comparison), grain: defaultGrain(range), brand: undefined, rival: undefined },
    ...{ week: undefined, page: 1, print: false, ...chosen },
  }
  const reader = await openReader(warehouse, { reports, filters })
  const { brands, context } = reader
  const owns = brands.filter(({ isOwn }) => isOwn)
  return {
    ...{ desk, project, filters, range, context, brands, owns, rivals: brands.filter(({ isOwn }) => !isOwn) },
    /** One own brand. Statements are then about it. */
    own(name?: string) {
      const own = name === undefined ? owns[0] : find('own brand', name, owns)
      if (own === undefined)
        throw new UsageError('no brand of this project is marked as own: set labels.brands in the configuration')
      context.own = text(own.id)
      filters.brand = own === owns[0] ? undefined : own.id
      return own
    },
    /** The rows of a section or statement, or why it has none. */
    async read<R extends object>(
      of: Section | ((context: Context) => Statement),
      wrap: (sql: string) => string = (sql) => sql,
    ): Promise<{ rows: R[]; missing?: string }> {
      const { sql, missing } = await reader.prepare(of)
      return missing === undefined ? { rows: await desk.all<R>(wrap(sql)) } : { rows: [], missing }
    },
    /** What the days of a stream leave open, and what they are compared with. */
    async days(stream = reportName(reports)): Promise<{ notes: string[]; comparedWith: Range | undefined }> {
      const read = await reader.daysOf(stream, range, filters.before)
      const note = noteOnDays(read, range)
      if (comparison === 'none') return { notes: [note], comparedWith: undefined }
      const incomparable = reader.incomparable ?? reader.whyIncomparable(read, filters.before)
      if (incomparable !== undefined) return { notes: [note, incomparable], comparedWith: undefined }
      const gap = countDays(filters.before) - read.whole_days_before
      return {
        notes: [note, ...(gap === 0 ? [] : [`In the period before, ${gap} days are incomplete.`])],
        comparedWith: filters.before,
      }
    },
    link(anchor = '', path: PagePath = '/insights', subject: Subject = {}) {
      const grain = filters.grain === 'month' ? defaultGrain(range) : filters.grain
      return pages && `${pages}${address({ ...filters, grain, subject }, path, anchor)}`
    },
  }
}

/** The desk of one call, in its transaction. */
export async function openDesk(
  warehouse: Warehouse,
  { reports, ...rest }: Pick<Desk, 'reports' | 'today' | 'pages'>,
): Promise<Desk> {
  const { schema, pool } = warehouse
  const { rows } = await pool.query<{ name: string }>(
    `select c.relname as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = $1 and c.relkind in ('r', 'p', 'v') and has_table_privilege(c.oid, 'select')`,
    [schema],
  )
  const readable = new Set(rows.map(({ name }) => name))
  if (!readable.has('data_status'))
    throw new UsageError(
      'the tables are not there, or the role may not read them: run "visibility-sync sync" or "grant"',
    )
  const of = (name: string) => (schema === 'visibility' ? `visibility.${name}` : quote(schema, name))
  const sql: string[] = []
  const all = async <R extends object>(statement: string) => {
    sql.push(statement)
    return (await pool.query<R>(statement)).rows
  }
  return { ...rest, warehouse, reports: reports.filter(({ name }) => readable.has(name)), of, all, sql }
}
