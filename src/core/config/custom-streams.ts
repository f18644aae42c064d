import * as z from 'zod'
import { IDENTIFIER, IDENTIFIER_RULE } from '../identifier.ts'
import { DIMENSIONS } from '../vocabulary.ts'

/* Streams that a person defines: names, paths and types. There are no expressions, so nothing of it is ever run. */

const MOST_COLUMNS = 100
/** Columns that every table has, or may have, besides those that are defined. */
const TAKEN = ['project_id', 'changed_at', 'first_seen_at', 'removed_at', 'listed_at']

const identifier = (what: string) =>
  z.string({ error: what }).regex(IDENTIFIER, { error: `${what}: ${IDENTIFIER_RULE}` })
const PATH = 'a path below the address of the service, such as reports/shopping'
const FIELD = 'the path of a field in an item, such as id or brand.id'

const column = z.strictObject({
  name: identifier('a safe column name').refine((name) => !TAKEN.includes(name), {
    error: `a name other than ${TAKEN.join(', ')}, which are made by themselves`,
  }),
  path: z
    .string({ error: FIELD })
    .max(200, { error: FIELD })
    .regex(/^[A-Za-z_]\w*(\.[A-Za-z_]\w*){0,4}$/, { error: FIELD })
    .refine((path) => !path.split('.').some((step) => ['__proto__', 'constructor', 'prototype'].includes(step)), {
      error: FIELD,
    }),
  type: z.enum(['text', 'number', 'boolean', 'json', 'date'], { error: 'one of text, number, boolean, json, date' }),
  about: z.string({ error: 'what it means, for the comment of the column' }).min(1).max(500).optional(),
})

export const customStream = z
  .strictObject({
    name: identifier('a safe table name'),
    about: z.string({ error: 'what it holds, for the comment of the table' }).min(1).max(500).optional(),
    path: z
      .string({ error: PATH })
      .max(200, { error: PATH })
      .regex(/^[\w-]+(\/[\w-]+)*$/, { error: PATH }),
    method: z.enum(['GET', 'POST'], { error: 'GET or POST' }).default('GET'),
    by: z.enum(['list', 'day'], { error: 'list or day' }),
    dimensions: z.array(z.enum(DIMENSIONS, { error: `one of ${DIMENSIONS.join(', ')}` })).default([]),
    columns: z
      .array(column)
      .min(1, { error: 'at least one column' })
      .max(MOST_COLUMNS, { error: `up to ${MOST_COLUMNS} columns` }),
    key: z.array(z.string()).min(1, { error: 'the columns that identify a row, at least one' }),
    adds: z.array(z.string()).default([]),
  })
  .superRefine((stream, context) => {
    const fail = (path: string, input: unknown, message: string) =>
      context.addIssue({ code: 'custom', path: [path], input, message })
    const typeOf = new Map(stream.columns.map(({ name, type }) => [name, type]))
    if (typeOf.size < stream.columns.length)
      fail(
        'columns',
        stream.columns.map(({ name }) => name),
        'each column once',
      )
    for (const { path } of stream.columns.filter(({ type }) => type !== 'json')) {
      if (stream.columns.some((other) => other.path.startsWith(`${path}.`)))
        fail('columns', path, 'a field with parts has the type json')
    }
    for (const list of ['key', 'adds', 'dimensions'] as const) {
      if (new Set(stream[list]).size < stream[list].length) fail(list, stream[list], 'each column once')
    }
    for (const name of stream.key) {
      if (!['text', 'date'].includes(typeOf.get(name) ?? '')) fail('key', name, 'columns of type text or date')
    }
    for (const name of stream.adds) {
      if (typeOf.get(name) !== 'number' || stream.key.includes(name))
        fail('adds', name, 'columns of type number that are not in the key')
    }
    if (stream.by === 'day' && (typeOf.get('date') !== 'date' || !stream.key.includes('date')))
      fail('columns', 'no date', 'a stream by day has a column date of type date, which is in its key')
    if (stream.dimensions.length > 0 && stream.method === 'GET')
      fail('dimensions', stream.dimensions, 'dimensions only with the method POST')
    for (const dimension of stream.dimensions) {
      if (!typeOf.has(dimension) || !stream.key.includes(dimension))
        fail('dimensions', dimension, 'dimensions that are columns of the same name and in the key')
    }
  })
export type CustomStreamConfig = z.infer<typeof customStream>
