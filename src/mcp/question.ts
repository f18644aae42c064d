import { type RawBuilder, sql } from 'kysely'
import * as z from 'zod'
import type { ReportConfig } from '../core/config/load.ts'
import { addDays, type Day, isDay } from '../core/day.ts'
import { UsageError } from '../core/errors.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { dataTable, runText, writtenOut } from '../warehouse/database.ts'
import { fillIn, readSql } from '../warehouse/schema/sql-files.ts'
import {
  address,
  comparedRange,
  defaultGrain,
  type Filters,
  type Grain,
  startedPeriods,
} from '../web/insights/filters.ts'
import { openReader, readableRelations } from '../web/insights/read-page.ts'
import { type Fragment, reportName, type Write } from '../web/insights/sql.ts'
import { rangeOf } from '../web/query.ts'
import { type Answer, type Columns, find, listed, type Named, type Sentence } from './answer.ts'

/* A question about a project and a period, and the database in one read-only transaction to answer it. */

export interface Tool<I extends z.ZodRawShape = z.ZodRawShape> {
  name: string
  description: string
  /** What it takes besides a project and the part of the list. */
  input: I
  columns: Columns
  about: string
  answer(desk: Desk, asked: z.infer<z.ZodObject<I>> & Common): Promise<Answer>
}

export const defineTool = <I extends z.ZodRawShape>(tool: Tool<I>): Tool => tool as unknown as Tool

const [WEEKS, WEEKS_BY_MONTH] = [4, 26]
export const aName = (about: string) => z.string().min(1).max(500).describe(about)
export const aDay = (about: string) => z.string().refine(isDay, 'a calendar date, YYYY-MM-DD').describe(about)

export const COMMON = {
  project: aName('Name or id of the project; needed if there are several.').optional(),
  limit: z.int().min(1).max(50).default(20),
  offset: z.int().min(0).max(100_000).default(0),
  include_sql: z.boolean().default(false).describe('Also give the SQL that was run.'),
}
export type Common = z.infer<z.ZodObject<typeof COMMON>>
export const PERIOD = {
  weeks: z.int().min(1).max(104).optional().describe(`The last so many complete weeks; ${WEEKS} by default.`),
  from: aDay('First day, instead of weeks.').optional(),
  to: aDay('Last day.').optional(),
}
export const COMPARISON = {
  compare: z.enum(['before', 'year', 'none']).default('before').describe('With the period before, or a year ago.'),
}
type Asked = Common & Partial<z.infer<z.ZodObject<typeof PERIOD & typeof COMPARISON>>>

export type Desk = Awaited<ReturnType<typeof openDesk>>

/** What a tool works with in one call. `pages` is where people reach those of `serve`, if that is known. */
export async function openDesk(warehouse: Warehouse, all: readonly ReportConfig[], today: Day, pages?: string) {
  const readable = await readableRelations(warehouse)
  if (!readable.has('data_status'))
    throw new UsageError('the tables are not there, or the role may not read them: run "sync", or "grant" for the role')
  const reports = all.filter(({ name }) => readable.has(name))
  const statements: string[] = []
  const run = <R>(statement: RawBuilder<R>) => {
    const text = writtenOut(warehouse.db, statement)
    statements.push(text)
    return runText<R>(warehouse.db, text)
  }
  return {
    ...{ warehouse, reports, today, pages, statements, run },
    rows<R>(file: string, values: Record<string, string> = {}) {
      const parts = fillIn(readSql(`queries/mcp/${file}`).trim(), warehouse).split(/\{(\w+)\}/)
      const valueOf = (name: string) => ({ ...values, main_stream: reportName(reports) })[name]
      const filled = parts.map((part, index) => (index % 2 === 0 ? sql.raw(part) : valueOf(part)))
      return run(sql<R>`${sql.join(filled, sql``)}`)
    },
  }
}

