import * as z from 'zod'
import type { ReportConfig } from '../core/config/load.ts'
import { addDays, countDays, type Day, isDay, type Range } from '../core/day.ts'
import { UsageError } from '../core/errors.ts'
import { quote } from '../core/identifier.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import {
  address,
  comparedRange,
  type Filters,
  type Grain,
  type PagePath,
  type Subject,
} from '../web/insights/filters.ts'
import { type DaysRead, openReader, type Section } from '../web/insights/read-page.ts'
import { type Context, isWhole, reportName, type Statement, text } from '../web/insights/sql.ts'
import { rangeOf } from '../web/query.ts'
import type { Answer } from './answer.ts'
import { find, listNames, type Named } from './names.ts'
import { notesOnDays } from './phrases.ts'

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

export interface Tool {
  name: string
  title: string
  description: string
  input: z.ZodObject
  output: z.ZodObject
  answer(desk: Desk, input: never): Promise<Answer>
}

/** Keeps the type of the input between the schema and the answer. */
export function defineTool<I extends z.ZodObject>(
  tool: Omit<Tool, 'input' | 'answer'> & { input: I; answer(desk: Desk, input: z.infer<I>): Promise<Answer> },
): Tool {
  return tool as unknown as Tool
}

const WEEKS = 4
const name = (about: string) => z.string().min(1).max(500).describe(about)
const day = (about: string) => z.string().refine(isDay, 'a calendar date, YYYY-MM-DD').describe(about)
const include_sql = z.boolean().default(false).describe('Also give the SQL that was run.')

export const ofProject = {
  project: name('Name or id of the project; needed if there are several.').optional(),
  include_sql,
}
export const ofPeriod = {
  weeks: z.int().min(1).max(104).optional().describe(`The last so many complete weeks; ${WEEKS} by default.`),
  from: day('First day, instead of weeks.').optional(),
  to: day('Last day.').optional(),
  compare: z.enum(['before', 'year', 'none']).default('before').describe('With the period before, or a year ago.'),
}
export const ofList = {
  limit: z.int().min(1).max(50).default(10),
  offset: z.int().min(0).max(100_000).default(0),
}
export const aName = name
export const aDay = day

interface Asked {
  project?: string | undefined
  weeks?: number | undefined
  from?: string | undefined
  to?: string | undefined
  compare?: 'before' | 'year' | 'none' | undefined
}

export async function findProject(desk: Desk, asked: string | undefined): Promise<Named> {
  const projects = await desk.all<Named>(
    `select project_id as id, coalesce(name, project_id) as name from ${desk.of('projects')} order by 2, 1`,
  )
  if (asked !== undefined) return find('project', asked, projects)
  if (projects.length === 1) return projects[0]!
  if (projects.length === 0) throw new UsageError('there is no project yet: run "visibility-sync sync" first')
  // An answer about the first of several would pass for one about all.
  throw new UsageError(`there are several projects; say which: ${listNames(projects)}`)
}

/** Four complete weeks, the newest last, unless other days are asked for. */
async function periodOf(desk: Desk, project: string, { weeks, from, to }: Asked): Promise<Range> {
  if (weeks !== undefined && (from !== undefined || to !== undefined))
    throw new UsageError('weeks, from, to: got both; allowed: either weeks, or from and to')
  if (from !== undefined && to !== undefined) return rangeOf({ from, to }, to, desk.today)
  const [found] = await desk.all<{ week: Day | null; last: Day | null }>(
    `select max(w.week) filter (where w.days = 7) as week, max(w.last) as last
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

export async function openQuestion(
  desk: Desk,
  asked: Asked,
  { path = '/insights', subject = {}, ...more }: Partial<Filters> & { path?: PagePath; subject?: Subject } = {},
) {
  const project = await findProject(desk, asked.project)
  const range = await periodOf(desk, project.id, asked)
  const comparison = asked.compare ?? 'before'
  const filters: Filters = {
    ...{ path: '/insights', subject: {}, project: project.id, period: undefined, usualPeriod: '90d' },
    ...{ range, comparison, before: comparedRange(range, comparison), grain: 'week' satisfies Grain },
    ...{ brand: undefined, rival: undefined, week: undefined, page: 1, print: false, ...more },
  }
  const { warehouse, reports } = desk
  const reader = await openReader(warehouse, { reports, filters })
  const { brands, context } = reader
  const owns = brands.filter(({ isOwn }) => isOwn)
  const rivals = brands.filter(({ isOwn }) => !isOwn)
  return {
    ...{ desk, project, filters, range, reader, context, brands, owns, rivals },
    /** One own brand. Other statements are then about it. */
    own(name: string | undefined) {
      const own = name === undefined ? owns[0] : find('own brand', name, owns)
      if (own === undefined)
        throw new UsageError('no brand of this project is marked as own: set labels.brands in the configuration')
      context.own = text(own.id)
      filters.brand = own === owns[0] ? undefined : own.id
      return own
    },
    /** The rows of a section or statement, or why it has none. */
    async read<R extends object>(
      asked: Section | ((context: Context) => Statement),
      wrap: (sql: string) => string = (sql) => sql,
    ): Promise<{ rows: R[]; missing?: string }> {
      const { sql, missing } = await reader.prepare(asked)
      return missing === undefined ? { rows: await desk.all<R>(wrap(sql)) } : { rows: [], missing }
    },
    /** What the days of a stream leave open, and what it is compared with. */
    async days(stream = reportName(reports)): Promise<{ notes: string[]; comparedWith: Range | undefined }> {
      const read: DaysRead = await reader.daysOf(stream, range, filters.before)
      const incomparable = reader.whyIncomparable(read, filters.before)
      const notes = notesOnDays(read, range)
      if (incomparable !== undefined) return { notes: [...notes, incomparable], comparedWith: undefined }
      const before = countDays(filters.before) - read.whole_days_before
      const gap = before === 0 ? [] : [`In the period before, ${before} days are incomplete.`]
      return { notes: [...notes, ...gap], comparedWith: filters.before }
    },
    link: (anchor = '', { path: page = path, ...of }: Subject & { path?: PagePath } = subject) =>
      desk.pages && `${desk.pages}${address({ ...filters, subject: of }, page, anchor)}`,
  }
}

/** The desk of one call, in its transaction. */
export async function openDesk(
  warehouse: Warehouse,
  { reports, ...rest }: Pick<Desk, 'reports' | 'today' | 'pages'>,
): Promise<Desk> {
  const { schema, pool } = warehouse
  const of = (relation: string) => (schema === 'visibility' ? `visibility.${relation}` : quote(schema, relation))
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
  const sql: string[] = []
  const all = async <R extends object>(statement: string) => {
    sql.push(statement)
    return (await pool.query<R>(statement)).rows
  }
  return { ...rest, warehouse, reports: reports.filter(({ name }) => readable.has(name)), of, all, sql }
}
