import { COLORS, type ExtraStream } from '../core/vocabulary.ts'
import { type ClassificationItem, classificationItem, type ProfileItem, profileItem } from '../source/items.ts'
import { type StreamDefinition, TEXT_MAX } from './defined-stream.ts'
import { defineListStream, type Value } from './stream.ts'

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
  hasUnlistedRows: true,
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
    hasUnlistedRows: true,
    projectField: 'id',
    alsoKnown: ['id'],
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
      {
        name: 'aliases',
        path: 'aliases',
        type: 'json',
        about: 'Its other names, a list of texts; null if not listed.',
      },
      {
        ...{ name: 'regex', path: 'regex', type: 'text', longest: TEXT_MAX },
        about: 'The pattern by which the service finds it; null if not listed.',
      },
      { name: 'listed_own', path: 'is_own', type: 'boolean', about: 'Whether the service lists it as own.' },
    ],
    hasUnlistedRows: true,
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

export const domainClassifications = defineListStream<ClassificationItem>({
  name: 'domain_classifications',
  operation: 'GET classifications/domains',
  table: 'domain_classifications',
  columns: [
    { name: 'name', type: 'text' },
    { name: 'color', type: 'text' },
  ],
  key: ['name'],
  item: classificationItem,
  read: (client, caller, page, context) => client.domainClassifications(caller, page, context),
  flatten: (item) => [item.name, item.color ?? null],
  vocabulary: [{ kind: 'colour', known: new Set(COLORS), valueOf: (item: ClassificationItem) => item.color }],
})

const json = (value: unknown): Value => (value == null ? null : JSON.stringify(value))

/** A list of one profile, or of none if the service gives null. */
export const projectProfile = defineListStream<ProfileItem>({
  name: 'project_profile',
  operation: 'GET project-profile',
  table: 'project_profiles',
  isSingleObject: true,
  columns: [
    { name: 'name', type: 'text' },
    { name: 'occupation', type: 'text', longest: TEXT_MAX },
    { name: 'industry', type: 'text', longest: TEXT_MAX },
    { name: 'brand_presentation', type: 'jsonb' },
    { name: 'products_and_services', type: 'jsonb' },
    { name: 'target_markets', type: 'jsonb' },
    { name: 'audience_distribution', type: 'jsonb' },
    { name: 'used_prepared_profile', type: 'boolean' },
  ],
  key: [],
  item: profileItem,
  async read(client, caller, _page, context) {
    const { profile, needsTextCheck } = await client.projectProfile(caller, context)
    const items = profile === null ? [] : [profile]
    return { items, count: items.length, total: undefined, needsTextCheck, unknownFields: [] }
  },
  flatten: (item) => [
    item.name ?? null,
    item.occupation ?? null,
    item.industry ?? null,
    json(item.brandPresentation),
    json(item.productsAndServices),
    // Newer answers write target_markets beside targetMarkets.
    json(item.targetMarkets ?? item.target_markets),
    json(item.audienceDistribution),
    item.usedPreparedProfile ?? null,
  ],
})
