import { MODELS } from '../core/vocabulary.ts'
import { type ChatItem, chatItem } from '../source/items.ts'
import { defineDayStream } from './stream.ts'

const COLUMNS = ['chat_id', 'prompt_id', 'model_id', 'model_channel_id'] as const

export const chats = defineDayStream<ChatItem>({
  name: 'chats',
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
  vocabulary: [{ kind: 'model', known: new Set(MODELS), valueOf: (item: ChatItem) => item.model?.id }],
})
