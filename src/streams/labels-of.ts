import type { Config } from '../core/config/load.ts'
import type { ExtraStream } from '../core/vocabulary.ts'
import type { Value } from './stream.ts'

/** What labels say instead of a list: the names of brands, topics and tags. Undefined if they say nothing. */
export function labelsOf(
  labels: Config['labels'],
  stream: ExtraStream,
): ((column: string, id: string) => Value | undefined) | undefined {
  const nameOf = {
    brands: (id: string) => own(labels.brands, id)?.name,
    topics: (id: string) => own(labels.topics, id),
    tags: (id: string) => own(labels.tags, id),
  }
  if (!(stream === 'brands' || stream === 'topics' || stream === 'tags')) return undefined
  return (column, id) => (column === 'name' ? nameOf[stream](id) : undefined)
}

/** An id may be the name of something that every object has, such as `constructor`. */
function own<Label>(labels: Record<string, Label>, id: string): Label | undefined {
  return Object.hasOwn(labels, id) ? labels[id] : undefined
}
