import { UsageError } from '../core/errors.ts'
import type { Dimension } from '../core/vocabulary.ts'
import { reportBy } from '../warehouse/schema/views.ts'
import { byChannelIfThere, NAMES, text } from '../web/insights/sql.ts'
import { find, type Named } from './names.ts'
import { aName, type Desk, type Question } from './question.ts'

/* By what numbers are split or narrowed: topics, channels, countries, tags and prompts. */

export const DIMENSIONS = ['topic', 'channel', 'country', 'tag', 'prompt'] as const
export type By = (typeof DIMENSIONS)[number]
export type Narrowing = Partial<Record<By, string | undefined>>

export const NARROWING = {
  topic: aName('Only this topic, by name or id.').optional(),
  channel: aName('Only this channel (or model), by name or id.').optional(),
  country: aName('Only prompts of this country, two letters.').optional(),
  tag: aName('Only this tag, by name or id.').optional(),
  prompt: aName('Only this prompt, by text or id.').optional(),
}

const MOST_PROMPTS = 5000

export function columnOf({ reports }: Desk, by: By): Dimension {
  if (by === 'channel') return byChannelIfThere(reports, 'topic_id')
  return ({ topic: 'topic_id', country: 'country_code', tag: 'tag_id', prompt: 'prompt_id' } as const)[by]
}

/** What a name of a dimension stands for. */
export async function findIn({ desk, context }: Question, by: By, asked: string): Promise<Named> {
  const column = columnOf(desk, by)
  // Countries are those of prompts, and models have no names.
  const { table, name } = NAMES[column] ?? { table: by === 'country' ? 'prompts' : 'models', name: column }
  const all = await desk.run<Named>(
    `select distinct ${column} as id, coalesce(${name}, ${column}) as name from ${context.of(table)}
where project_id = ${context.project} and ${column} is not null order by 2, 1 limit ${MOST_PROMPTS}`,
  )
  return find(by, asked, all)
}

/** The conditions for a report `r`, its dimensions, and the names of what it is narrowed to. */
export async function narrow(question: Question, asked: Narrowing) {
  const given = DIMENSIONS.filter((by) => asked[by] !== undefined)
  const found: (Named & { by: By })[] = []
  for (const by of given) found.push({ by, ...(await findIn(question, by, asked[by]!)) })
  const columns = given.map((by) => columnOf(question.desk, by))
  const where = found.map(({ id }, index) => ` and r.${columns[index]} = ${text(id)}`).join('')
  return { found, columns, where }
}

/** The report with the fewest other dimensions. Sums over tags or chats would count answers twice. */
export function reportWith({ reports }: Desk, needs: readonly Dimension[]): Dimension[] {
  const counted = ({ dimensions }: { dimensions: Dimension[] }) => dimensions.length
  const isUsable = (dimensions: readonly Dimension[]) =>
    needs.every((name) => dimensions.includes(name)) &&
    dimensions.every((name) => needs.includes(name) || (name !== 'tag_id' && name !== 'chat_id'))
  const ofBrands = reports.filter((report) => reportBy(reports, report.dimensions) === report)
  const [found] = ofBrands.filter(({ dimensions }) => isUsable(dimensions)).sort((a, b) => counted(a) - counted(b))
  if (found !== undefined) return found.dimensions
  const words = (dimensions: readonly Dimension[]) =>
    dimensions.flatMap((name) => (name === 'date' ? [] : name.replace(/_(id|code)$/, ''))).join(' and ')
  const there = ofBrands.flatMap(({ dimensions }) => words(dimensions) || [])
  throw new UsageError(`no report by ${words(needs)} is configured; possible are: ${there.join('; ')}`)
}
