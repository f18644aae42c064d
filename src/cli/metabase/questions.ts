import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { packageFile } from '../../core/package-files.ts'

/** A question as Metabase shows it: a card. */
export interface Question {
  name: string
  sql: string
  display: string
  /** The columns that the chart is drawn by, and what it measures. A chart adds up rows that have the same dimensions. */
  dimensions: string[]
  metrics: string[]
  /** The view that it reads, and the columns of it that the dashboard's filters set. */
  view: string
  filters: Partial<Record<Filter, string>>
}

export const FILTERS = ['project', 'dates', 'brand'] as const
export type Filter = (typeof FILTERS)[number]

const FOLDER = packageFile('metabase/questions/')
const FILTER_OF: Record<string, Filter> = {
  project: 'project',
  date: 'dates',
  week: 'dates',
  brand: 'brand',
  own_brand: 'brand',
}
/** Where conditions of filters go. To psql it is a comment. */
const PLACE = '-- filters'

/**
 * Reads metabase/questions: the first line names the question, the second says how it is shown, the third which view it
 * reads and by which columns it can be filtered.
 */
export function readQuestions(schema: string): Question[] {
  return readdirSync(fileURLToPath(FOLDER))
    .filter((name) => name.endsWith('.sql'))
    .sort()
    .map((file) => {
      const [title = '', shown = '', filtered = '', ...rest] = readFileSync(new URL(file, FOLDER), 'utf8').split('\n')
      const [display = 'table', dimensions = '', metrics = ''] = shown.replace('-- Shown as: ', '').split(' ')
      const [view = '', ...columns] = filtered.replace('-- Filtered by: ', '').split(' ')
      const listed = (text: string) => text.split(',').filter((name) => name !== '')
      return {
        name: title.replace('-- ', ''),
        sql: rest.join('\n').trim().replaceAll('visibility.', `${schema}.`),
        display,
        dimensions: listed(dimensions),
        metrics: listed(metrics),
        view,
        filters: Object.fromEntries(columns.map((column) => [FILTER_OF[column]!, column])),
      }
    })
}

/** The statement with an optional condition for each filter, as Metabase writes them. */
export function filteredSql({ sql }: Question, filters: readonly Filter[]): string {
  return sql.replace(PLACE, filters.map((name) => `[[and {{${name}}}]]`).join(' ')).replace(/ +\n/g, '\n')
}
