import type { Config, ReportConfig } from '../../core/config/load.ts'
import type { Dimension, Metric } from '../../core/vocabulary.ts'
import { METRICS } from '../../core/vocabulary.ts'
import { DIMENSION_NOTES, otherDimensions } from '../../streams/brand-report.ts'
import { CHAT_CONTENTS } from '../../streams/chat-contents.ts'
import { customDefinition } from '../../streams/custom-stream.ts'
import type { StreamDefinition } from '../../streams/defined-stream.ts'
import { extraList } from '../../streams/extra-lists.ts'
import { sourceReport } from '../../streams/source-report.ts'
import { HISTORY_TABLES } from './history-notes.ts'
import { PROJECT, type TableNote } from './table-note.ts'

/* What every table and column means: the one source of the comments in the database and of docs/tables.md. */

export type { TableNote } from './table-note.ts'

const FIRST_SEEN = 'When a sync first saw it.'
const CHANGED = 'When a sync last wrote the row.'
const LISTED = {
  listed_at: 'When a sync first saw it in the list of the service; null if only rows mention it.',
  removed_at: 'When a sync first missed it in that list; null while it is listed, or never was.',
}
const REMOVED = 'When a sync first missed it in the list; null while it is listed.'
export const RUN = 'The run that wrote this, see runs.'

const METRIC_NOTES: Record<Metric, string> = {
  mention_count: 'How often the answers name the brand.',
  visibility:
    'Share of answers that name the brand, 0 to 1: visibility_count / visibility_total. Never average it; divide the sums.',
  visibility_count: 'Number of answers that name the brand.',
  visibility_total:
    "Number of answers in the group. It stands on every brand's row of the group: never sum it across brands.",
  share_of_voice: "The brand's mentions divided by those of all tracked brands in the group, 0 to 1. Never average it.",
  sentiment:
    "Mean sentiment, on the service's own scale; null without mentions. Never average it: weigh it by sentiment_count.",
  sentiment_sum: 'Sum of the sentiments of the mentions, on a scale that the service does not document.',
  sentiment_count: 'Number of mentions with a sentiment.',
  position:
    'Mean position in the answers, lower is better; null without mentions. Never average it: weigh it by position_count.',
  position_sum: 'Sum of the positions.',
  position_count: 'Number of answers with a position.',
}

const promptColumns = (id: string, kind: string) => ({
  project_id: PROJECT,
  [id]: `The service's id of the ${kind}.`,
  text: 'What is asked: the contents of all messages.',
  messages: 'The messages as the service gives them.',
  topic_id: 'Its topic; null if it has none.',
  user_location: 'The location as the service gives it.',
  country_code: 'The country of the location, two letters; null if none is given.',
  volume: 'How often people ask it: a number, or words such as "very low", as the service gives it.',
  volume_number: 'The volume if it is a number.',
  first_seen_at: FIRST_SEEN,
  removed_at: REMOVED,
})

export const SCHEMA_NOTES = {
  schema: 'AI answer visibility, kept in step with the service by visibility-sync. For people and BI tools.',
  ops: 'What visibility-sync remembers of its work: runs, coverage, quarantine. Not for BI.',
}

