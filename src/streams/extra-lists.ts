import type { ExtraStream } from '../core/vocabulary.ts'
import type { StreamDefinition } from './defined-stream.ts'

/* Lists that not every service offers. */

type List = Omit<StreamDefinition, 'name' | 'method' | 'by'>

const named = (id: string, kind: string): List => ({
  table: `${kind}s`,
  path: `${kind}s`,
  about: `The ${kind}s: those that rows mention and, if the service lists them, all of them with their names. Labels in the configuration override a name.`,
  key: [id],
  columns: [
    { name: id, path: 'id', type: 'text', about: `The service's id of the ${kind}.` },
    { name: 'name', path: 'name', type: 'text', about: `The name of the ${kind}, if it is known.` },
  ],
  isShared: true,
})

const LISTS: Record<ExtraStream, List> = {
  projects: {
    table: 'projects',
    path: 'projects',
    about: 'The projects that are synced.',
    key: [],
    columns: [
      { name: 'name', path: 'name', type: 'text', about: 'The name in the list of projects, or else in its profile.' },
      { name: 'status', path: 'status', type: 'text', about: 'As the service lists it.' },
      { name: 'created_at', path: 'created_at', type: 'text', about: 'When it was created, as the service writes it.' },
    ],
    isShared: true,
    projectField: 'id',
  },
  brands: {
    table: 'brands',
    path: 'brands',
    about: 'The brands that reports mention or the service lists, own and competing.',
    key: ['brand_id'],
    columns: [
      { name: 'brand_id', path: 'id', type: 'text', about: "The service's id of the brand." },
      { name: 'name', path: 'name', type: 'text', about: 'The name as it was last read, or as a label says.' },
      { name: 'domains', path: 'domains', type: 'json', about: 'Its domains, a list of texts; null if not listed.' },
      { name: 'listed_own', path: 'is_own', type: 'boolean', about: 'Whether the service lists it as own.' },
    ],
    isShared: true,
  },
  topics: named('topic_id', 'topic'),
  tags: named('tag_id', 'tag'),
  model_channels: {
    table: 'model_channels',
    path: 'model-channels',
    about: 'The channels through which models are asked. A channel stays the same when the model behind it changes.',
    key: ['model_channel_id'],
    columns: [
      { name: 'model_channel_id', path: 'id', type: 'text', about: "The service's id of the channel." },
      { name: 'name', path: 'name', type: 'text', about: 'Its name.' },
      {
        name: 'model_id',
        path: 'model.id',
        type: 'text',
        about: 'The model behind it now, if the service says so.',
      },
    ],
  },
  url_classifications: {
    table: 'url_classifications',
    path: 'classifications/urls',
    about: 'The custom classifications of URLs: those created from here and, if the service lists them, all.',
    key: ['name'],
    columns: [
      { name: 'name', path: 'name', type: 'text', about: 'Its name, which is its key.' },
      { name: 'color', path: 'color', type: 'text', about: 'Its colour.' },
    ],
  },
}

export function extraList(name: ExtraStream): StreamDefinition {
  return { ...LISTS[name], name, method: 'GET', by: 'list' }
}
