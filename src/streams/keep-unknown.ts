import { UsageError } from '../core/errors.ts'
import type { Stream } from './stream.ts'

export const EXTRA = 'extra'

/** The stream with a column for the fields of an item that its schema does not know. */
export function withExtra(stream: Stream): Stream {
  const { columns, name, item, finer } = stream as Stream & { finer?: () => Stream }
  if (columns.some((column) => column.name === EXTRA))
    throw new UsageError(`keep_unknown_fields: "${name}" has a column ${EXTRA} of its own; give that another name`)
  const known = new Set(Object.keys(item.shape))
  return {
    ...stream,
    columns: [...columns, { name: EXTRA, type: 'jsonb' }],
    item: item.loose(),
    keepsUnknown: true,
    ...(finer && { finer: () => withExtra(finer()) }),
    flatten(raw: never) {
      const row = stream.flatten(raw)
      // In one order: rows with equal keys are compared by their texts.
      const unknown = Object.entries(raw)
        .filter(([field]) => !known.has(field))
        .sort(([one], [other]) => (one < other ? -1 : 1))
      row.push(unknown.length === 0 ? null : JSON.stringify(Object.fromEntries(unknown)))
      return row
    },
  } as Stream
}