export async function findProject({ run }: Desk, asked: string | undefined) {
  const projects = await run(
    sql<Named>`select project_id as id, coalesce(name, project_id) as name from ${dataTable('projects')} order by 2, 1`,
  )
  if (asked !== undefined) return find('project', asked, projects)
  // An answer about the first of several would pass for one about all.
  if (projects.length > 1)
    throw new UsageError(`there are several projects, so name one: ${listed('project', projects)}`)
  if (projects[0] === undefined) throw new UsageError('there is no project yet: run "npx visibility-sync sync" first')
  return projects[0]
}

export type Question = Awaited<ReturnType<typeof openQuestion>>

export async function openQuestion(desk: Desk, asked: Asked, grain?: Grain) {
  const { warehouse, reports, today, pages } = desk
  const project = await findProject(desk, asked.project)
  if (asked.weeks !== undefined && (asked.from ?? asked.to) !== undefined)
    throw new UsageError('weeks, from, to: got both; allowed: either weeks, or from and to')
  const [found] = await desk.rows<{ day: Day | null }>('last_day', { project: project.id })
  const to = asked.to ?? found?.day ?? today
  const { weeks = grain === 'month' ? WEEKS_BY_MONTH : WEEKS, from = addDays(to, 1 - 7 * weeks) } = asked
  const range = rangeOf({ from, to }, to, today)
  const { compare: comparison = 'none' } = grain ? {} : asked
  const before = comparedRange(range, comparison)
  const filters: Filters = {
    ...{ path: '/insights', subject: {}, project: project.id, range, comparison, before },
    ...{ period: undefined, usualPeriod: '90d', grain: grain ?? defaultGrain(range) },
    ...{ brand: undefined, rival: undefined, week: undefined, page: 1, print: false },
  }
  const reader = await openReader(warehouse, { reports, filters })
  const { brands, context, chooseRival } = reader
  const owns = brands.filter(({ isOwn }) => isOwn)
  const read = async <R, W = R>(of: Write<R>, wrap = (rows: RawBuilder<R>) => rows.$castTo<W>()) => {
    const { sql: query, missing } = await reader.prepare(of)
    return { rows: missing === undefined ? await desk.run(wrap(query)) : [], missing }
  }
  return {
    ...{ desk, project, filters, context, brands, chooseRival, read },
    /** A brand, by default the first own one. Statements are then about it. */
    brand(name?: string, isOwn = false) {
      const found = name === undefined ? owns[0] : find(isOwn ? 'own brand' : 'brand', name, isOwn ? owns : brands)
      if (found === undefined)
        throw new UsageError('no brand of this project is marked as own: labels.brands may do so')
      context.own = found.id
      filters.brand = owns.indexOf(found) > 0 ? found.id : undefined
      return found
    },
    /** A part of the rows of a statement, and how many there are; or why there are none. */
    async page<R, C = R>(of: Write<R>, { where = sql`true`, columns = sql<C>`*`, offset = asked.offset } = {}) {
      const selected = sql`select ${columns}, count(*) over () as total`
      const part = sql`where ${where}\nlimit ${asked.limit} offset ${offset}`
      const wrap = (all: Fragment) => sql<C & { total: number }>`${selected} from (\n${all}\n) t\n${part}`
      const { rows, missing } = await read(of, wrap)
      return { rows, missing, total: rows[0]?.total ?? 0 }
    },
    completeWeeks: reader.completeWeeks,
    whole: (of?: Grain) => of && startedPeriods(range, of, today),
    /** What the answer is about, and what the days of a stream leave open. */
    async about(more: readonly Sentence[] = [], stream = reportName(reports), period = range) {
      const { comparedWith, notes } = await reader.judge(stream, period)
      return { project, period, comparedWith, notes: [...notes, ...more] }
    },
    link(anchor = '', about?: 'topic' | 'prompt', id?: string, period = range) {
      const grain = filters.grain === 'month' ? defaultGrain(range) : filters.grain
      const shown = { ...filters, range: period, grain, subject: about === undefined ? {} : { [about]: id! } }
      return pages && `${pages}${address(shown, about && `/insights/${about}`, anchor)}`
    },
  }
}
