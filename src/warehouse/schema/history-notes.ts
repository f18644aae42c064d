import { PROJECT, type TableNote } from './table-note.ts'

/** What ids meant, and when; part of the catalogue. */
export const HISTORY_TABLES: Record<string, TableNote> = {
  prompt_history: {
    about:
      'What each prompt was, and when: one row for each version, the open one without valid_to. Kept by the loads that see a change.',
    columns: {
      project_id: PROJECT,
      prompt_id: "The service's id of the prompt.",
      text: 'What was asked.',
      topic_id: 'Its topic; null if it had none.',
      tags: 'The ids of its tags, in order.',
      country_code: 'Its country, two letters; null if none was given.',
      valid_from: 'When a sync first saw it so. What it was before the first row is not known.',
      valid_to: 'When a sync first saw it otherwise; null while it is so.',
    },
  },
  brand_history: {
    about:
      'What each brand was called, and when: one row for each name, the open one without valid_to. Kept as names change.',
    columns: {
      project_id: PROJECT,
      brand_id: "The service's id of the brand.",
      name: 'Its name; null while none was known.',
      valid_from: 'When a sync first saw it so. What it was before the first row is not known.',
      valid_to: 'When a sync first saw it otherwise; null while it is so.',
    },
  },
}
