import * as z from 'zod'
import type { Dimension, Filter, Having } from '../core/vocabulary.ts'
import type { Caller, Page } from '../source/client.ts'
import { selectionCheck } from './selection.ts'
import {
  type Column,
  type ColumnType,
  type DayStream,
  defineDayStream,
  defineListStream,
  type Row,
  type Stream,
  splitDimensionsOf,
  type Value,
} from './stream.ts'

/*
 * Streams that are nothing but data: where to ask, which fields to keep under which names, and which columns are the key. One
 * function turns each into a stream; no definition has code of its own.
 */

export interface DefinedColumn {
  name: string
  /** Where an item has it, as in `brand.id`. */
  path: string
  type: 'text' | 'number' | 'boolean' | 'json' | 'date'
  /** How many characters a text may have, if that differs from ids and names. */
  longest?: number
}

export interface StreamDefinition {
  name: string
  table: string
  path: string
  method: 'GET' | 'POST'
  by: 'list' | 'day'
  /** The key within a project. None for what has one row for each project. */
  key: readonly string[]
  columns: readonly DefinedColumn[]
  adds?: readonly string[]
  /** The breakdown of a report. A day that is too large for a page is split by these dimensions. */
  dimensions?: readonly Dimension[]
  filters?: readonly Filter[]
  having?: readonly Having[] | undefined
  hasUnlistedRows?: boolean
  /** A dimension over which the counts add up: a day that does not fit a page is read by this dimension, and summed up. */
  finerBy?: DefinedColumn
  /** Fields that items have and that are not kept; any other is noted as drift. */
  alsoKnown?: readonly string[]
  /** The field in which an item names its project, if the list is one of all projects and is asked for without an id. */
  projectField?: string
}

export function fields(type: DefinedColumn['type'], names: readonly string[]): DefinedColumn[] {
  return names.map((name) => ({ name, path: name, type }))
}

const TYPES: Record<DefinedColumn['type'], ColumnType> = {
  text: 'text',
  number: 'double',
  boolean: 'boolean',
  json: 'jsonb',
  date: 'date',
}

/** The stream of a definition. `override` replaces a value by what the configuration says. */
export function definedStream(
  definition: StreamDefinition,
  override?: (column: string, id: string) => Value | undefined,
): Stream {
  const { columns, key, method, path, dimensions = [], projectField } = definition
  const readers = columns.map((column) => readerOf(column))
  const keyAt = columns.findIndex(({ name }) => name === key[0])
  const overridable =
    override === undefined ? [] : columns.flatMap(({ name }, at) => (key.includes(name) ? [] : [{ name, at }]))
  const common = {
    name: definition.name,
    operation: `${method} ${path}`,
    table: definition.table,
    columns: columns.map(
      ({ name, type, longest }): Column => ({ name, type: TYPES[type], ...(longest && { longest }) }),
    ),
    key: [...key],
    item: itemSchema(definition),
    isExtra: true,
    ...(definition.adds && { adds: definition.adds }),
    flatten(item: unknown): Row {
      const row = readers.map((read) => read(item))
      const id = row[keyAt]
      for (const { name, at } of overridable) {
        const value = typeof id === 'string' ? override!(name, id) : undefined
        if (value !== undefined) row[at] = value
      }
      return row
    },
  }
  if (definition.by === 'list') {
    return defineListStream<unknown>({
      ...common,
      ...(definition.hasUnlistedRows && { hasUnlistedRows: true }),
      ...(projectField && { isSingleObject: true }),
      read: (client, caller, page, context) =>
        projectField === undefined
          ? client.open(caller, { method, path }, page, context)
          : client.projects(caller, page, context).then((all) => ownItem(all, caller, projectField)),
    })
  }
  const positions = new Map(columns.map(({ name }, at) => [name, at]))
  const { finerBy } = definition
  return defineDayStream<unknown>({
    ...common,
    dimensions: dimensions.filter((dimension) => dimension !== 'date'),
    ...(finerBy && { finer: () => definedStream(byOneMore(definition, finerBy)) as DayStream }),
    splitDimensions: splitDimensionsOf(dimensions),
    filterTakes: 'lists',
    hasChangedAt: true,
    findImpossibleValue: selectionCheck(definition.filters ?? [], columns),
    read: (client, caller, { range, page, filters }, context) => {
      const all = [...(definition.filters ?? []), ...filters]
      const request = {
        ...page,
        start_date: range.from,
        end_date: range.to,
        ...(dimensions.length > 0 && { dimensions: [...dimensions] }),
        ...(all.length > 0 && { filters: all as never }),
        ...(definition.having && { having: definition.having as never }),
      }
      return client.open(caller, { method, path }, request, context)
    },
    dimensionOf: (row, dimension) => (row[positions.get(dimension)!] ?? null) as string | null,
  })
}

