import { type RawBuilder, type SqlBool, sql } from 'kysely'
import { addDays, type Day, type Range } from '../../core/day.ts'
import type { Dimension } from '../../core/vocabulary.ts'
import type { Row, Rows } from '../../streams/stream.ts'
import { type DayStream, datePosition } from '../../streams/stream.ts'
import { dataTable } from '../../warehouse/database.ts'
import type { Run } from '../run/run.ts'
import type { Omissions } from './compare-days.ts'

/* Facts on an answer that only the warehouse shows. */

/** Dimensions that an answer may lack. Only groups without such a value can be left out of a report. */
export const NULLABLE: readonly string[] = ['topic_id', 'country_code', 'model_channel_id']

/** So many days before a window show which rows the service sends, and so many after it that it has begun to send them. */
const DAYS_AROUND = 60

interface Answer {
  projectId: string
  stream: DayStream
  range: Range
  rows: Rows
}

function* valuesOf(rows: Rows): Generator<Row> {
  for (let position = 0; position < rows.length; position++) yield rows.get(position)
}

/**
 * Which rows the service leaves out of a report. Groups without a value of a dimension are left out if the answer and the table have
 * none of them, although prompts or chats of these days have no value. Rows without mentions are left out if neither has any. With `readAt`,
 * only rows count that were written later, also of days after the answer.
 */
export async function findOmissions(
  { warehouse, retry }: Pick<Run, 'warehouse' | 'retry'>,
  answer: Answer,
  readAt?: Date,
): Promise<Omissions> {
  const { projectId, stream, range, rows } = answer
  const nullable = (stream.dimensions ?? []).filter((name) => NULLABLE.includes(name))
  const countAt = stream.columns.findIndex(({ name }) => name === 'visibility_count')
  const withNull = new Set<Dimension>()
  let hasRowsWithoutMentions = false
  for (const row of valuesOf(rows)) {
    hasRowsWithoutMentions ||= row[countAt] === 0
    for (const name of nullable) if (stream.dimensionOf(row, name) === null) withNull.add(name)
  }
  const chats = sql`from data.chats c where c.project_id = ${projectId} and c.date between ${range.from} and ${range.to}`
  const isOfAnswers = sql`(exists (select ${chats} and c.prompt_id = h.prompt_id) or not exists (select ${chats}))`
  // A prompt with chats on these days has or had no value, or such chats belong to unknown prompts.
  const lacksValue = (name: Dimension) =>
    name === 'model_channel_id'
      ? sql`coalesce((select bool_or(model_channel_id is null) and bool_or(model_channel_id is not null) ${chats}), false)`
      : sql`coalesce((select bool_or(${sql.ref(name)} is null) from data.prompt_history h
            where h.project_id = ${projectId} and ${isOfAnswers}), true)
          or exists (select ${chats} and not exists (select from data.prompts p
            where p.project_id = ${projectId} and p.prompt_id = c.prompt_id))`
  const last = readAt === undefined ? range.to : addDays(range.to, DAYS_AROUND)
  const stored = sql`from ${dataTable(stream.table)} where project_id = ${projectId}
    and date between ${addDays(range.from, -DAYS_AROUND)} and ${last} and changed_at > ${readAt ?? new Date(0)}`
  const possible = nullable.filter((name) => !withNull.has(name))
  const facts = possible.map((name) => {
    return sql`(${lacksValue(name)}) and not exists (select ${stored} and ${sql.ref(name)} is null) as ${sql.id(name)}`
  })
  const absence = sql`exists (select ${stored} and visibility_count = 0) as absence`
  const query = sql<Record<string, boolean>>`select ${sql.join([...facts, absence])}`
  const { rows: found } = await retry(() => query.execute(warehouse.db))
  return {
    groups: possible.some((name) => found[0]![name]),
    rowsWithoutMentions: !hasRowsWithoutMentions && !found[0]!.absence,
  }
}

/** So many rows of an answer show whose prompts they name. */
const SAMPLE = 200

