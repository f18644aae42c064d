import { PROJECT, type TableNote } from './table-note.ts'

/* What views need beside the rows: settings, and sums. Part of the catalogue. */

const PROJECT_NAME = 'The name of the project, or its id where no name is known.'

const PROMPT_SUMS = {
  project_id: PROJECT,
  unit: 'week or month.',
  start: 'Its first day.',
  grain:
    'What a row is about: prompt_model, prompt (all models), or, over the prompts that the period before has too, same_model and same (all models).',
  brand_id: 'The brand.',
  prompt_id: 'The prompt.',
  model_id: 'The model.',
  visibility_count: 'Number of answers that name the brand.',
  answers: 'Number of answers.',
  sentiment_points: 'Sum of sentiment times sentiment_count.',
  sentiment_count: 'Number of mentions with a sentiment.',
  previous_visibility_count: 'The same of the period before.',
  previous_answers: 'The same of the period before.',
  previous_sentiment_points: 'The same of the period before.',
  previous_sentiment_count: 'The same of the period before.',
  named_ids: 'Where no answer of the prompt and model names the brand: the brands that are named.',
  named_visibility: 'How visible each of those is, in the same order.',
}

const PROMPT_DAYS = {
  project_id: PROJECT,
  week: 'The Monday of its week.',
  date: 'The day.',
  prompt_id: 'The prompt.',
  model_id: 'The model.',
  chats: 'How many chats there are.',
  answers: 'How many answers the report has.',
}

export const SUM_TABLES: Record<string, TableNote> = {
  stream_settings: {
    about:
      'What the configuration asks of each stream, as the last run had it, and how late its days changed: for the views.',
    columns: {
      project_id: PROJECT,
      stream: 'The stream.',
      by_day: 'True if it is read by days, false for lists.',
      lookback_days: 'How many of the last days each run reads again.',
      first_day: 'The first day of interest.',
      last_day: 'The last day of interest; null for today.',
      max_staleness: 'After how long without a read it is stale.',
      restated_days:
        'How many days back changes were found within the last 60 days, the latest twentieth and what is older than a month left out; null if none were.',
      final_after_days: 'A day that was read at this age or later is not expected to change.',
    },
  },
  open_periods: {
    about: 'Weeks and months whose rows changed since they were summed. Views sum these on the fly.',
    columns: {
      project_id: PROJECT,
      stream: 'The table whose rows changed.',
      unit: 'week or month.',
      start: 'Its first day.',
    },
  },
  prompt_sums: {
    about:
      'Sums of the report by prompt and model, for views that would otherwise read all of it. See prompt_sums_now.',
    columns: PROMPT_SUMS,
  },
  usual_days: {
    about: 'What is usual for a brand on a day, by the same weekday of the eight weeks before. See usual_projects.',
    columns: {
      project_id: PROJECT,
      date: 'The day.',
      brand_id: 'The brand.',
      usual_visibility: 'The median of its visibility; null where fewer than five of the days have one.',
      visibility_deviation: 'The median of the distances from that median.',
      usual_share_of_voice: 'The median of its share of voice; null where fewer than five of the days have one.',
      share_of_voice_deviation: 'The median of the distances from that median.',
    },
  },
  usual_projects: {
    about: 'Which days of usual_days are to be computed again.',
    columns: {
      project_id: PROJECT,
      is_due: 'True if all days of the project are to be computed at the end of the next run.',
      first_day: 'The first day of the report when it was last computed. If it is later now, days were dropped.',
      due_days: 'Days whose rows changed since then.',
    },
  },
  prompt_days: {
    about: 'Answers by day, prompt and model, by chats and by report. See prompt_days_now.',
    columns: PROMPT_DAYS,
  },
}

/** Views that other views read. */
export const SUM_VIEWS: Record<string, TableNote> = {
  days_read: {
    about: 'Every day that was read, and how far it can be relied on.',
    columns: {
      project_id: PROJECT,
      project: PROJECT_NAME,
      stream: 'The stream.',
      date: 'The day.',
      week: 'The Monday of its week.',
      month: 'The first day of its month.',
      rows: 'How many rows the day had when it was last read.',
      read_at: 'When it was last asked for.',
      state: 'As in coverage.',
      is_whole: 'True if it was read after it was over, with no row rejected and no answer held.',
      is_provisional: 'True if it was last read too early to be final, or is held or to be read again.',
    },
  },
  prompt_sums_now: {
    about: 'prompt_sums, with open periods summed on the fly.',
    columns: { ...PROMPT_SUMS, project: PROJECT_NAME },
  },
  kept_sums: {
    about: 'prompt_sums, without those of open periods.',
    columns: PROMPT_SUMS,
  },
  open_sums: {
    about: 'Sums of open periods, worked out when they are asked for.',
    columns: { ...PROMPT_SUMS, project: PROJECT_NAME },
  },
  prompt_days_now: {
    about: 'prompt_days, with days of open weeks counted on the fly.',
    columns: { ...PROMPT_DAYS, project: PROJECT_NAME },
  },
}
