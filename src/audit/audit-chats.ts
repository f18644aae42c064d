import type { Config } from '../core/config/load.ts'
import type { Day } from '../core/day.ts'
import { quote } from '../core/identifier.ts'
import { chats } from '../streams/chats.ts'
import type { Row } from '../streams/stream.ts'
import { slowQuery, tableName, type Warehouse } from '../warehouse/connect.ts'
import type { AuditContext, AuditedStream } from './audit-context.ts'
import { readSample, sampleRange } from './sample.ts'
import type { DaySums } from './sums.ts'

/** The report by prompt that chats can be compared with, if one is configured. */
export function promptReport({ services }: AuditContext): string | undefined {
  return services.config.reports.find(
    ({ of = 'brands', dimensions, filters }) =>
      of === 'brands' && dimensions.includes('prompt_id') && !dimensions.includes('tag_id') && filters.length === 0,
  )?.name
}

interface Compared {
  /** The totals of the service. */
  coarse: DaySums
  /** The audit of the report by prompt, if it could be compared. */
  byPrompt: AuditedStream | undefined
}

/**
 * The number of chats of a day is the total of its answers, if that holds for this service. As many may have come as
 * have gone: if the answers of each prompt are in a report, the chats of each prompt are counted, too.
 */
export async function auditChats(
  context: AuditContext,
  days: ReadonlySet<Day>,
  { coarse, byPrompt }: Compared,
): Promise<AuditedStream> {
  const base = { project_id: context.project.id, stream: 'chats' }
  const total = (day: Day) =>
    Math.max(0, ...[...(coarse.get(day)?.values() ?? [])].map((sums) => sums.visibility_total ?? 0))
  const { rows, range } = await readSample(context, chats, sampleRange(days))
  const sample = countByPrompt(rows)
  const sampled = [...days].filter((day) => day >= range.from && day <= range.to)
  const chatsOf = (day: Day) => [...(sample.get(day)?.values() ?? [])].reduce((sum, count) => sum + count, 0)
  if (sampled.some((day) => chatsOf(day) !== total(day))) {
    const left_out =
      'on the sampled days the number of chats is not the visibility_total of this service, so it cannot be compared'
    return { ...base, columns: [], days_compared: 0, differing: [], left_out }
  }
  const stored = await storedChats(context)
  const differing = new Set([...days].filter((day) => (stored.get(day) ?? 0) !== total(day)))
  const columns = ['number of chats']
  if (byPrompt !== undefined && (await isComparable(context, byPrompt, sample, sampled))) {
    for (const day of await differingPrompts(context, byPrompt)) if (days.has(day)) differing.add(day)
    columns.push('number of chats by prompt')
  }
  return { ...base, columns, days_compared: days.size, differing: [...differing].sort() }
}

const DATE = chats.columns.findIndex(({ name }) => name === 'date')
const PROMPT = chats.columns.findIndex(({ name }) => name === 'prompt_id')

/** How many chats or answers each prompt has on each day. */
type Counts = Map<Day, Map<string, number>>

function countByPrompt(rows: readonly Row[]): Counts {
  const counts: Counts = new Map()
  for (const row of rows) {
    // No prompt is an empty text, as in SQL, where that can be joined.
    const [day, prompt] = [row[DATE] as Day, (row[PROMPT] as string | null) ?? '']
    const prompts = counts.get(day) ?? new Map<string, number>()
    counts.set(day, prompts.set(prompt, (prompts.get(prompt) ?? 0) + 1))
  }
  return counts
}

async function storedChats({ services: { warehouse }, project }: AuditContext): Promise<Map<Day, number>> {
  const query = `select date, count(*) as chats from ${tableName(warehouse, 'chats')} where project_id = $1 group by date`
  const { rows } = await warehouse.pool.query<{ date: Day; chats: number }>(slowQuery(query, [project.id]))
  return new Map(rows.map(({ date, chats: count }) => [date, count]))
}

/** Whether each prompt has as many chats as answers in the report, on sampled days whose report is right. */
async function isComparable(
  { services: { warehouse, config }, project }: AuditContext,
  { stream, differing }: AuditedStream,
  sample: Counts,
  sampled: readonly Day[],
): Promise<boolean> {
  const days = sampled.filter((day) => !differing.includes(day))
  const { rows } = await warehouse.pool.query<{ date: Day; prompt_id: string; answers: number }>(
    slowQuery(`${answersSql(warehouse, config, stream)} having date = any($2::date[])`, [project.id, days]),
  )
  const isSame = rows.every(({ date, prompt_id, answers }) => (sample.get(date)?.get(prompt_id) ?? 0) === answers)
  const prompts = new Set(rows.map(({ date, prompt_id }) => `${date} ${prompt_id}`))
  const isKnown = days.every((day) => [...(sample.get(day)?.keys() ?? [])].every((id) => prompts.has(`${day} ${id}`)))
  return rows.length > 0 && isSame && isKnown
}

/** Days on which a prompt has more or fewer chats than answers, though the report of the day is right. */
async function differingPrompts(
  { services: { warehouse, config }, project }: AuditContext,
  { stream, differing }: AuditedStream,
): Promise<Day[]> {
  const { rows } = await warehouse.pool.query<{ date: Day }>(
    slowQuery(
      `with answers as (${answersSql(warehouse, config, stream)}),
       chats as (
         select date, coalesce(prompt_id, '') as prompt_id, count(*) as chats from ${tableName(warehouse, 'chats')}
         where project_id = $1 group by 1, 2
       )
       select date from answers a full join chats c using (date, prompt_id)
       where date <> all($2::date[]) and date in (select date from answers)
       group by date having bool_or(coalesce(a.answers, 0) <> coalesce(c.chats, 0))`,
      [project.id, differing],
    ),
  )
  return rows.map(({ date }) => date)
}

/** The answers of each prompt by day. They are on the row of every brand of a group, so one of them counts. */
function answersSql(warehouse: Warehouse, { reports }: Config, report: string): string {
  const { dimensions } = reports.find(({ name }) => name === report)!
  const group = dimensions.map((name) => quote(name)).join(', ')
  return `select date, coalesce(prompt_id, '') as prompt_id, sum(answers) as answers from (
      select ${group}, max(visibility_total) as answers from ${tableName(warehouse, report)}
      where project_id = $1 group by ${group}
    ) g group by 1, 2`
}
