/* What columns hold, for tools that format numbers by it. Part of the catalogue: names mean the same wherever they stand. */

const SHARES: ReadonlySet<string> = new Set(
  (
    'visibility visibility_low visibility_high previous_visibility usual_visibility own_visibility own_visibility_low ' +
    'own_visibility_high rival_visibility rival_visibility_low rival_visibility_high best_rival_visibility share_of_voice ' +
    'previous_share_of_voice usual_share_of_voice own_share_of_both lead gap_to_leader margin_of_error change change_low ' +
    'change_high change_same_prompts retrieved_share retrieved_share_low retrieved_share_high previous_retrieved_share'
  ).split(' '),
)

/** True for numbers from -1 to 1 that people read as percentages. A change of a position or a sentiment is none. */
export function isShare(relation: string, column: string): boolean {
  return SHARES.has(column) && !(column === 'change' && /^(position|sentiment)_/.test(relation))
}

const DATES = 'date week month quarter first_day last_day'
const TIMES = 'first_seen_at removed_at valid_from valid_to changed_at read_at restated_at last_read_at listed_at'
const LISTS = 'rival_names tags'
const DOCUMENTS =
  'domains messages sources brands_mentioned queries user_location brand_presentation products_and_services target_markets audience_distribution'
const FLAGS = 'agrees leads enough_answers comparison_is_complete used_prepared_profile listed_own'
const INTEGERS =
  'year weekday ago missing_days held_days quarantined_rows prompts_asked prompts_of_the_day prompts_missing days rows restatements chats'
const BIG_INTEGERS = 'rank rank_by_size rivals prompts models'
const NUMBERS =
  'mention_count all_mentions previous_all_mentions previous_mention_count own_mention_count rival_mention_count visibility_count ' +
  'previous_visibility_count own_visibility_count rival_visibility_count visibility_total answers previous_answers own_answers ' +
  'usual_answers sentiment sentiment_sum sentiment_count sentiment_points position position_sum position_count position_points ' +
  'previous_position previous_position_count previous_position_points previous_sentiment previous_sentiment_count ' +
  'previous_sentiment_points volume_number clarity retrieved_chat_count previous_retrieved_chat_count citation_count ' +
  'previous_citation_count citations_per_answer usage_count retrievals citations_per_retrieval'

const TYPES: ReadonlyMap<string, string> = new Map(
  Object.entries({
    date: DATES,
    'timestamp with time zone': TIMES,
    'text[]': LISTS,
    jsonb: DOCUMENTS,
    boolean: FLAGS,
    integer: INTEGERS,
    bigint: BIG_INTEGERS,
    'double precision': NUMBERS,
  }).flatMap(([type, names]) => names.split(' ').map((name) => [name, type] as const)),
)

/** The type of a column in Postgres. */
export function typeOf(column: string): string {
  if (SHARES.has(column)) return 'double precision'
  return TYPES.get(column) ?? (column.startsWith('is_') ? 'boolean' : 'text')
}
