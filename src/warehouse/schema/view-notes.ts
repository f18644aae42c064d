import { BI_VIEWS, type BiView, type Dimension, type ReportSubject } from '../../core/vocabulary.ts'
import { COLUMNS } from './view-columns.ts'

/* What each view is for: the one source of its comment, of its columns' comments and of its place in the docs. */

export interface ViewNote {
  /** The question that it answers, as numbered in the docs. */
  question: number
  about: string
  /** The dimensions of the report that it needs; empty if it needs none. */
  needs: Dimension[]
  /** What the report is about, if not brands. Such a view is empty while no report of that kind is configured. */
  of?: Exclude<ReportSubject, 'brands'>
  /** True if the report may have more dimensions: its counts add up over them. */
  mayBeFiner?: boolean
  columns: Record<string, string>
}

export const QUESTIONS: readonly string[] = [
  'How visible are we, against the previous equal period?',
  'Share of voice over time, against each competitor?',
  'Which models are strongest and weakest for us?',
  'Head to head with one competitor, by model?',
  'Which topics do we own, and where are we invisible?',
  'On which prompts are we absent while rivals appear?',
  'Is our average position improving?',
  'Where is sentiment falling?',
  'Who gained or lost most this week?',
  'Branded or not, or by funnel stage?',
  'Which countries lead or lag?',
  'Can I trust it: did every prompt and model run, is the sample large enough?',
  'Which sources do the models cite?',
]

type ColumnName = keyof typeof COLUMNS

/** A note on a view of what models retrieve and cite. */
function sourceNote(
  of: Exclude<ReportSubject, 'brands'>,
  about: string,
  needs: string,
  columns: string,
  instead: Partial<Record<ColumnName, string>> = {},
): ViewNote {
  return { ...note(13, about, needs, columns, instead), of }
}

/** `instead` is what some columns of this view mean instead. */
function note(
  question: number,
  about: string,
  needs: string,
  columns: string,
  instead: Partial<Record<ColumnName, string>> = {},
): ViewNote {
  const named = columns
    .split(' ')
    .map((name) => [name, instead[name as ColumnName] ?? COLUMNS[name as ColumnName]] as const)
  return {
    question,
    about,
    needs: needs.split(' ').filter((name) => name !== '') as Dimension[],
    columns: Object.fromEntries(named),
  }
}

const COMPARED = 'visibility visibility_count answers previous_visibility previous_answers change'
const INTERVAL = 'visibility_low visibility_high enough_answers'
const CHANGE = `${INTERVAL} previous_visibility_count change_low change_high verdict`
const READ = 'days is_complete is_provisional'
const BOTH_READ = `${READ} comparison_is_complete`
const SENTIMENT_PARTS = `sentiment_points previous_sentiment_points ${BOTH_READ}`
const BY_WEEK = 'project_id project week brand_id brand is_own'

