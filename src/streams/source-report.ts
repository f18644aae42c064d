import type { ReportConfig } from '../core/config/load.ts'
import type { CustomStreamConfig } from '../core/config/schema.ts'
import type { ReportSubject } from '../core/vocabulary.ts'
import { dimensionColumn, otherDimensions, PATH_OF } from './brand-report.ts'
import { fields, type StreamDefinition, TEXT_MAX, URL_MAX } from './defined-stream.ts'

/* Reports of what models retrieve and cite, which not every service offers. */

type Subject = Pick<StreamDefinition, 'path' | 'columns' | 'adds'>

const DOMAIN_METRICS = [
  ...['usage_rate', 'citation_avg', 'citation_count', 'retrieved_percentage', 'retrieval_rate', 'citation_rate'],
  ...['retrieved_chat_count', 'total_chat_count', 'retrieval_count'],
]
const URL_METRICS = [
  ...['usage_count', 'citation_count', 'citation_avg', 'retrievals', 'citation_rate'],
  ...['retrieval_count', 'total_chat_count'],
]

const SUBJECTS: Record<Exclude<ReportSubject, 'brands'>, Subject> = {
  domains: {
    path: 'reports/domains',
    columns: [
      ...fields('text', ['domain', 'classification']),
      ...fields('number', DOMAIN_METRICS),
      ...fields('json', ['mentioned_brands']),
    ],
  },
  urls: {
    path: 'reports/urls',
    columns: [
      { name: 'url', path: 'url', type: 'text', longest: URL_MAX },
      ...fields('text', ['classification']),
      { name: 'title', path: 'title', type: 'text', longest: TEXT_MAX },
      ...fields('number', URL_METRICS),
      ...fields('json', ['mentioned_brands']),
      { name: 'channel_title', path: 'channel_title', type: 'text', longest: TEXT_MAX },
    ],
    // The service gives a few pages twice on a day: their counts belong together.
    adds: ['usage_count', 'citation_count', 'retrievals', 'retrieval_count'],
  },
}

export function sourceReport(report: ReportConfig, of: Exclude<ReportSubject, 'brands'>): StreamDefinition {
  const { columns, ...subject } = SUBJECTS[of]
  const others = otherDimensions(report)
  const [own, ...rest] = columns
  // An answer belongs to one prompt and one model, so counts of pages add up over them. Domains have no such counts alone.
  const finer = (['prompt_id', 'model_id'] as const).find((name) => subject.adds && !others.includes(name))
  return {
    ...subject,
    ...(finer && { finerBy: dimensionColumn(finer) }),
    // A service may give fields of dimensions that were not asked for.
    alsoKnown: Object.values(PATH_OF).map((path) => path.split('.')[0]!),
    name: report.name,
    table: report.name,
    method: 'POST',
    by: 'day',
    key: ['date', own!.name, ...others],
    dimensions: report.dimensions,
    filters: report.filters,
    ...(report.having && { having: report.having }),
    columns: [...fields('date', ['date']), own!, ...others.map(dimensionColumn), ...rest],
  }
}

export function customDefinition({ adds, ...custom }: CustomStreamConfig): StreamDefinition {
  return { ...custom, table: custom.name, ...(adds.length > 0 && { adds }) }
}
