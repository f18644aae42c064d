import { BI_VIEWS, type BiView, type Dimension } from '../core/vocabulary.ts'

/* What each view is for: the one source of its comment, of its columns' comments and of its place in the docs. */

export interface ViewNote {
  /** The question that it answers, as numbered in the docs. */
  question: number
  about: string
  /** The dimensions of the report that it needs. */
  needs: Dimension[]
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
]

/** What a column means wherever it stands. */
const COLUMNS = {
  project_id: "The service's id of the project.",
  project: 'The name of the project, or its id where no name is known.',
  date: 'The day, UTC.',
  week: 'The Monday of the week.',
  month: 'The first day of the month.',
  brand_id: "The service's id of the brand.",
  brand: 'The name of the brand, or its id.',
  is_own: 'True for own brands, as labels in the configuration say.',
  model_id: 'The name of the model.',
  topic_id: "The service's id of the topic; null where the prompt has none.",
  topic: 'The name of the topic, or its id.',
  tag_id: "The service's id of the tag; null for prompts without one.",
  tag: 'The name of the tag, or its id.',
  prompt_id: "The service's id of the prompt.",
  prompt: 'The text of the prompt, or its id.',
  country_code: 'The country from which the prompt was asked, two letters.',
  visibility: 'Share of answers that name the brand, 0 to 1: the sum of visibility_count over the sum of answers.',
  visibility_count: 'Number of answers that name the brand.',
  answers: 'The sample: number of answers. The same for every brand of a group, so never add it up over brands.',
  mention_count: 'How often the answers name the brand.',
  all_mentions: 'How often the answers name any tracked brand.',
  share_of_voice: "The brand's mentions over those of all tracked brands, 0 to 1.",
  position: 'Mean position in the answers, lower is better; null without one.',
  position_count: 'The sample: number of answers with a position.',
  sentiment: 'Mean sentiment, 0 to 100; null without one.',
  sentiment_count: 'The sample: number of mentions with a sentiment.',
  previous_visibility: 'The same for the period before; null where there is none.',
  previous_answers: 'The sample of the period before.',
  previous_share_of_voice: 'The same for the week before; null where there is none.',
  previous_all_mentions: 'All mentions of the week before.',
  previous_position: 'The same for the week before; null where there is none.',
  previous_position_count: 'The sample of the week before.',
  previous_sentiment: 'The same for the week before; null where there is none.',
  previous_sentiment_count: 'The sample of the week before.',
  change: 'This period minus the one before; null where there is none before.',
  is_improving: 'True where the position is lower than the week before.',
  is_falling: 'True where the sentiment is lower than the week before.',
  rank: 'Its place among its like in the same week; 1 is first.',
  leads: 'True for the most visible brand of the topic.',
  is_invisible: 'True where no answer names the brand.',
  gap_to_leader: 'Visibility minus that of the most visible brand: 0 for the leader, negative for others.',
  own_brand_id: "The service's id of the own brand.",
  own_brand: 'The name of the own brand, or its id.',
  rival_brand_id: "The service's id of the rival.",
  rival_brand: 'The name of the rival, or its id.',
  own_visibility: 'Share of answers that name the own brand.',
  rival_visibility: 'Share of answers that name the rival.',
  lead: 'own_visibility minus rival_visibility.',
  own_share_of_both: "The own brand's mentions over those of both.",
  own_mention_count: 'How often the answers name the own brand.',
  rival_mention_count: 'How often the answers name the rival.',
  rivals: 'How many rivals appear.',
  best_rival_visibility: 'The highest visibility of a rival.',
  rival_names: 'The rivals that appear.',
  chats: 'Number of single answers in the table of chats.',
  agrees: 'True where chats and report tell the same number.',
  prompts_asked: 'How many prompts this model answered that day.',
  prompts_of_the_day: 'How many prompts any model answered that day.',
  prompts_missing: 'How many of those this model did not answer.',
  margin_of_error: 'Half the width of a 95 % interval around a visibility of one half: the widest it can be.',
} as const

type ColumnName = keyof typeof COLUMNS

function note(question: number, about: string, needs: string, columns: string): ViewNote {
  const named = columns.split(' ').map((name) => [name, COLUMNS[name as ColumnName]] as const)
  return { question, about, needs: needs.split(' ') as Dimension[], columns: Object.fromEntries(named) }
}

