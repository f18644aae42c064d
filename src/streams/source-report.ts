import type { CustomStreamConfig } from '../core/config/custom-streams.ts'
import type { ReportConfig } from '../core/config/load.ts'
import type { Dimension, ReportSubject } from '../core/vocabulary.ts'
import { DIMENSION_NOTES, PATH_OF } from './brand-report.ts'
import { type DefinedColumn, type StreamDefinition, TEXT_MAX, URL_MAX } from './defined-stream.ts'

/* Reports of what models retrieve and cite, which not every service offers. */

type Subject = Pick<StreamDefinition, 'path' | 'about' | 'columns' | 'adds'>

const number = (name: string, about: string): DefinedColumn => ({ name, path: name, type: 'number', about })
const text = (name: string, about: string, longest?: number): DefinedColumn => ({
  ...{ name, path: name, type: 'text', about },
  ...(longest !== undefined && { longest }),
})

const MENTIONED: DefinedColumn = {
  ...{ name: 'mentioned_brands', path: 'mentioned_brands', type: 'json' },
  about: 'The brands that it mentions, a list of objects with an id; null if the service does not say.',
}

const SUBJECTS: Record<Exclude<ReportSubject, 'brands'>, Subject> = {
  domains: {
    path: 'reports/domains',
    about: 'Which domains models retrieve and cite',
    columns: [
      text('domain', 'The domain.'),
      text('classification', 'Its kind, as OWN, COMPETITOR, EDITORIAL, REFERENCE or UGC.'),
      number('usage_rate', "The service's own rate of use. Never average it."),
      number('citation_avg', "The service's own mean number of citations. Never average it."),
      number('citation_count', 'How often answers cite it.'),
      number('retrieved_percentage', "The service's own share of answers that retrieve it. Never average it."),
      number('retrieval_rate', "The service's own mean number of retrievals. Never average it."),
      number('citation_rate', "The service's own rate of citations. Never average it."),
      number('retrieved_chat_count', 'Number of answers that retrieve it.'),
      number(
        'total_chat_count',
        'Number of answers in the group. Every row of the group has it: never sum it over domains.',
      ),
      number('retrieval_count', 'How often answers retrieve it.'),
      MENTIONED,
    ],
  },
  urls: {
    path: 'reports/urls',
    about: 'Which pages models retrieve and cite',
    columns: [
      text('url', 'The address of the page.', URL_MAX),
      text('classification', 'Its kind, as HOMEPAGE, PRODUCT_PAGE, LISTICLE, COMPARISON or ARTICLE.'),
      text('title', 'Its title.', TEXT_MAX),
      number('usage_count', 'How often answers use it.'),
      number('citation_count', 'How often answers cite it.'),
      number(
        'citation_avg',
        "The service's own mean number of citations; null if rows were added up. Never average it.",
      ),
      number('retrievals', 'How often it is retrieved.'),
      number('citation_rate', "The service's own rate of citations; null if rows were added up. Never average it."),
      number('retrieval_count', 'How often answers retrieve it; newer answers have it instead of retrievals.'),
      number(
        'total_chat_count',
        'Number of answers in the group. Every row of the group has it: never sum it over pages.',
      ),
      MENTIONED,
      text('channel_title', 'The title of the channel on which it was published, as of a video.', TEXT_MAX),
    ],
    // The service gives a few pages twice on a day: their counts belong together.
    adds: ['usage_count', 'citation_count', 'retrievals', 'retrieval_count'],
  },
}

const dimensionColumn = (name: Exclude<Dimension, 'date'>): DefinedColumn => ({
  ...{ name, path: PATH_OF[name], type: 'text', about: DIMENSION_NOTES[name] },
})

/** The definition of a report of domains or URLs. */
export function sourceReport(report: ReportConfig, of: Exclude<ReportSubject, 'brands'>): StreamDefinition {
  const { columns, about, ...subject } = SUBJECTS[of]
  const others = report.dimensions.filter((dimension): dimension is Exclude<Dimension, 'date'> => dimension !== 'date')
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
    about: `${about}, by ${['date', ...others].join(', ')}. Ratios: divide sums, never average them.`,
    method: 'POST',
    by: 'day',
    key: ['date', own!.name, ...others],
    dimensions: report.dimensions,
    filters: report.filters,
    ...(report.having && { having: report.having }),
    columns: [
      { name: 'date', path: 'date', type: 'date', about: 'The day, UTC.' },
      own!,
      ...others.map(dimensionColumn),
      ...rest,
    ],
  }
}

/** The definition of a stream that a person wrote into the configuration. */
export function customDefinition(custom: CustomStreamConfig): StreamDefinition {
  const { name, about, adds, columns, ...rest } = custom
  return {
    ...rest,
    name,
    table: name,
    about: about ?? `Rows of ${custom.method} /${custom.path}, as custom_streams defines them.`,
    columns: columns.map((column) => ({ ...column, about: column.about ?? `The field ${column.path}.` })),
    ...(adds.length > 0 && { adds }),
  }
}
