import { DEFAULT_REPORTS } from '../../core/config/schema.ts'
import { BI_VIEWS } from '../../core/vocabulary.ts'
import { otherDimensions } from '../../streams/brand-report.ts'
import { reportNote, TABLES, type TableNote } from '../../warehouse/schema/catalogue.ts'
import { isShare, typeOf } from '../../warehouse/schema/column-kinds.ts'
import { VIEWS } from '../../warehouse/schema/view-notes.ts'

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
  kind: 'table' | 'report' | 'view'
  about: string
  /** The columns that are unique together, nulls counting as values. */
  key: string[]
  columns: Column[]
}

const KEYS: Record<string, string[]> = {
  projects: ['project_id'],
  project_profiles: ['project_id'],
  brands: ['project_id', 'brand_id'],
  topics: ['project_id', 'topic_id'],
  tags: ['project_id', 'tag_id'],
  models: ['project_id', 'model_id'],
  model_channels: ['project_id', 'model_channel_id'],
  prompts: ['project_id', 'prompt_id'],
  prompt_tags: ['project_id', 'prompt_id', 'tag_id'],
  prompt_suggestions: ['project_id', 'suggestion_id'],
  prompt_suggestion_tags: ['project_id', 'suggestion_id', 'tag_id'],
  domain_classifications: ['project_id', 'name'],
  url_classifications: ['project_id', 'name'],
  prompt_history: ['project_id', 'prompt_id', 'valid_from'],
  brand_history: ['project_id', 'brand_id', 'valid_from'],
  calendar: ['date'],
  chats: ['project_id', 'chat_id'],
  chat_contents: ['project_id', 'chat_id'],
}

/** In views these identify a row, in this order. */
const GRAIN = [
  ...['project_id', 'stream', 'date', 'week', 'month', 'brand_id', 'own_brand_id', 'rival_brand_id', 'prompt_id'],
  ...['domain', 'url', 'topic_id', 'tag_id', 'country_code', 'model_id', 'model_channel_id'],
]

/** Null is a value of these: prompts without a topic, a tag or a country, answers whose model the service does not name. */
const NULLABLE = new Set(['topic_id', 'tag_id', 'country_code', 'model_id', 'model_channel_id', 'prompt_id', 'chat_id'])

/** The tables, the default reports and the views, in the order of docs/tables.md. */
export function relations(): Relation[] {
  return [
    ...Object.entries(TABLES).map(([name, note]) => relation('table', name, note, keyOf(name))),
    ...DEFAULT_REPORTS.map((report) =>
      relation('report', report.name, reportNote(report), [
        'project_id',
        'date',
        'brand_id',
        ...otherDimensions(report),
      ]),
    ),
    ...BI_VIEWS.map((name) => relation('view', name, VIEWS[name], grainOf(VIEWS[name]))),
  ]
}

function relation(kind: Relation['kind'], name: string, { about, columns }: TableNote, key: string[]): Relation {
  const mayBeNull = (column: string) => kind !== 'table' && NULLABLE.has(column)
  return {
    name,
    kind,
    about,
    key,
    columns: Object.entries(columns).map(([column, text]) => ({
      name: column,
      about: text,
      type: typeOf(column),
      share: isShare(name, column),
      required: key.includes(column) && !mayBeNull(column),
    })),
  }
}

function keyOf(table: string): string[] {
  const key = KEYS[table]
  if (key === undefined) throw new Error(`the table ${table} has no key in src/cli/packs/relations.ts`)
  return key
}

function grainOf({ columns }: TableNote): string[] {
  const there = GRAIN.filter((name) => name in columns)
  // A prompt has one topic, and a page one domain.
  const implied = there.includes('prompt_id') ? 'topic_id' : there.includes('url') ? 'domain' : undefined
  return there.filter((name) => name !== implied)
}
