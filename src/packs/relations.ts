import type { Config, ReportConfig } from '../core/config/load.ts'
import { BI_VIEWS } from '../core/vocabulary.ts'
import { customDefinition } from '../streams/custom-stream.ts'
import { definedStream } from '../streams/defined-stream.ts'
import { reportStream } from '../streams/registry.ts'
import type { Column as StreamColumn } from '../streams/stream.ts'
import { customNote, reportNote, TABLES, type TableNote } from '../warehouse/schema/catalogue.ts'
import { isShare, typeOf } from '../warehouse/schema/column-kinds.ts'
import { VIEWS } from '../warehouse/schema/view-notes.ts'
import { reportBy } from '../warehouse/schema/views.ts'

/* The catalogue as packs need it: every table and view for BI, with its key and the types of its columns. */

export interface Column {
  name: string
  about: string
  /** As Postgres names it. */
  type: string
  /** A number from -1 to 1 that is read as a percentage. */
  share: boolean
  /** Part of the key, and never null. */
  required: boolean
}

export interface Relation {
  name: string
  /** `brands` is a report of brands, `rows` a report of domains or URLs or a custom stream. */
  kind: 'table' | 'brands' | 'rows' | 'view'
  about: string
  /** The columns that are unique together. A null counts as a value. */
  key: string[]
  columns: Column[]
  /** The configured stream that fills it, if one does. */
  stream: string | undefined
}

type Catalogued = Pick<Config, 'streams' | 'reports' | 'custom_streams'>

/** The key of each table within a project, if it has columns besides the project. */
const KEYS: Record<string, string> = {
  ...{ projects: '', project_profiles: '', brands: 'brand_id', topics: 'topic_id', tags: 'tag_id', models: 'model_id' },
  ...{ model_channels: 'model_channel_id', prompts: 'prompt_id', prompt_tags: 'prompt_id tag_id' },
  ...{ prompt_suggestions: 'suggestion_id', prompt_suggestion_tags: 'suggestion_id tag_id' },
  ...{ domain_classifications: 'name', url_classifications: 'name', chats: 'chat_id', chat_contents: 'chat_id' },
  ...{ prompt_history: 'prompt_id valid_from', brand_history: 'brand_id valid_from' },
}

/** The stream of a table whose name differs. */
const STREAMS: Record<string, string> = {
  projects: 'project_profile',
  project_profiles: 'project_profile',
  prompt_tags: 'prompts',
  prompt_suggestion_tags: 'prompt_suggestions',
}

/** In views these columns identify a row, in this order. */
const GRAIN = [
  ...['project_id', 'stream', 'date', 'week', 'month', 'brand_id', 'own_brand_id', 'rival_brand_id', 'prompt_id'],
  ...['domain', 'url', 'topic_id', 'tag_id', 'country_code', 'model_id', 'model_channel_id'],
]

/** Null is a value of these: prompts without a topic, a tag or a country, answers whose model the service does not name. */
const NULLABLE = new Set(['topic_id', 'tag_id', 'country_code', 'model_id', 'model_channel_id', 'prompt_id', 'chat_id'])

const SQL_TYPES = { text: 'text', double: 'double precision', date: 'date', jsonb: 'jsonb', boolean: 'boolean' }

/** The tables, the configured reports and custom streams, and the views that are made for them. */
export function relationsOf(config: Catalogued): Relation[] {
  return [
    ...Object.entries(TABLES).map(([name, note]) => table(name, note, config)),
    ...config.reports.map(report),
    ...config.custom_streams.map((custom) => {
      const stream = definedStream(customDefinition(custom))
      // Of a table by days only the first column of the key is never null.
      const [own] = stream.key.filter((name) => name !== 'date')
      const required = custom.by === 'list' ? stream.key : ['date', own!]
      return ofStream('rows', customNote(custom), { ...stream, required })
    }),
    ...BI_VIEWS.filter((name) => {
      const { needs, of } = VIEWS[name]
      return of !== undefined || needs.length === 0 || reportBy(config.reports, needs) !== undefined
    }).map((name) => relation({ kind: 'view', name, note: VIEWS[name], key: grainOf(VIEWS[name]), stream: undefined })),
  ]
}

function table(name: string, note: TableNote, config: Catalogued): Relation {
  if (name === 'calendar') return relation({ kind: 'table', name, note, key: ['date'], stream: undefined })
  const key = KEYS[name]
  if (key === undefined) throw new Error(`the table ${name} has no key in src/packs/relations.ts`)
  const stream = STREAMS[name] ?? name
  return relation({
    kind: 'table',
    name,
    note,
    key: ['project_id', ...key.split(' ').filter((column) => column !== '')],
    stream: (config.streams as readonly string[]).includes(stream) ? stream : undefined,
  })
}

function report(config: ReportConfig): Relation {
  const stream = reportStream(config)
  const required = stream.key.filter((name) => !NULLABLE.has(name))
  return ofStream((config.of ?? 'brands') === 'brands' ? 'brands' : 'rows', reportNote(config), { ...stream, required })
}

interface Streamed {
  name: string
  key: readonly string[]
  columns: readonly StreamColumn[]
  required: readonly string[]
}

function ofStream(kind: 'brands' | 'rows', note: TableNote, { name, key, columns, required }: Streamed): Relation {
  const found = relation({ kind, name, note, key: ['project_id', ...key], stream: name })
  for (const column of found.columns) {
    const defined = columns.find((one) => one.name === column.name)
    if (defined !== undefined) column.type = SQL_TYPES[defined.type]
    column.share &&= kind === 'brands'
    column.required = column.name === 'project_id' || required.includes(column.name)
  }
  return found
}

function relation({ note, ...rest }: Omit<Relation, 'about' | 'columns'> & { note: TableNote }): Relation {
  const mayBeNull = (column: string) => rest.kind !== 'table' && NULLABLE.has(column)
  return {
    ...rest,
    about: note.about,
    columns: Object.entries(note.columns).map(([column, text]) => ({
      name: column,
      about: text,
      type: typeOf(column),
      share: isShare(rest.name, column),
      required: rest.key.includes(column) && !mayBeNull(column),
    })),
  }
}

function grainOf({ columns }: TableNote): string[] {
  const there = GRAIN.filter((name) => name in columns)
  // A prompt has one topic, and a page one domain.
  const implied = there.includes('prompt_id') ? 'topic_id' : there.includes('url') ? 'domain' : undefined
  return there.filter((name) => name !== implied)
}
