/* The rows of sections. A statement names the columns that it selects; a column with the same name is the same in all of them. */

export type Words<Text extends string> = Text extends `${infer First} ${infer Rest}` ? First | Words<Rest> : Text

/** The columns that are not numbers, or are never null. */
interface Columns
  extends Record<Words<'metric brand brand_id topic prompt prompt_id domain url chat_id date week last_week'>, string>,
    Record<Words<'rival_brand rival_brand_id lead_verdict grain grouped_by'>, string>,
    Record<Words<'topic_id model model_id model_channel_id id name title verdict classification'>, string | null>,
    Record<Words<'rival rivals_in_their_best_week'>, string | null>,
    Record<Words<'is_own is_rival is_complete is_provisional comparison_is_complete'>, boolean | null>,
    // Counts of all rows, not only of those that are shown.
    Record<Words<'whole_count judged_count clear_count'>, number>,
    // As the service sent them, in whatever shape. Null if the content of the chat was not read.
    Record<Words<'messages sources brands_mentioned'>, unknown> {
  rival_names: string[] | string | null
}

export type Row<Names extends string> = {
  [Name in Words<Names>]: Name extends keyof Columns ? Columns[Name] : number | null
}

/** A point of a chart, which has its numbers besides. */
export type ChartRow = Row<'brand_id brand is_own is_complete is_provisional'> & Partial<Row<'date week'>>

/** A visibility that is compared with the one before. */
export type ComparedRow =
  Row<'visibility visibility_low visibility_high visibility_count answers previous_visibility change verdict'>

export type LeadRow = Row<'own_visibility own_visibility_low own_visibility_high own_share_of_both own_answers'> &
  Row<'rival_brand rival_visibility rival_visibility_low rival_visibility_high answers lead lead_verdict'>

export type MoverRow = Row<'brand is_own topic_id topic model_id grain q_value visibility previous_visibility'> &
  Row<'change change_low change_high verdict answers previous_answers whole_count'>

/** A number with the interval and the count only of a share. */
export type MeasuredRow = Row<'value sample'> &
  Partial<Row<'low high count previous_value previous_sample change change_low change_high verdict'>>
