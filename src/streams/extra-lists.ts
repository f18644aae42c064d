import { COLORS, type ExtraStream } from '../core/vocabulary.ts'
import { type ClassificationItem, classificationItem, type ProfileItem, profileItem } from '../source/items.ts'
import { fields, type StreamDefinition, TEXT_MAX } from './defined-stream.ts'
import { defineListStream, type Value } from './stream.ts'

/* Lists that not every service offers. */

type List = Omit<StreamDefinition, 'name' | 'method' | 'by'>

const named = (id: string, kind: string): List => ({
  table: `${kind}s`,
  path: `${kind}s`,
  key: [id],
  columns: [{ name: id, path: 'id', type: 'text' }, ...fields('text', ['name'])],
  hasUnlistedRows: true,
})

const LISTS: Record<ExtraStream, List> = {
  projects: {
    table: 'projects',
    path: 'projects',
    key: [],
    columns: fields('text', ['name', 'status', 'created_at']),
    hasUnlistedRows: true,
    projectField: 'id',
    alsoKnown: ['id'],
  },
  brands: {
    table: 'brands',
    path: 'brands',
    key: ['brand_id'],
    columns: [
      { name: 'brand_id', path: 'id', type: 'text' },
      ...fields('text', ['name']),
      ...fields('json', ['domains', 'aliases']),
      { name: 'regex', path: 'regex', type: 'text', longest: TEXT_MAX },
      { name: 'listed_own', path: 'is_own', type: 'boolean' },
    ],
    hasUnlistedRows: true,
  },
  topics: named('topic_id', 'topic'),
  tags: named('tag_id', 'tag'),
  model_channels: {
    table: 'model_channels',
    path: 'model-channels',
    key: ['model_channel_id'],
    columns: [
      { name: 'model_channel_id', path: 'id', type: 'text' },
      { name: 'name', path: 'name', type: 'text' },
      { name: 'model_id', path: 'model.id', type: 'text' },
    ],
  },
  url_classifications: {
    table: 'url_classifications',
    path: 'classifications/urls',
    key: ['name'],
    columns: fields('text', ['name', 'color']),
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
    return { items, total: undefined, needsTextCheck, unknownFields: [] }
  },
  flatten: (item) => [
    item.name ?? null,
    item.occupation ?? null,
    item.industry ?? null,
    json(item.brandPresentation),
    json(item.productsAndServices),
    // Newer answers write target_markets beside targetMarkets.
    json((item.targetMarkets ?? item.target_markets)?.map(({ location, osmId }) => ({ location, osmId }))),
    json(item.audienceDistribution),
    item.usedPreparedProfile ?? null,
  ],
})
