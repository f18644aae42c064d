import type { CustomStreamConfig } from '../core/config/custom-streams.ts'
import type { StreamDefinition } from './defined-stream.ts'

/** The definition of a stream that a person wrote into the configuration. */
export function customDefinition(custom: CustomStreamConfig): StreamDefinition {
  const { name, about, adds, columns, ...rest } = custom
  return {
    ...rest,
    name,
    table: name,
    about: about ?? `Rows of ${custom.method} /${custom.path}, as custom_streams defines them.`,
    columns: columns.map((column) => ({ ...column, about: column.about ?? `The field ${column.path}.` })),
    ...(adds.length > 0 && { adds }),
  }
}
