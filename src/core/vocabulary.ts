export interface ProjectStream {
  projectId: string
  stream: string
}

/** One text for a project and a stream, to find things by. Ids hold no NUL, so no two share one. */
export function streamKey(projectId: string, stream: string): string {
  return `${projectId}\0${stream}`
}

/* The enumerations of the service's interface. They bind what is sent; what is received may hold new values. */

export const DIMENSIONS = [
  'prompt_id',
  'model_id',
  'model_channel_id',
  'tag_id',
  'topic_id',
  'date',
  'country_code',
  'chat_id',
] as const
export type Dimension = (typeof DIMENSIONS)[number]

export const FILTER_FIELDS = [...DIMENSIONS.filter((name) => name !== 'date'), 'brand_id'] as const
export const FILTER_OPERATORS = ['in', 'not_in'] as const

export interface Filter {
  field: string
  operator: (typeof FILTER_OPERATORS)[number]
  values: string[]
}

/** Narrows the rows of a report after the sums are made, so that shares keep their denominators. */
export type Having =
  | { field: string; operator: 'in'; values: string[] }
  | { field: string; operator: (typeof COMPARISONS)[number]; value: number }
export const COMPARISONS = ['gt', 'gte', 'lt', 'lte'] as const

export const METRICS = [
  'mention_count',
  'visibility',
  'visibility_count',
  'visibility_total',
  'share_of_voice',
  'sentiment',
  'sentiment_sum',
  'sentiment_count',
  'position',
  'position_sum',
  'position_count',
] as const
export type Metric = (typeof METRICS)[number]

export const COLORS =
  'orange red amber yellow lime green emerald teal cyan sky blue indigo violet purple fuchsia pink rose gray'.split(' ')

export const COUNTRIES = (
  'AE AL AM AR AT AU BA BE BG BH BO BR BY CA CH CL CN CO CR CY CZ DE DK DO EC EE EG ES FI FR GB GE GH GR GT HK HN HR HU ID ' +
  'IE IL IN IQ IS IT JO JP KR KW LB LT LU LV MA MD ME MK MT MX MY NG NI NL NO NZ OM PK PA PE PH PL PT PY PS QA RO RS SA SE ' +
  'SG SI SK SV TH TN TR TW UA US UY VE VN ZA'
).split(' ')

export const PAGE_LIMIT_MAX = 10_000
export const PAGE_LIMIT_DEFAULT = 1000
export const PROMPT_TEXT_MAX = 700
export const TOPIC_NAME_MAX = 64
export const CLASSIFICATION_NAME_MAX = 60

/** The project id of rows that were read with a project key and no id. */
export const DEFAULT_PROJECT = 'default'

/** Streams that are not reports, in the order in which a run reads them. */
export const BASE_STREAMS = [
  'project_profile',
  'prompts',
  'prompt_suggestions',
  'domain_classifications',
  'chats',
] as const
export type BaseStream = (typeof BASE_STREAMS)[number]

/** Lists that not every service offers, in the order in which a run reads them. */
export const EXTRA_STREAMS = ['projects', 'brands', 'topics', 'tags', 'model_channels', 'url_classifications'] as const
export type ExtraStream = (typeof EXTRA_STREAMS)[number]

/** The subjects of reports. Each but the first is an extra. */
export const REPORT_SUBJECTS = ['brands', 'domains', 'urls'] as const
export type ReportSubject = (typeof REPORT_SUBJECTS)[number]

/** The views for BI tools, each in a file of its name in sql/views. A report may not take one of these names. */
export const BI_VIEWS = [
  'visibility_daily',
  'visibility_weekly',
  'visibility_monthly',
  'share_of_voice_daily',
  'share_of_voice_weekly',
  'visibility_by_model_weekly',
  'visibility_by_channel_weekly',
  'visibility_by_prompt_weekly',
  'head_to_head_weekly',
  'head_to_head_by_channel_weekly',
  'topics_weekly',
  'absent_prompts',
  'position_by_model_weekly',
  'position_by_channel_weekly',
  'sentiment_by_topic_weekly',
  'sentiment_by_prompt_weekly',
  'movers_weekly',
  'movers_by_channel_weekly',
  'visibility_by_tag_weekly',
  'visibility_by_country_weekly',
  'sample_sizes',
  'sample_sizes_daily',
  'answers_daily',
  'data_status',
  'freshness',
  'sources_weekly',
  'cited_pages_weekly',
  'source_gaps',
  'page_gaps_weekly',
] as const
export type BiView = (typeof BI_VIEWS)[number]

/** An id may be the name of something that every object has, such as `constructor`. */
export function labelOf<Label>(labels: Record<string, Label>, id: string): Label | undefined {
  return Object.hasOwn(labels, id) ? labels[id] : undefined
}