export const VIEWS: Record<BiView, ViewNote> = {
  visibility_daily: note(
    1,
    'Every brand day by day, with names and with every ratio ready to read.',
    'date',
    'project_id project date brand_id brand is_own visibility visibility_count answers mention_count position position_count sentiment sentiment_count ' +
      `${INTERVAL} position_points sentiment_points usual_visibility is_unusual`,
  ),
  visibility_weekly: note(
    1,
    'Visibility of every brand by week, and the week before.',
    'date',
    `${BY_WEEK} ${COMPARED} ${CHANGE} change_same_prompts ${BOTH_READ}`,
  ),
  visibility_monthly: note(
    1,
    'Visibility of every brand by month, and the month before.',
    'date',
    `project_id project month brand_id brand is_own ${COMPARED} ${CHANGE} change_same_prompts ${BOTH_READ}`,
  ),
  share_of_voice_daily: note(
    2,
    'Share of voice of every brand by day. Mentions within an answer depend on each other, so it has no interval.',
    'date',
    'project_id project date brand_id brand is_own share_of_voice mention_count all_mentions answers ' +
      'enough_answers usual_share_of_voice is_unusual',
  ),
  share_of_voice_weekly: note(
    2,
    'Share of voice of every brand by week, and the week before. It has no interval; the sample is beside it.',
    'date',
    `${BY_WEEK} share_of_voice mention_count all_mentions answers previous_share_of_voice previous_all_mentions change enough_answers previous_mention_count ${BOTH_READ}`,
  ),
  visibility_by_model_weekly: note(
    3,
    'Visibility of every brand by model and week; rank 1 is the strongest model of a brand.',
    'date model_id',
    `${BY_WEEK} model_id ${COMPARED} rank ${CHANGE} change_same_prompts ${BOTH_READ}`,
  ),
  visibility_by_channel_weekly: note(
    3,
    'Visibility of every brand by channel and week. A channel goes on when the model behind it changes; rank 1 is the strongest of a brand.',
    'date model_channel_id',
    `${BY_WEEK} model_channel_id ${COMPARED} rank ${CHANGE} ${BOTH_READ}`,
  ),
  head_to_head_weekly: note(
    4,
    'Every own brand against every rival, by model and week.',
    'date model_id',
    'project_id project week model_id own_brand_id own_brand rival_brand_id rival_brand own_visibility rival_visibility lead own_share_of_both own_mention_count rival_mention_count answers ' +
      'own_visibility_count own_answers rival_visibility_count own_visibility_low own_visibility_high ' +
      `rival_visibility_low rival_visibility_high enough_answers lead_verdict ${READ}`,
  ),
  topics_weekly: note(
    5,
    'Who leads each topic, and who is invisible in it, by week.',
    'date topic_id',
    'project_id project week topic_id topic brand_id brand is_own visibility visibility_count answers rank leads is_invisible gap_to_leader ' +
      `${INTERVAL} ${READ}`,
  ),
  absent_prompts: note(
    6,
    'Prompts and models whose answers of a week name rivals but not the own brand.',
    'date prompt_id model_id',
    'project_id project week prompt_id prompt topic_id topic model_id own_brand_id own_brand answers rivals best_rival_visibility rival_names ' +
      `rival_list ${INTERVAL} ${READ}`,
    {
      visibility_low: 'Lower end of the 95 % interval of the own visibility (Wilson): 0, since no answer names it.',
      visibility_high:
        'Upper end of that interval: the own brand may be that visible though this sample does not show it.',
    },
  ),
  position_by_model_weekly: note(
    7,
    'Mean position of every brand by model and week, and the week before.',
    'date model_id',
    `${BY_WEEK} model_id position position_count previous_position previous_position_count change is_improving answers position_points previous_position_points ${BOTH_READ}`,
  ),
  sentiment_by_topic_weekly: note(
    8,
    'Sentiment of every brand by topic and week, and the week before.',
    'date topic_id',
    `${BY_WEEK} topic_id topic sentiment sentiment_count previous_sentiment previous_sentiment_count change is_falling answers ${SENTIMENT_PARTS}`,
  ),
  sentiment_by_prompt_weekly: note(
    8,
    'Sentiment of every brand by prompt and week, and the week before.',
    'date prompt_id model_id',
    `${BY_WEEK} prompt_id prompt sentiment sentiment_count previous_sentiment previous_sentiment_count change is_falling answers ${SENTIMENT_PARTS}`,
  ),
  movers_weekly: note(
    9,
    'What changed against the week before, by brand, topic and model; rank 1 is the clearest change, not the largest.',
    'date topic_id model_id',
    `${BY_WEEK} topic_id topic model_id visibility answers previous_visibility previous_answers change rank visibility_count previous_visibility_count ` +
      `${INTERVAL} change_low change_high verdict clarity rank_by_size ${BOTH_READ}`,
    { rank: 'Rank within the project and week by how clear the change is, 1 is clearest.' },
  ),
  visibility_by_tag_weekly: note(
    10,
    'Visibility of every brand by tag and week. A prompt carries several tags: never add up rows of different tags.',
    'date tag_id',
    `${BY_WEEK} tag_id tag ${COMPARED} ${CHANGE} ${BOTH_READ}`,
  ),
  visibility_by_country_weekly: note(
    11,
    'Visibility of every brand by country and week; rank 1 is the strongest country of a brand.',
    'date country_code',
    `${BY_WEEK} country_code ${COMPARED} rank ${CHANGE} ${BOTH_READ}`,
  ),
  sample_sizes: note(
    12,
    'How many answers each prompt and model had on a day, by chats and by report.',
    'date prompt_id model_id',
    'project_id project date prompt_id prompt model_id chats answers agrees',
  ),
  sample_sizes_daily: note(
    12,
    'Whether every prompt ran in every model on a day, and how far the sample can be trusted.',
    'date prompt_id model_id',
    'project_id project date model_id chats answers agrees prompts_asked prompts_of_the_day prompts_missing margin_of_error enough_answers',
  ),
  answers_daily: note(
    12,
    'How many answers there were on a day. Without brands, so that it may be added up: in other views answers stand once for each brand.',
    'date',
    'project_id project date answers usual_answers is_unusual',
    { answers: 'Number of answers of the day.' },
  ),
  data_status: note(
    12,
    'What was read of each day of each stream, when, and whether it may still change.',
    '',
    'project_id project stream date rows read_at state is_provisional restated_at restatements',
    {
      date: 'The day, UTC. For a list, the day on which it was read.',
      is_provisional:
        'True while the day may still change: it is too young, held, or to be read again. False for lists.',
    },
  ),
  freshness: note(
    12,
    'How fresh and how whole each stream is.',
    '',
    'project_id project stream last_read_at first_day last_day missing_days held_days quarantined_rows is_stale',
  ),
  sources_weekly: sourceNote(
    'domains',
    'Domains that answers retrieve and cite, by week, and the week before. Empty without a report of domains by date.',
    'date',
    'project_id project week domain classification is_own is_rival retrieved_chat_count answers retrieved_share ' +
      'retrieved_share_low retrieved_share_high enough_answers citation_count citations_per_answer ' +
      'previous_retrieved_chat_count previous_answers previous_retrieved_share change change_low change_high verdict ' +
      `previous_citation_count rank ${BOTH_READ}`,
    {
      is_own: 'True for own domains: by the domains listed for brands, else by the classification.',
      answers:
        'The sample: number of answers of the days on which anything is retrieved. The same for every domain: never add it up over domains.',
      rank: 'Rank within the project and week by citation_count, 1 is highest.',
    },
  ),
  cited_pages_weekly: {
    ...sourceNote(
      'urls',
      'Pages that answers use and cite, by week. Empty without a report of URLs.',
      'date',
      'project_id project week url title classification domain is_own is_rival usage_count citation_count retrievals ' +
        `citations_per_retrieval rank ${READ}`,
      {
        classification: 'Its kind, as the service gave it last: HOMEPAGE, PRODUCT_PAGE, LISTICLE, ARTICLE and others.',
        domain: 'The host in its address; null if it has none.',
        is_own: 'True for pages of own domains, by the domains listed for brands.',
        is_rival: 'True for pages of domains of rivals, by the domains listed for brands.',
        rank: 'Rank within the project and week by citation_count, 1 is highest.',
      },
    ),
    mayBeFiner: true,
  },
  source_gaps: sourceNote(
    'domains',
    'Domains that answers cite for prompts and models where rivals appear and the own brand does not, by week. Empty without reports of domains and of brands by prompt and model.',
    'date prompt_id model_id',
    'project_id project week own_brand_id own_brand domain classification is_own is_rival prompts models citation_count ' +
      `retrieved_chat_count rank ${READ}`,
    {
      is_own: 'True for own domains: by the domains listed for brands, else by the classification.',
      citation_count: 'How often answers to those prompts cite it.',
      retrieved_chat_count: 'Number of answers to those prompts that retrieve it.',
      rank: 'Rank within the week and own brand by citation_count, 1 is highest.',
    },
  ),
}

/** The views that answer a question. */
export function viewsOf(question: number): BiView[] {
  return BI_VIEWS.filter((name) => VIEWS[name].question === question)
}
