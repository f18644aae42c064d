import type { StreamDefinition } from './defined-stream.ts'

/** What single answers say. It is asked for chat by chat, so its path is that of one. */
export const CHAT_CONTENTS: StreamDefinition = {
  name: 'chat_contents',
  table: 'chat_contents',
  about: 'What single answers say, retrieve and cite, of the chats that chat_contents in the configuration asks for.',
  path: 'chats/{id}/content',
  method: 'GET',
  by: 'list',
  key: ['chat_id'],
  columns: [
    { name: 'chat_id', path: 'id', type: 'text', about: 'The chat, see chats.' },
    { name: 'messages', path: 'messages', type: 'json', about: 'A list of objects with role and content.' },
    {
      name: 'sources',
      path: 'sources',
      type: 'json',
      about:
        'What the answer retrieves: a list of objects with url, urlNormalized, domain, citationCount and citationPosition.',
    },
    {
      name: 'brands_mentioned',
      path: 'brands_mentioned',
      type: 'json',
      about: 'The brands that the answer names: a list of objects with id, name and position.',
    },
    { name: 'queries', path: 'queries', type: 'json', about: 'What the model searched for: a list of texts.' },
  ],
  // The table of chats has these.
  alsoKnown: ['prompt', 'model', 'model_channel'],
}
