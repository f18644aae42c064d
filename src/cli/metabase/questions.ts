import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { packageFile } from '../../core/package-files.ts'

/** A question as Metabase shows it: a card. */
export interface Statement {
  name: string
  sql: string
  display: string
  /** The columns that the chart is drawn by, and what it measures. */
  dimensions: string[]
  metrics: string[]
}

const FOLDER = packageFile('metabase/questions/')

/** Reads metabase/questions: the first line names the question, the second says how it is shown. */
export function readQuestions(schema: string): Statement[] {
  return readdirSync(fileURLToPath(FOLDER))
    .filter((name) => name.endsWith('.sql'))
    .sort()
    .map((file) => {
      const [title = '', shown = '', ...rest] = readFileSync(new URL(file, FOLDER), 'utf8').split('\n')
      const [display = 'table', dimensions = '', metrics = ''] = shown.replace('-- Shown as: ', '').split(' ')
      const listed = (text: string) => text.split(',').filter((name) => name !== '')
      return {
        name: title.replace('-- ', ''),
        sql: rest.join('\n').trim().replaceAll('visibility.', `${schema}.`),
        display,
        dimensions: listed(dimensions),
        metrics: listed(metrics),
      }
    })
}
