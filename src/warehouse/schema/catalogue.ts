import { readFileSync } from 'node:fs'
import type { Config, ReportConfig } from '../../core/config/load.ts'
import { packageFile } from '../../core/package-files.ts'
import { BI_VIEWS, type BiView, type Dimension, type ReportSubject } from '../../core/vocabulary.ts'
import { otherDimensions } from '../../streams/brand-report.ts'

/*
 * The meaning of every table, view and column: the only source of the comments in the database and of docs/reference/tables.md. The texts are in
 * sql/comments.json, apart from those of custom streams.
 */

export interface TableNote {
  about: string
  columns: Record<string, string>
}

interface Entry {
  about: string
  /** A table whose columns it has, too. */
  like?: string
  /** Null for a text that several tables share. */
  columns: Record<string, string | null>
}

type Entries = Record<string, Entry>

interface ViewEntry {
  question: number
  about: string
  needs: string
  of?: 'domains' | 'urls'
  mayBeFiner?: boolean
  /** Their names; what they mean is in `view_columns`. */
  columns: string
  /** Other meanings of some columns in this view. */
  instead?: Record<string, string>
}

/** Views by model that have a twin by channel: a channel stays the same when the model behind it changes. */
export const CHANNEL_TWINS: Partial<Record<BiView, BiView>> = {
  visibility_by_model_weekly: 'visibility_by_channel_weekly',
  head_to_head_weekly: 'head_to_head_by_channel_weekly',
  position_by_model_weekly: 'position_by_channel_weekly',
  movers_weekly: 'movers_by_channel_weekly',
}

/** The view by model whose text a view by channel is made from. */
export function modelTwin(name: BiView): BiView | undefined {
  if (name in COMMENTS.views) return undefined
  return BI_VIEWS.find((view) => CHANNEL_TWINS[view] === name)
}

/** Changes a text, or all texts of a template, from models to channels. */
export function byChannel<T>(part: T): T {
  const changed = (node: unknown): unknown => {
    if (typeof node === 'string')
      return node
        .replaceAll(/\w+/g, (word) => CHANNEL_TWINS[word as BiView] ?? word)
        .replaceAll('model_id', 'model_channel_id')
        .replaceAll(/\bmodel(s?)\b/g, 'channel$1')
    if (Array.isArray(node)) return node.map(changed)
    if (typeof node !== 'object' || node === null) return node
    return Object.fromEntries(Object.entries(node).map(([name, value]) => [name, changed(value)]))
  }
  return changed(part) as T
}

/** JSON, because parsing as much YAML takes a tenth of a second of each command. */
export const COMMENTS = JSON.parse(readFileSync(packageFile('sql/comments.json'), 'utf8')) as {
  schemas: { schema: string; ops: string }
  questions: string[]
  shared: Record<string, string>
  tables: Entries
  /** The subject of a report comes first among its columns, then its metrics. */
  reports: Record<ReportSubject, TableNote>
  dimensions: Record<Exclude<Dimension, 'date'>, string>
  ops_tables: Entries
  ops_views: Entries
  view_columns: Record<string, string>
  /** Those by channel are mostly made from those by model. */
  views: Partial<Record<BiView, ViewEntry>>
  /** Columns that are shares, and the columns of each type that is not text. */
  shares: string
  types: Record<string, string>
}

const { shared } = COMMENTS

export const TABLES: Record<string, TableNote> = notesOf(COMMENTS.tables)

export const OPS_TABLES: Record<string, TableNote> = notesOf(COMMENTS.ops_tables)

/** Views of the ops schema, which other views read. */
export const SUM_VIEWS: Record<string, TableNote> = notesOf(COMMENTS.ops_views)

function notesOf(entries: Entries): Record<string, TableNote> {
  const columnsOf = (entry: Entry | undefined) =>
    Object.entries(entry?.columns ?? {}).map(([name, text]) => [name, text ?? shared[name]!])
  return Object.fromEntries(
    Object.entries(entries).map(([name, entry]) => {
      const like = columnsOf(COMMENTS.ops_tables[entry.like ?? ''])
      return [name, { about: entry.about, columns: Object.fromEntries([...like, ...columnsOf(entry)]) }]
    }),
  )
}

function sharedNotes(...names: string[]): Record<string, string> {
  return Object.fromEntries(names.map((name) => [name, shared[name]!]))
}

export function customNote({ about, method, path, by, columns }: Config['custom_streams'][number]): TableNote {
  const own = columns.map((column) => [column.name, column.about ?? `The field ${column.path}.`])
  const more = by === 'day' ? ['changed_at'] : ['first_seen_at', 'removed_at']
  return {
    about: about ?? `Rows of ${method} /${path}, as custom_streams defines them.`,
    columns: { ...sharedNotes('project_id'), ...Object.fromEntries(own), ...sharedNotes(...more) },
  }
}

export function reportNote(report: Pick<ReportConfig, 'dimensions' | 'of'>): TableNote {
  const others = otherDimensions(report)
  const { about, columns } = COMMENTS.reports[report.of ?? 'brands']
  const [subject, ...metrics] = Object.entries(columns)
  return {
    about: `${about}, by ${['date', ...others].join(', ')}. Ratios: divide sums, never average them.`,
    columns: {
      ...sharedNotes('project_id'),
      date: 'The day, UTC.',
      ...Object.fromEntries([subject!, ...others.map((name) => [name, COMMENTS.dimensions[name]]), ...metrics]),
      ...sharedNotes('changed_at'),
    },
  }
}

export interface ViewNote extends TableNote {
  /** The question that it answers, as numbered in the docs. */
  question: number
  /** The dimensions of the report that it needs; empty if it needs none. */
  needs: Dimension[]
  /** The subject of the report, if not brands. Such a view is empty while no report of that kind is configured. */
  of?: Exclude<ReportSubject, 'brands'>
  /** True if the report may have more dimensions: its counts add up over them. */
  mayBeFiner?: boolean
}

const words = (text: string) => text.split(' ').filter((word) => word !== '')

export const VIEWS = Object.fromEntries(
  BI_VIEWS.map((name): [string, ViewNote] => {
    const model = modelTwin(name)
    const entry = COMMENTS.views[model ?? name]!
    const { needs, columns, instead, ...view } = model === undefined ? entry : byChannel(entry)
    const meaning = { ...COMMENTS.view_columns, ...instead }
    const notes = words(columns).map((column) => [column, meaning[column]!])
    return [name, { ...view, needs: words(needs) as Dimension[], columns: Object.fromEntries(notes) }]
  }),
) as Record<BiView, ViewNote>

export function viewsOf(question: number): BiView[] {
  return BI_VIEWS.filter((name) => VIEWS[name].question === question)
}
