import type { ReportConfig } from '../core/config/load.ts'
import type { Day } from '../core/day.ts'
import { COUNTRIES, type Dimension, METRICS, type Metric } from '../core/vocabulary.ts'
import { type ReportItem, reportItem } from '../source/items.ts'
import { type DefinedColumn, NAME_MAX, readerOf, wrongLength } from './defined-stream.ts'
import { selectionCheck } from './selection.ts'
import { type Column, type DayStream, defineDayStream, type Entities, type Row, splitDimensionsOf } from './stream.ts'

export const PATH_OF: Record<Dimension, string> = {
  date: 'date',
  prompt_id: 'prompt.id',
  model_id: 'model.id',
  model_channel_id: 'model_channel.id',
  tag_id: 'tag.id',
  topic_id: 'topic.id',
  country_code: 'country_code',
  chat_id: 'chat.id',
}

export const dimensionColumn = (name: Dimension): DefinedColumn => ({ name, path: PATH_OF[name], type: 'text' })
const TEXT = (name: string): Column => ({ name, type: 'text' })

/** A report's other dimensions, besides the date, in the order of its table's columns. */
export function otherDimensions({ dimensions }: Pick<ReportConfig, 'dimensions'>): Exclude<Dimension, 'date'>[] {
  return dimensions.filter((dimension) => dimension !== 'date')
}

export function brandReport(report: ReportConfig): DayStream {
  const others: Dimension[] = otherDimensions(report)
  const readers = others.map((dimension) => readerOf(dimensionColumn(dimension)))
  const columns: Column[] = [
    { name: 'date', type: 'date' },
    TEXT('brand_id'),
    ...others.map(TEXT),
    ...METRICS.map((metric): Column => ({ name: metric, type: 'double' })),
  ]
  const findUnselected = selectionCheck([...report.filters, ...(report.having ?? [])], columns)
  const namesTopics = others.includes('topic_id')
  const namesTags = others.includes('tag_id')
  const namesModels = others.includes('model_id')
  return defineDayStream<ReportItem>({
    name: report.name,
    operation: 'POST reports/brands',
    table: report.name,
    columns,
    key: ['date', 'brand_id', ...others],
    item: reportItem(report.dimensions),
    dimensions: others,
    filters: report.filters,
    control: controlOf(report),
    splitDimensions: splitDimensionsOf(others),
    filterTakes: 'lists',
    hasChangedAt: true,
    ...(report.isTwin && { isExtra: true }),

    read: (client, caller, { range, page, filters }, context) =>
      client.brandsReport(
        caller,
        {
          ...page,
          start_date: range.from,
          end_date: range.to,
          dimensions: report.dimensions,
          ...(report.having && { having: report.having }),
          ...(report.filters.length + filters.length > 0 ? { filters: [...report.filters, ...filters] as never } : {}),
        },
        context,
      ),

    flatten: (item) => {
      // Of its final size from the start: growing ten thousand rows one value at a time costs as much as validating them.
      const row: Row = new Array(columns.length)
      row[0] = item.date
      row[1] = item.brand.id
      let at = 2
      for (const read of readers) row[at++] = read(item)
      for (const metric of METRICS) row[at++] = item[metric] ?? null
      return row
    },

    // A limit in the schema would take zod off its fast path.
    findProblem: ({ brand: { name } }) =>
      name != null && name.length > NAME_MAX ? wrongLength('brand.name', name, NAME_MAX) : undefined,

    findImpossibleValue: (row) => findImpossibleValue(row, columns.length - METRICS.length) ?? findUnselected(row),

    dimensionOf: (row, dimension) => (row[2 + others.indexOf(dimension)] ?? null) as string | null,

    collectEntities(item, entities) {
      const { id, name = null } = item.brand
      noteBrand(entities, id, name, item.date)
      if (namesTopics && item.topic?.id) entities.topics.add(item.topic.id)
      if (namesTags && item.tag?.id) entities.tags.add(item.tag.id)
      if (namesModels && item.model?.id) entities.models.add(item.model.id)
    },

    vocabulary: [
      ...(others.includes('country_code')
        ? [{ kind: 'country' as const, known: new Set(COUNTRIES), valueOf: (item: ReportItem) => item.country_code }]
        : []),
    ],
  })
}

/** Without a tag, a prompt is counted once; a filter then excludes all of it, and not only its rows of that tag. */
function controlOf({ dimensions, filters, having }: ReportConfig): DayStream['control'] {
  const namesTags = dimensions.includes('tag_id')
  if (namesTags && filters.some(({ field, operator }) => field === 'tag_id' && operator === 'not_in')) return undefined
  // A prompt has several tags, so rows by tag overlap and do not add up. Nor do rows that `having` selects.
  return namesTags || having ? 'brand limits' : 'brand totals'
}

function noteBrand({ brands }: Entities, id: string, name: string | null, date: Day): void {
  const known = brands.get(id)
  const newer = known === undefined || date > known.date || (date === known.date && (name ?? '') > (known.name ?? ''))
  if (newer && (name !== null || known === undefined)) brands.set(id, { name, date })
}

/** No metric is larger: sums of larger numbers are not exact, and may overflow. */
const MOST = Number.MAX_SAFE_INTEGER
/** Metrics that are never negative, and their highest values. */
const HIGHEST: Partial<Record<Metric, number>> = {
  mention_count: MOST,
  visibility: 1,
  visibility_count: MOST,
  share_of_voice: 1,
  sentiment: 100,
}
const BOUNDS = METRICS.map((name) => ({ lowest: name in HIGHEST ? 0 : -MOST, highest: HIGHEST[name] ?? MOST }))
const [COUNT_AT, TOTAL_AT] = [METRICS.indexOf('visibility_count'), METRICS.indexOf('visibility_total')]
// Quotients of floating-point numbers may exceed a limit by this share of it.
const SLACK = 1e-6

/** @param first where a row has its first metric */
function findImpossibleValue(row: Row, first: number): string | undefined {
  for (let index = 0; index < BOUNDS.length; index++) {
    const { lowest, highest } = BOUNDS[index]!
    const value = (row[first + index] ?? 0) as number
    if (value < lowest - SLACK)
      return `${METRICS[index]}: ${value} is ${lowest === 0 ? 'negative' : `less than ${lowest}`}`
    if (value > highest * (1 + SLACK)) return `${METRICS[index]}: ${value} is more than ${highest}`
  }
  const [count, total] = [row[first + COUNT_AT] as number, row[first + TOTAL_AT] as number]
  return count > total * (1 + SLACK) + SLACK
    ? `visibility_count: ${count} is more than the visibility_total of ${total}`
    : undefined
}
