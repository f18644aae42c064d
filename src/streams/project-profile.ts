import { type ProfileItem, profileItem } from '../source/items.ts'
import { defineListStream, type Value } from './stream.ts'
import { TEXT_MAX } from './text-limits.ts'

const json = (value: unknown): Value => (value == null ? null : JSON.stringify(value))

/** A list of one profile, or of none if the service gives null. */
export const projectProfile = defineListStream<ProfileItem>({
  name: 'project_profile',
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
