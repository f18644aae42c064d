import type { Config } from '../core/config/load.ts'
import { BI_VIEWS } from '../core/vocabulary.ts'
import { definedStream } from '../streams/defined-stream.ts'
import { reportStream } from '../streams/registry.ts'
import { customDefinition } from '../streams/source-report.ts'
import type { Stream } from '../streams/stream.ts'
import { COMMENTS, customNote, reportNote, TABLES, type TableNote, VIEWS } from '../warehouse/schema/catalogue.ts'
import { POINTS_TO } from '../warehouse/schema/relations.ts'
import { SHOWN_TYPES } from '../warehouse/schema/stream-tables.ts'
import { isWhole, reportBy } from '../warehouse/schema/views.ts'
import { parseTemplate, type Values } from './template.ts'

/* The catalogue as packs need it: every table and view for BI, with its key and the types of its columns. */

export interface Column {
  name: string
  about: string
  type: string
  share: boolean
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
  /** The configured stream that fills it. */
  stream?: string
  /** True if the rows of a day and brand add up to the report by day. */
  addsUp?: boolean
}

export interface Use {
  /** Views by model that are replaced by their twins by channel. */
  channelViews: ReadonlySet<string>
  /** Tables and views of which nothing is read, so readers do not see them. */
  unused: readonly string[]
}

export interface Pack extends Pick<Use, 'channelViews'> {
  relations: Relation[]
  projects: readonly string[]
  values: Values
}

type Catalogued = Pick<Config, 'streams' | 'reports' | 'custom_streams'>

/** templates/tables.yml */
interface Notes {
  keys: Record<string, string[]>
  streams: Record<string, string>
  grain: string[]
  nullable: string[]
}

/** The tables, the configured reports and custom streams, and the views that are made for them: what readers see. */
export function relationsOf({ streams, reports, custom_streams }: Catalogued, unused: readonly string[]): Relation[] {
  const notes = parseTemplate<Notes>('tables.yml')
  const neverNull = (key: readonly string[]) => key.filter((name) => !notes.nullable.includes(name))
  const relations = [
    ...Object.entries(TABLES).map(([name, note]) => {
      const key = notes.keys[name]
      if (key === undefined) throw new Error(`the table ${name} has no key in templates/tables.yml`)
      const stream = notes.streams[name] ?? name
      const isRead = (streams as readonly string[]).includes(stream)
      return relation({ kind: 'table', name, note, key, required: key, ...(isRead && { stream }) })
    }),
    ...reports.map((report) => {
      const stream = reportStream(report)
      const kind = (report.of ?? 'brands') === 'brands' ? 'brands' : 'rows'
      // A prompt carries several tags.
      const addsUp = kind === 'brands' && isWhole(report) && !report.dimensions.includes('tag_id')
      return { ...ofStream(kind, reportNote(report), stream, neverNull(stream.key)), addsUp }
    }),
    ...custom_streams.map((custom) => {
      const stream = definedStream(customDefinition(custom))
      // Of a table by days only the first column of the key is never null.
      const [own] = stream.key.filter((name) => name !== 'date')
      return ofStream('rows', customNote(custom), stream, custom.by === 'list' ? stream.key : ['date', own!])
    }),
    ...BI_VIEWS.filter((name) => {
      const { needs, of } = VIEWS[name]
      return of !== undefined || needs.length === 0 || reportBy(reports, needs) !== undefined
    }).map((name) => {
      const key = grainOf(VIEWS[name], notes.grain)
      return relation({ kind: 'view', name, note: VIEWS[name], key, required: neverNull(key) })
    }),
  ]
  return relations.filter(({ name }) => !unused.includes(name))
}

function ofStream(kind: 'brands' | 'rows', note: TableNote, stream: Stream, required: readonly string[]): Relation {
  const { name, columns } = stream
  const types = new Map(columns.map((column) => [column.name, SHOWN_TYPES[column.type]]))
  const own = { kind, name, note, stream: name, key: ['project_id', ...stream.key] }
  return relation({ ...own, required: ['project_id', ...required] }, types)
}

function relation(
  { note, required, ...own }: Omit<Relation, 'about' | 'columns'> & { note: TableNote; required: readonly string[] },
  types?: ReadonlyMap<string, string>,
): Relation {
  const { name, kind } = own
  const columns = Object.entries(note.columns).map(([column, about]) => ({
    ...{ name: column, about, type: types?.get(column) ?? typeOf(column) },
    share: kind !== 'rows' && isShare(name, column),
    required: required.includes(column),
  }))
  return { ...own, about: note.about, columns }
}

/** Columns that, with the project, name a row of another table. */
export function referencesOf({ name, kind, columns }: Relation): { column: string; target: string }[] {
  if (kind !== 'table' && kind !== 'brands') return []
  const targets = columns.map((column) => ({ column: column.name, target: POINTS_TO[column.name] ?? name }))
  return targets.filter(({ target }) => target !== name)
}

/** templates/checks.yml */
interface Check {
  about: string
  dimension: string
  severity: 'error' | 'warning'
  sql: string
}

export type Checks = Record<string, Check>

export function readChecks(): Checks {
  return parseTemplate<Checks>('checks.yml')
}

/** The checks of a table, by their names. @param daily the report by day, or nothing */
export function checksOf({ name, kind, stream, addsUp }: Relation, daily: unknown): string[] {
  if (stream === undefined) return []
  if (kind !== 'brands') return ['no_gaps']
  const sums = addsUp && daily !== '' && daily !== name ? ['adds_up'] : []
  return ['no_gaps', 'rows_of_days', 'ratio_of_parts', ...sums]
}

function grainOf({ columns }: TableNote, grain: readonly string[]): string[] {
  const there = grain.filter((name) => name in columns)
  // A prompt has one topic, and a page one domain.
  const implied = there.includes('prompt_id') ? 'topic_id' : there.includes('url') ? 'domain' : undefined
  return there.filter((name) => name !== implied)
}

/* The kinds of columns, for tools that format numbers. A name means the same in every table and view. */

const SHARES: ReadonlySet<string> = new Set(COMMENTS.shares.split(' '))

const TYPES: ReadonlyMap<string, string> = new Map(
  Object.entries(COMMENTS.types).flatMap(([type, names]) => names.split(' ').map((name) => [name, type] as const)),
)

/** True for numbers from -1 to 1 that people read as percentages. A change of a position or a sentiment is none. */
export function isShare(relation: string, column: string): boolean {
  return SHARES.has(column) && !(column === 'change' && /^(position|sentiment)_/.test(relation))
}

function typeOf(column: string): string {
  if (SHARES.has(column)) return 'double precision'
  return TYPES.get(column) ?? (column.startsWith('is_') ? 'boolean' : 'text')
}
