import { COUNTRIES } from '../core/vocabulary.ts'
import { type PromptItem, promptItem } from '../source/items.ts'
import { TAGS_MAX, TEXT_MAX } from './defined-stream.ts'
import { type Column, defineListStream, type ListStream, type Row } from './stream.ts'

/* Prompts and prompt suggestions have the same shape and differ in the names of their tables and ids. */

function promptLike(
  name: 'prompts' | 'prompt_suggestions',
  id: string,
  tagTable: string,
  read: ListStream['read'],
): ListStream {
  const columns: Column[] = [
    { name: id, type: 'text' },
    { name: 'text', type: 'text', longest: TEXT_MAX },
    { name: 'messages', type: 'jsonb' },
    { name: 'topic_id', type: 'text' },
    { name: 'user_location', type: 'jsonb' },
    { name: 'country_code', type: 'text' },
    { name: 'volume', type: 'text' },
  ]
  return defineListStream<PromptItem>({
    name,
    operation: name === 'prompts' ? 'GET prompts' : 'GET prompts/suggestions',
    table: name,
    columns,
    key: [id],
    item: promptItem,
    read,
    flatten: (item) => [
      item.id,
      item.messages.map(({ content }) => content).join('\n'),
      JSON.stringify(item.messages.map(({ content }) => ({ content }))),
      item.topic?.id ?? null,
      item.user_location == null ? null : JSON.stringify(item.user_location),
      countryOf(item),
      item.volume == null ? null : String(item.volume),
    ],
    findProblem: ({ tags }) =>
      tags != null && tags.length > TAGS_MAX ? `tags: there are ${tags.length}; allowed: up to ${TAGS_MAX}` : undefined,
    collectEntities(item, entities) {
      if (item.topic?.id) entities.topics.add(item.topic.id)
      for (const tag of item.tags ?? []) entities.tags.add(tag.id)
    },
    vocabulary: [{ kind: 'country', known: new Set(COUNTRIES), valueOf: countryOf }],
    children: [
      {
        table: tagTable,
        columns: [
          { name: id, type: 'text' },
          { name: 'tag_id', type: 'text' },
        ],
        parent: id,
        rows: (item): Row[] => [...new Set((item.tags ?? []).map((tag) => tag.id))].map((tag) => [item.id, tag]),
      },
    ],
  })
}

function countryOf(item: PromptItem): string | null {
  const country = item.user_location?.country
  return typeof country === 'string' && country !== '' ? country : null
}

export const prompts = promptLike('prompts', 'prompt_id', 'prompt_tags', (client, caller, page, context) =>
  client.prompts(caller, page, context),
)

export const promptSuggestions = promptLike(
  'prompt_suggestions',
  'suggestion_id',
  'prompt_suggestion_tags',
  (client, caller, page, context) => client.promptSuggestions(caller, page, context),
)
