import type { z } from 'zod'
import type { Range } from '../core/day.ts'
import type { Dimension, Filter } from '../core/vocabulary.ts'
import type { CallContext, Caller, Client, Page } from '../source/client.ts'

/*
 * A stream is data: what to ask the service, what a row looks like, what identifies it, which table it goes to.
 *
 *   item  one element of an answer, validated by the stream's zod schema
 *   row   the values of a table's columns, in the order of `columns`, without the project's id
 */

export type ColumnType = 'text' | 'double' | 'date' | 'jsonb' | 'boolean'
/** Dates are YYYY-MM-DD; jsonb values are JSON texts. */
export type Value = string | number | boolean | null
export type Row = Value[]

/** The valid rows of an answer, by index. */
export interface Rows {
  readonly length: number
  add(row: Row): void
  without(positions: ReadonlySet<number>): Rows
  get(position: number): Row
}

/** Rows whose values are needed; what only goes to the database is packed instead. */
export class RowList implements Rows {
  constructor(readonly values: Row[] = []) {}

  get length(): number {
    return this.values.length
  }

  add(row: Row): void {
    this.values.push(row)
  }

  get(position: number): Row {
    return this.values[position]!
  }

  without(positions: ReadonlySet<number>): RowList {
    return new RowList(this.values.filter((_, position) => !positions.has(position)))
  }
}

export interface Column {
  name: string
  type: ColumnType
  /** How many characters a text may have; by default as long as a name. */
  longest?: number
}

/** The brands, topics, tags and models that an answer names: they fill the tables of these. */
export interface Entities {
  /** Names as of the newest day that names them: history keeps old names. */
  brands: Map<string, { name: string | null; date: string }>
  topics: Set<string>
  tags: Set<string>
  models: Set<string>
}

export function noEntities(): Entities {
  return { brands: new Map(), topics: new Set(), tags: new Set(), models: new Set() }
}

/** Values that come from an open enumeration: new ones are data, and worth a note. */
interface Vocabulary {
  kind: 'colour' | 'country'
  known: ReadonlySet<string>
  valueOf(item: never): string | null | undefined
}

/** Rows of a second table that belong to the rows of a stream, such as the tags of prompts. */
export interface Child<Item> {
  table: string
  columns: Column[]
  /** The column that names the parent. */
  parent: string
  rows(item: Item): Row[]
}

interface Common<Item> {
  name: string
  /** The operation that it is read by, such as "GET prompts". */
  operation: string
  table: string
  columns: Column[]
  /** Columns that identify a row within a project. */
  key: string[]
  item: z.ZodObject
  flatten(item: Item): Row
  /** Why an item is rejected though its schema accepts it. */
  findProblem?: (item: Item) => string | undefined
  /** Why a value of a row cannot be right. Called for every row. */
  findImpossibleValue?: (row: Row) => string | undefined
  collectEntities?: (item: Item, entities: Entities) => void
  vocabulary?: Vocabulary[]
  /** Columns that are added up where keys are equal; without any, rows with equal keys contradict each other. */
  adds?: readonly string[]
  /** True if a service need not offer it: then it is left out, and no run fails for it. */
  isExtra?: boolean
  /** True if fields that the schema does not know are kept, and are no drift. */
  keepsUnknown?: boolean
  /** True for what is asked for chat by chat within a daily budget, after everything else of a run. */
  perChat?: boolean
}

interface PageRequest {
  range: Range
  page: { limit: number; offset: number }
  filters: Filter[]
}

/** Read in windows of days; a window is replaced as a whole. */
export interface DayStream<Item = never> extends Common<Item> {
  by: 'day'
  read(client: Client, caller: Caller, ask: PageRequest, context: CallContext): Promise<Page>
  /** The dimensions of a report besides the date. An answer in which no row has one of them may be another report. */
  dimensions?: readonly Dimension[]
  /**
   * How a day is compared with the service's own totals, which are the report by date alone: the sums of each brand,
   * the largest values of each brand, which must not exceed the totals, or the number of rows with the number of answers.
   * Undefined if nothing can be compared.
   */
  control?: 'brand totals' | 'brand limits' | 'answers' | undefined
  /** The filters of a report: it is compared with the totals under the same filters. */
  filters?: readonly Filter[]
  /** How a day that does not fit a page may be split without changing a value: dimensions of its own rows. */
  splitDimensions: Dimension[]
  /** True if the table has `changed_at`, set whenever a row is written. */
  hasChangedAt?: boolean
  /** The same report by one dimension more, whose counts add up to those of this one; undefined if there is none. */
  finer?: (() => DayStream) | undefined
  /** The values that a filter accepts: lists with `in` and `not_in`, or one value at a time. */
  filterTakes: 'lists' | 'single'
  /** The value of a dimension in a row, to check that a filter was applied. */
  dimensionOf(row: Row, dimension: Dimension): string | null
}

/** Read as a whole; what vanishes is marked as removed. */
export interface ListStream<Item = never> extends Common<Item> {
  by: 'list'
  /** Where the whole list is one object that may be null: no paging. */
  isSingleObject?: boolean
  /** True if the table also has rows that the list does not show: what reports name. Those do not count as removed. */
  hasUnlistedRows?: boolean
  read(client: Client, caller: Caller, page: { limit: number; offset: number }, context: CallContext): Promise<Page>
  children?: Child<Item>[]
}

export type Stream = DayStream | ListStream

/**
 * Finest first, so that an overflowing day splits once. Never by brand, which would change share_of_voice, nor by tag,
 * whose rows overlap.
 */
const SPLIT_ORDER: Dimension[] = ['prompt_id', 'model_id', 'model_channel_id', 'country_code', 'topic_id', 'chat_id']

export function splitDimensionsOf(dimensions: readonly string[]): Dimension[] {
  return SPLIT_ORDER.filter((dimension) => dimensions.includes(dimension))
}

/** True for the report by date alone: the others are compared with it. */
export function isControl({ by, control, dimensions }: Pick<DayStream, 'by' | 'control' | 'dimensions'>): boolean {
  return by === 'day' && control === 'brand totals' && dimensions?.length === 0
}

export function isCompared(stream: Stream): stream is DayStream {
  return stream.by === 'day' && stream.control !== undefined && !isControl(stream)
}

/** Keeps a stream's item type inside its definition; outside, items stay opaque. */
export function defineDayStream<Item>(stream: Omit<DayStream<Item>, 'by'>): DayStream {
  return { ...stream, by: 'day' } as unknown as DayStream
}

export function defineListStream<Item>(stream: Omit<ListStream<Item>, 'by'>): ListStream {
  return { ...stream, by: 'list' } as unknown as ListStream
}

export function keyPositions(stream: { columns: Column[]; key: string[] }): number[] {
  return stream.key.map((name) => stream.columns.findIndex((column) => column.name === name))
}

/** Where the rows of a stream that is read by days have their date; -1 in others. */
export function datePosition(stream: Stream): number {
  return stream.by === 'day' ? stream.columns.findIndex(({ name }) => name === 'date') : -1
}

/** One text for a row's key. Ids hold no NUL, so keys of different rows differ. */
export function keyOf(row: Row, positions: readonly number[]): string {
  let key = ''
  for (const position of positions) key += `${row[position] ?? ''}\0`
  return key
}
