import { BI_VIEWS, type BiView, type Dimension, type ReportSubject } from '../../core/vocabulary.ts'
import { COMMENTS, type TableNote } from './catalogue.ts'

/* The views for BI: the comments of each and of its columns, the question it answers, and the report it needs. */

export interface ViewNote extends TableNote {
  /** The question that it answers, as numbered in the docs. */
  question: number
  /** The dimensions of the report that it needs; empty if it needs none. */
  needs: Dimension[]
  /** What the report is about, if not brands. Such a view is empty while no report of that kind is configured. */
  of?: Exclude<ReportSubject, 'brands'>
  /** True if the report may have more dimensions: its counts add up over them. */
  mayBeFiner?: boolean
}

export const QUESTIONS: readonly string[] = COMMENTS.questions

const words = (text: string) => text.split(' ').filter((word) => word !== '')

export const VIEWS = Object.fromEntries(
  Object.entries(COMMENTS.views).map(([name, { needs, columns, instead, ...view }]): [string, ViewNote] => {
    const meaning = { ...COMMENTS.view_columns, ...instead }
    const notes = Object.fromEntries(words(columns).map((column) => [column, meaning[column]!]))
    return [name, { ...view, needs: words(needs) as Dimension[], columns: notes }]
  }),
) as Record<BiView, ViewNote>

/** The views that answer a question. */
export function viewsOf(question: number): BiView[] {
  return BI_VIEWS.filter((name) => VIEWS[name].question === question)
}