export const TABLES: Record<string, TableNote> = {
  projects: definedNote(extraList('projects'), LISTED),
  project_profiles: {
    about: 'The profile of each project, one current row each.',
    columns: {
      project_id: PROJECT,
      name: 'The name of the brand.',
      occupation: 'What the company does.',
      industry: 'Its industry.',
      brand_presentation: 'How the brand presents itself: a list of texts.',
      products_and_services: 'What it offers: a list of texts.',
      target_markets: 'Where it sells: a list of objects with location and osmId.',
      audience_distribution: 'How its audience is made up: numbers by kind of audience.',
      used_prepared_profile: 'True if a prepared profile was used.',
      first_seen_at: FIRST_SEEN,
      removed_at: 'When a sync first got no profile; null while there is one.',
    },
  },
  brands: definedNote(extraList('brands'), {
    is_own: 'True for own brands: as labels in the configuration say, or else as the service lists them.',
    ...LISTED,
  }),
  topics: definedNote(extraList('topics'), LISTED),
  tags: definedNote(extraList('tags'), LISTED),
  model_channels: definedNote(extraList('model_channels'), { first_seen_at: FIRST_SEEN, removed_at: REMOVED }),
  models: {
    about: 'The models that rows mention.',
    columns: { project_id: PROJECT, model_id: 'The name of the model, which is its id.' },
  },
  prompts: {
    about: 'The prompts of each project. Those that the service no longer lists keep their row and have removed_at.',
    columns: promptColumns('prompt_id', 'prompt'),
  },
  prompt_tags: {
    about: 'The tags of prompts, one row for each pair.',
    columns: { project_id: PROJECT, prompt_id: 'The prompt.', tag_id: 'One of its tags.' },
  },
  prompt_suggestions: {
    about: 'Prompts that the service suggests.',
    columns: promptColumns('suggestion_id', 'suggestion'),
  },
  prompt_suggestion_tags: {
    about: 'The tags of prompt suggestions, one row for each pair.',
    columns: { project_id: PROJECT, suggestion_id: 'The suggestion.', tag_id: 'One of its tags.' },
  },
  domain_classifications: {
    about: 'The custom classifications of domains.',
    columns: {
      project_id: PROJECT,
      name: 'Its name, which is its key.',
      color: 'Its colour.',
      first_seen_at: FIRST_SEEN,
      removed_at: REMOVED,
    },
  },
  url_classifications: definedNote(extraList('url_classifications'), {
    first_seen_at: FIRST_SEEN,
    removed_at: REMOVED,
  }),
  ...HISTORY_TABLES,
  calendar: {
    about: 'The days from 2015 to next week with their weeks and months.',
    columns: {
      date: 'The day.',
      week: 'The Monday of its week.',
      month: 'The first day of its month.',
      quarter: 'The first day of its quarter.',
      year: 'Its year.',
      weekday: 'Monday is 1, Sunday is 7.',
      iso_week: 'Its week as 2026-W07.',
    },
  },
  chats: {
    about: 'Single answers of a model to a prompt on a day.',
    columns: {
      project_id: PROJECT,
      chat_id: "The service's id of the answer.",
      prompt_id: 'The prompt that was asked.',
      model_id: 'The model that answered.',
      model_channel_id: 'The channel through which it was asked, if the service says so.',
      date: 'The day, UTC.',
    },
  },
  chat_contents: definedNote(CHAT_CONTENTS, {
    first_seen_at: 'When it was read.',
    removed_at: 'Always null: what was read stays.',
  }),
}

/** Views that do not depend on a report. */
export const HELPER_VIEWS: Record<string, TableNote> = {
  weeks_compared: {
    about: 'Every day in its own week and, for comparison, in the week after it: join reports by date, group by week.',
    columns: {
      date: 'The day.',
      week: 'The Monday of the week in which it counts.',
      ago: '0 in its own week, 1 in the week after it.',
    },
  },
  months_compared: {
    about: 'Every day in its own month and, for comparison, in the month after it.',
    columns: {
      date: 'The day.',
      month: 'The first day of the month in which it counts.',
      ago: '0 in its own month, 1 in the month after it.',
    },
  },
}

/** What the definition of a stream says of its table. */
function definedNote({ about, columns }: StreamDefinition, more: Record<string, string>): TableNote {
  return {
    about,
    columns: {
      project_id: PROJECT,
      ...Object.fromEntries(columns.map((column) => [column.name, column.about])),
      ...more,
    },
  }
}

export function customNote(custom: Config['custom_streams'][number]): TableNote {
  const own = custom.by === 'day' ? { changed_at: CHANGED } : { first_seen_at: FIRST_SEEN, removed_at: REMOVED }
  return definedNote(customDefinition(custom), own)
}

export function reportNote(report: Pick<ReportConfig, 'dimensions' | 'filters' | 'name' | 'of'>): TableNote {
  const { of = 'brands' } = report
  if (of !== 'brands') return definedNote(sourceReport(report as ReportConfig, of), { changed_at: CHANGED })
  const others = otherDimensions(report as ReportConfig)
  return {
    about: `How each brand appears in answers, by ${['date', ...others].join(', ')}. Ratios: divide sums, never average them.`,
    columns: {
      project_id: PROJECT,
      date: 'The day, UTC.',
      brand_id: 'The brand, see brands.',
      ...Object.fromEntries(others.map((name) => [name, DIMENSION_NOTES[name as Exclude<Dimension, 'date'>]])),
      ...Object.fromEntries(METRICS.map((metric) => [metric, METRIC_NOTES[metric]])),
      changed_at: CHANGED,
    },
  }
}