function byOneMore(definition: StreamDefinition, column: DefinedColumn): StreamDefinition {
  const { finerBy: _, ...rest } = definition
  return {
    ...rest,
    dimensions: [...(definition.dimensions ?? []), column.name as Dimension],
    columns: [...definition.columns, column],
    key: [...definition.key, column.name],
  }
}

/** Of the list of all projects, the item of the one that asks: each project keeps its own row. */
function ownItem(all: Page, caller: Caller, projectField: string): Page {
  const items = all.items.filter(
    (item) => (item as Record<string, unknown> | null)?.[projectField] === caller.projectId,
  )
  return { ...all, items, total: undefined }
}

export function readerOf({ path, type }: DefinedColumn): (item: unknown) => Value {
  const steps = path.split('.')
  const find = (item: unknown) => {
    let value = item
    for (const step of steps) value = (value as Record<string, unknown> | null | undefined)?.[step]
    return value ?? null
  }
  if (type === 'json') {
    return (item) => {
      const value = find(item)
      return value === null ? null : JSON.stringify(value)
    }
  }
  return (item) => find(item) as Value
}

interface Tree {
  [name: string]: Tree | z.ZodType
}

/** The schema of an item: every field may be absent or null, except those of the key. */
function itemSchema({ columns, key, by, dimensions = [], alsoKnown = [] }: StreamDefinition): z.ZodObject {
  const tree: Tree = {}
  // Deepest first: a field that is kept whole may also have parts that are kept.
  const deepestFirst = columns.toSorted((a, b) => b.path.split('.').length - a.path.split('.').length)
  for (const { name, path, type, longest = ID_MAX } of deepestFirst) {
    // A prompt without a topic has a null topic; a row without its own key is none.
    const isNeeded =
      key.includes(name) && (name === 'date' || !(by === 'day' && dimensions.includes(name as Dimension)))
    const needed = type === 'text' ? z.string().min(1).max(longest) : VALUES[type]
    const { parent, last } = placeOf(tree, path)
    if (isNeeded) parent[last] = needed
    else parent[last] ??= VALUES[type].nullish()
  }
  for (const name of alsoKnown) tree[name] ??= z.unknown().optional()
  return z.object(shapeOf(tree))
}

/** The part of a tree that a path leads to, which is made if it is not there. */
function placeOf(tree: Tree, path: string): { parent: Tree; last: string } {
  const steps = path.split('.')
  const last = steps.pop()!
  let parent = tree
  for (const step of steps) {
    parent[step] ??= {}
    parent = parent[step] as Tree
  }
  return { parent, last }
}

const VALUES = {
  text: z.string(),
  number: z.number(),
  boolean: z.boolean(),
  json: z.unknown(),
  date: z.iso.date({ error: 'not a calendar date YYYY-MM-DD' }),
}

function shapeOf(tree: Tree): Record<string, z.ZodType> {
  return Object.fromEntries(
    Object.entries(tree).map(([name, inner]) => {
      if (inner instanceof z.ZodType) return [name, inner]
      const shape = shapeOf(inner)
      const isNeeded = Object.values(shape).some((field) => !field.safeParse(undefined).success)
      // Loose: a column may keep the whole object.
      const whole = z.looseObject(shape)
      return [name, isNeeded ? whole : whole.nullish()]
    }),
  )
}

/* How long texts of the service may be. A row with a longer one is rejected: most likely it is no such text. */

/** Ids are indexed, and an index entry has a size limit in Postgres. */
export const ID_MAX = 255
export const NAME_MAX = 1000
/** For prompts and descriptions. The service itself creates prompts of at most 700 characters. */
export const TEXT_MAX = 10_000
/** Of addresses of pages, which are indexed by their digest. */
export const URL_MAX = 4000
/** Of a prompt. */
export const TAGS_MAX = 100

export function wrongLength(field: string, text: string, longest: number): string {
  return `${field}: has ${text.length} characters; allowed: 1 to ${longest}`
}
