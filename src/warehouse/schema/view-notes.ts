import { BI_VIEWS, type BiView, type Dimension, type ReportSubject } from '../../core/vocabulary.ts'

/* What each view is for: the one source of its comment, of its columns' comments and of its place in the docs. */

export interface ViewNote {
  /** The question that it answers, as numbered in the docs. */
  question: number
  about: string
  /** The dimensions of the report that it needs; empty if it needs none. */
  needs: Dimension[]
  /** What the report is about; brands by default. */
  of?: ReportSubject
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
  project: 'The name of the project, or its id if no name is known.',
  date: 'The day, UTC.',
  week: 'The Monday of the week.',
  month: 'The first day of the month.',
  brand_id: "The service's id of the brand.",
  brand: 'The name of the brand, or its id.',
  is_own:
    'True for own brands: by labels in the configuration, else by the list of the service, else by the name of the profile.',
  model_id: 'The name of the model.',
  model_channel_id:
    'The channel through which the model was asked. It stays the same when the model behind it changes.',
  topic_id: "The service's id of the topic; null if the prompt has none.",
  topic: 'The name of the topic, or its id.',
  tag_id: "The service's id of the tag; null for prompts without one.",
  tag: 'The name of the tag, or its id.',
  prompt_id: "The service's id of the prompt.",
  prompt: 'The text of the prompt, or its id.',
  country_code: 'The country from which the prompt was asked, two letters.',
  visibility: 'Share of answers that name the brand, 0 to 1: the sum of visibility_count over the sum of answers.',
  visibility_count: 'Number of answers that name the brand.',
  answers:
    'The sample: number of answers. The same for every brand of a group: never add it up over brands, use answers_daily for that.',
  mention_count: 'How often the answers name the brand.',
  all_mentions: 'How often the answers name any tracked brand.',
  share_of_voice: "The brand's mentions over those of all tracked brands, 0 to 1.",
  position: "Mean position in the answers, by the service's own numbers; lower is better; null without one.",
  position_count: 'The sample: number of answers with a position.',
  sentiment: "Mean sentiment, by the service's own numbers and on its scale; null without one.",
  sentiment_count: 'The sample: number of mentions with a sentiment.',
  previous_visibility: 'The same for the period before; null if there is none.',
  previous_answers: 'The sample of the period before.',
  previous_share_of_voice: 'The same for the week before; null if there is none.',
  previous_all_mentions: 'All mentions of the week before.',
  previous_position: 'The same for the week before; null if there is none.',
  previous_position_count: 'The sample of the week before.',
  previous_sentiment: 'The same for the week before; null if there is none.',
  previous_sentiment_count: 'The sample of the week before.',
  change: 'This period minus the one before; null if there is none before.',
  is_improving: 'True if the position is lower than the week before.',
  is_falling: 'True if the sentiment is lower than the week before.',
  rank: 'Rank within the week, 1 is highest.',
  leads: 'True for the most visible brand of the topic.',
  is_invisible: 'True if no answer names the brand.',
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
  agrees: 'True if chats and report have the same number.',
  prompts_asked: 'How many prompts this model answered that day.',
  prompts_of_the_day: 'How many prompts any model answered that day.',
  prompts_missing: 'How many of those this model did not answer.',
  visibility_low:
    'Lower end of the 95 % interval of the visibility (Wilson). It covers asking these prompts again, not the whole market.',
  visibility_high: 'Upper end of that interval.',
  enough_answers: 'True from 30 answers on; below, do not read much into a share.',
  previous_visibility_count: 'Number of answers of the period before that name the brand.',
  change_low: 'Lower end of the 95 % interval of the change (Newcombe).',
  change_high: 'Upper end of that interval.',
  verdict:
    'The change in words: up or down where its interval is clear of zero, no_clear_change, too_few (a sample under 30 answers), new (no period before).',
  change_same_prompts:
    'The change over the prompts that both periods have: prompts that were added or removed do not move it. From the report by prompt and model; null without it.',
  days: 'How many days of the period were read.',
  is_complete:
    'True if all days of the period were read after they were over, with no row rejected and no answer held.',
  is_provisional: 'True while the numbers may still change: days are too young, held, or to be read again.',
  comparison_is_complete: 'True if this period and the one before are complete; null if there is none before.',
  usual_visibility:
    'The median of the same weekday of the eight weeks before; null if fewer than five of them were read.',
  usual_share_of_voice:
    'The median of the same weekday of the eight weeks before; null if fewer than five of them were read.',
  usual_answers: 'The median of the same weekday of the eight weeks before; null if fewer than five of them were read.',
  is_unusual:
    'True if the day is more than 3 × 1.4826 × the median absolute deviation from what is usual; null if that is not known.',
  position_points: 'The position times position_count: add it up, and divide it by position_count added up.',
  previous_position_points: 'The same for the week before.',
  sentiment_points: 'The sentiment times sentiment_count: add it up, and divide it by sentiment_count added up.',
  previous_sentiment_points: 'The same for the week before.',
  previous_mention_count: 'How often the answers of the week before name the brand.',
  own_visibility_count: 'Number of answers that name the own brand.',
  own_answers: 'The sample of the own brand; answers is that of the rival.',
  rival_visibility_count: 'Number of answers that name the rival.',
  own_visibility_low: 'Lower end of the 95 % interval of own_visibility (Wilson).',
  own_visibility_high: 'Upper end of that interval.',
  rival_visibility_low: 'Lower end of the 95 % interval of rival_visibility (Wilson).',
  rival_visibility_high: 'Upper end of that interval.',
  lead_verdict:
    'ahead or behind if the two intervals do not touch, no_clear_lead, or too_few (a sample under 30 answers).',
  rival_list: 'The rivals that appear, as one text: filters on lists fail in BI tools.',
  clarity: 'The change over the half of its interval that lies towards zero: above 1 the change is clear.',
  rank_by_size: 'Rank within the week by the size of the change, however small the sample.',
  stream: 'The stream: a list, the chats, or a report.',
  rows: 'How many rows the day had when it was last read. For a list, how long it was.',
  read_at: 'When it was last asked for.',
  state: 'read, quarantined (some rows were rejected), held (an answer awaits review) or stale (to be read again).',
  restated_at: 'When a later read last changed rows of this day; null if none did.',
  restatements: 'How many later reads changed rows of this day.',
  last_read_at: 'When anything of the stream was last read; null if it never was.',
  first_day: 'The first day that was read; null for lists.',
  last_day: 'The last day that was read; null for lists.',
  missing_days: 'Days of interest that were never read; null for lists.',
  held_days: 'Days whose last answer awaits review, because it would have deleted more than half of the rows.',
  quarantined_rows: 'Rows that failed validation and are not in the tables.',
  is_stale: 'True if nothing was read for longer than serve.max_staleness in the configuration.',
  margin_of_error: 'Half the width of a 95 % interval around a visibility of one half: the widest it can be.',
} as const

type ColumnName = keyof typeof COLUMNS

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
}

/** The views that answer a question. */
export function viewsOf(question: number): BiView[] {
  return BI_VIEWS.filter((name) => VIEWS[name].question === question)
}