/** Days of which most rows name prompts that the project does not have and never had, as those of another project do. */
export async function findForeignDays(run: Run, { projectId, stream, rows }: Answer): Promise<Set<Day>> {
  const isKnown = stream.splitDimensions.includes('prompt_id') && run.streams.get('prompts') !== undefined
  const known = isKnown ? await knownPrompts(run, projectId) : new Set()
  // Without a list of prompts nothing is known of them.
  if (known.size === 0) return new Set()
  const dateAt = datePosition(stream)
  const counts = new Map<Day, { all: number; unknown: number }>()
  const step = Math.max(1, rows.length / SAMPLE)
  for (let at = 0; at < rows.length; at += step) {
    const row = rows.get(Math.floor(at))
    const count = counts.get(row[dateAt] as Day) ?? { all: 0, unknown: 0 }
    counts.set(row[dateAt] as Day, count)
    count.all++
    if (!known.has(stream.dimensionOf(row, 'prompt_id'))) count.unknown++
  }
  return new Set([...counts].flatMap(([day, { all, unknown }]) => (unknown * 2 > all ? [day] : [])))
}

/** The prompts that a project has or had. Lists are read before the windows of a run, so they are read once. */
async function knownPrompts(
  { warehouse, retry, promptsOf }: Run,
  projectId: string,
): Promise<ReadonlySet<string | null>> {
  const read = async () => {
    const query = warehouse.db.selectFrom('data.prompts').select('prompt_id').where('project_id', '=', projectId)
    const rows = await retry(() => query.execute())
    return new Set(rows.map(({ prompt_id }) => prompt_id))
  }
  const found = promptsOf.get(projectId) ?? read()
  promptsOf.set(projectId, found)
  return found
}

/** Every answer belongs to a prompt and a model: if no row of a report by them has one, the dimension was ignored. */
const ALWAYS_SET = new Set(['prompt_id', 'model_id', 'chat_id'])

/** Where the warehouse shows that a project has values of a dimension that not every row needs to have. */
const SHOWN_BY: Record<string, { table: string; isShown: RawBuilder<SqlBool> }> = {
  topic_id: { table: 'prompts', isShown: sql`topic_id is not null and removed_at is null` },
  tag_id: { table: 'prompt_tags', isShown: sql`true` },
  country_code: { table: 'prompts', isShown: sql`country_code is not null and removed_at is null` },
  model_channel_id: { table: 'chats', isShown: sql`model_channel_id is not null` },
}

/**
 * True if no row has a dimension that was asked for, although the project has values for it. If the chats of these days are known,
 * only prompts that they belong to count.
 */
export async function isIgnored(
  { warehouse, retry }: Run,
  projectId: string,
  range: Range,
  dimension: string,
): Promise<boolean> {
  if (ALWAYS_SET.has(dimension)) return true
  const shown = SHOWN_BY[dimension]
  if (shown === undefined) return false
  const isOfDays = (alias: string) => sql`${sql.ref(`${alias}.date`)} between ${range.from} and ${range.to}`
  const chats = sql`select from data.chats c where c.project_id = ${projectId} and ${isOfDays('c')}`
  const query = sql`
    select from ${dataTable(shown.table)} v where project_id = ${projectId} and ${shown.isShown}
      ${shown.table === 'chats' ? sql`and ${isOfDays('v')}` : sql``}
      and (exists (${chats} and c.prompt_id = v.prompt_id) or not exists (${chats}))
    limit 1`
  const found = await retry(() => query.execute(warehouse.db))
  return found.rows.length > 0
}

const TABLE_OF: Partial<Record<Dimension, string>> = { prompt_id: 'prompts', model_id: 'models' }

/** The prompts or models of a project, for services whose filters have no "all but these". */
export async function readValues(
  { warehouse, retry }: Run,
  projectId: string,
  dimension: Dimension,
): Promise<string[]> {
  const table = TABLE_OF[dimension]
  if (table === undefined) return []
  const query = sql<{ value: string }>`
    select ${sql.ref(dimension)} as value from ${dataTable(table)} where project_id = ${projectId}`
  const { rows } = await retry(() => query.execute(warehouse.db))
  return rows.map(({ value }) => value)
}
