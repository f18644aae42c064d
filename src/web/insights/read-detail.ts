import type { Day } from '../../core/day.ts'
import type { Warehouse } from '../../warehouse/connect.ts'
import { DETAILS } from './detail-statements.ts'
import {
  type ChartRow,
  type Insights,
  type InsightsRequest,
  type Numbers,
  type NumbersOrNull,
  openReader,
  type Read,
  type Share,
} from './read-insights.ts'
import { relation } from './statements.ts'

/* The pages behind a number. */

/** The own brand in a group of answers, and the rival that is most visible there. */
export interface GroupRow
  extends Numbers<'answers' | 'visibility_count' | 'whole_count'>,
    NumbersOrNull<Share<'visibility'> | 'previous_visibility' | 'change' | 'rival_visibility'> {
  grouped_by: 'model_id' | 'model_channel_id' | 'topic_id' | 'prompt_id'
  id: string | null
  name: string | null
  verdict: string
  rival: string | null
}

/** A brand in the answers that a page is about. */
export interface BrandRow
  extends Numbers<'answers' | 'visibility_count'>,
    NumbersOrNull<Share<'visibility'> | 'previous_visibility' | 'change'> {
  brand: string
  is_own: boolean
  verdict: string
  /** All brands are shown. */
  whole_count?: undefined
}

export interface ChatRow {
  date: Day
  chat_id: string
  model_id: string | null
  model_channel_id: string | null
  /** As the service sent them, in whatever shape. Null if the content of the chat was not read. */
  messages: unknown
  sources: unknown
  brands_mentioned: unknown
  whole_count: number
}

interface CitedRow extends NumbersOrNull<'citation_count'> {
  domain: string
  answers: number
  whole_count: number
}

interface SourcePromptRow extends Numbers<'weeks' | 'best_rival_visibility' | 'whole_count'> {
  prompt_id: string
  prompt: string
  topic: string
  model_id: string | null
  last_week: Day
}

interface SourcePageRow extends NumbersOrNull<'citation_count'> {
  url: string
  title: string | null
  rival_names: string | string[] | null
  last_week: Day
  whole_count: number
}

/** The rows of each section. */
export interface DetailRows {
  trend: ChartRow
  brands: BrandRow
  'by-model': GroupRow
  'by-topic': GroupRow
  prompts: GroupRow
  chats: ChatRow
  cited: CitedRow
  'source-prompts': SourcePromptRow
  'source-pages': SourcePageRow
}

export interface Detail extends Pick<Insights, 'brands' | 'own' | 'extent' | 'days' | 'incomparable'> {
  /** The names of what the page is about. */
  names: Record<'topic' | 'topicId' | 'prompt' | 'channel', string | undefined>
  sections: { [S in keyof DetailRows]?: Read<DetailRows[S]> }
}

const SHOWN = 50
const CHATS_SHOWN = 20

export async function readDetail(warehouse: Warehouse, request: InsightsRequest): Promise<Detail> {
  const reader = await openReader(warehouse, request)
  const { brands, own } = reader
  const { path, subject, project } = request.filters
  const { rows } = await warehouse.pool.query<Record<'topic' | 'topic_id' | 'prompt' | 'channel', string | null>>(
    `select coalesce(t.name, t.topic_id) as topic, t.topic_id, p.text as prompt, h.name as channel
     from (select $1::text as project_id, $2::text as topic_id, $3::text as prompt_id, $4::text as model_channel_id) s
     left join ${relation(warehouse.schema, 'prompts')} p using (project_id, prompt_id)
     left join ${relation(warehouse.schema, 'model_channels')} h using (project_id, model_channel_id)
     left join ${relation(warehouse.schema, 'topics')} t
       on t.project_id = s.project_id and t.topic_id = coalesce(s.topic_id, p.topic_id)`,
    [project, subject.topic ?? null, subject.prompt ?? null, subject.channel ?? null],
  )
  const [named] = rows
  const extent = await reader.extent()
  const compared = await reader.compare()
  const sections: Partial<Record<keyof DetailRows, Read<object>>> = {}
  for (const section of DETAILS[path]) {
    const limit = section === 'trend' ? '' : `\nlimit ${section === 'chats' ? CHATS_SHOWN : SHOWN}`
    sections[section] = await reader.read<object>(section, limit)
  }
  const [topic, topicId, prompt, channel] = [named?.topic, named?.topic_id, named?.prompt, named?.channel].map(
    (value) => value ?? undefined,
  )
  return {
    brands,
    own,
    extent,
    ...compared,
    names: { topic, topicId, prompt, channel },
    sections: sections as Detail['sections'],
  }
}