const COMPARED = 'visibility visibility_count answers previous_visibility previous_answers change'
const BY_WEEK = 'project_id project week brand_id brand is_own'

export const VIEWS: Record<BiView, ViewNote> = {
  visibility_daily: note(
    1,
    'Every brand day by day, with names and with every ratio ready to read.',
    'date',
    'project_id project date brand_id brand is_own visibility visibility_count answers mention_count position position_count sentiment sentiment_count',
  ),
  visibility_weekly: note(
    1,
    'Visibility of every brand by week, and the week before.',
    'date',
    `${BY_WEEK} ${COMPARED}`,
  ),
  visibility_monthly: note(
    1,
    'Visibility of every brand by month, and the month before.',
    'date',
    `project_id project month brand_id brand is_own ${COMPARED}`,
  ),
  share_of_voice_daily: note(
    2,
    'Share of voice of every brand by day.',
    'date',
    'project_id project date brand_id brand is_own share_of_voice mention_count all_mentions answers',
  ),
  share_of_voice_weekly: note(
    2,
    'Share of voice of every brand by week, and the week before.',
    'date',
    `${BY_WEEK} share_of_voice mention_count all_mentions answers previous_share_of_voice previous_all_mentions change`,
  ),
  visibility_by_model_weekly: note(
    3,
    'Visibility of every brand by model and week; rank 1 is the strongest model of a brand.',
    'date model_id',
    `${BY_WEEK} model_id ${COMPARED} rank`,
  ),
  head_to_head_weekly: note(
    4,
    'Every own brand against every rival, by model and week.',
    'date model_id',
    'project_id project week model_id own_brand_id own_brand rival_brand_id rival_brand own_visibility rival_visibility lead own_share_of_both own_mention_count rival_mention_count answers',
  ),
  topics_weekly: note(
    5,
    'Who leads each topic, and who is invisible in it, by week.',
    'date topic_id',
    'project_id project week topic_id topic brand_id brand is_own visibility visibility_count answers rank leads is_invisible gap_to_leader',
  ),
  absent_prompts: note(
    6,
    'Prompts and models whose answers of a week name rivals but not the own brand.',
    'date prompt_id model_id',
    'project_id project week prompt_id prompt topic_id topic model_id own_brand_id own_brand answers rivals best_rival_visibility rival_names',
  ),
  position_by_model_weekly: note(
    7,
    'Mean position of every brand by model and week, and the week before.',
    'date model_id',
    `${BY_WEEK} model_id position position_count previous_position previous_position_count change is_improving answers`,
  ),
  sentiment_by_topic_weekly: note(
    8,
    'Sentiment of every brand by topic and week, and the week before.',
    'date topic_id',
    `${BY_WEEK} topic_id topic sentiment sentiment_count previous_sentiment previous_sentiment_count change is_falling answers`,
  ),
  sentiment_by_prompt_weekly: note(
    8,
    'Sentiment of every brand by prompt and week, and the week before.',
    'date prompt_id model_id',
    `${BY_WEEK} prompt_id prompt sentiment sentiment_count previous_sentiment previous_sentiment_count change is_falling answers`,
  ),
  movers_weekly: note(
    9,
    'What changed most against the week before, by brand, topic and model.',
    'date topic_id model_id',
    `${BY_WEEK} topic_id topic model_id visibility answers previous_visibility previous_answers change rank`,
  ),
  visibility_by_tag_weekly: note(
    10,
    'Visibility of every brand by tag and week. A prompt carries several tags: never add up rows of different tags.',
    'date tag_id',
    `${BY_WEEK} tag_id tag ${COMPARED}`,
  ),
  visibility_by_country_weekly: note(
    11,
    'Visibility of every brand by country and week; rank 1 is the strongest country of a brand.',
    'date country_code',
    `${BY_WEEK} country_code ${COMPARED} rank`,
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
    'project_id project date model_id chats answers agrees prompts_asked prompts_of_the_day prompts_missing margin_of_error',
  ),
}

/** The views that answer a question. */
export function viewsOf(question: number): BiView[] {
  return BI_VIEWS.filter((name) => VIEWS[name].question === question)
}
