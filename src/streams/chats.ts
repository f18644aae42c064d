import { type ChatItem, chatItem } from '../source/items.ts'
import { fields, type StreamDefinition } from './defined-stream.ts'
import { defineDayStream } from './stream.ts'

const COLUMNS = ['chat_id', 'prompt_id', 'model_id', 'model_channel_id'] as const

export const chats = defineDayStream<ChatItem>({
  name: 'chats',
  operation: 'GET chats',
  control: 'answers',
  table: 'chats',
  columns: [...COLUMNS.map((name) => ({ name, type: 'text' as const })), { name: 'date', type: 'date' }],
  key: ['chat_id'],
  item: chatItem,
  splitDimensions: ['model_id', 'prompt_id'],
  filterTakes: 'single',
  read: (client, caller, { range, page, filters }, context) =>
    client.chats(
      caller,
      {
        ...page,
        start_date: range.from,
        end_date: range.to,
        ...Object.fromEntries(filters.map(({ field, values }) => [field, values[0]])),
      },
      context,
    ),
  flatten: (item) => [
    item.id,
    item.prompt?.id ?? null,
    item.model?.id ?? null,
    item.model_channel?.id ?? null,
    item.date,
  ],
  dimensionOf: (row, dimension) => (row[COLUMNS.indexOf(dimension as 'chat_id')] ?? null) as string | null,
  collectEntities: (item, entities) => {
    if (item.model?.id) entities.models.add(item.model.id)
  },
})

/** The contents of chats. Each chat takes one request, so the path contains the chat's id. */
export const CHAT_CONTENTS: StreamDefinition = {
  name: 'chat_contents',
  table: 'chat_contents',
  path: 'chats/{id}/content',
  method: 'GET',
  by: 'list',
  key: ['chat_id'],
  columns: [
    { name: 'chat_id', path: 'id', type: 'text' },
    ...fields('json', ['messages', 'sources', 'brands_mentioned', 'queries']),
  ],
  // The table of chats has these.
  alsoKnown: ['prompt', 'model', 'model_channel'],
}
