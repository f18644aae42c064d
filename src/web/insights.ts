import type { Range } from '../core/day.ts'
import { quote } from '../core/identifier.ts'
import type { BiView } from '../core/vocabulary.ts'
import { slowQuery, type Warehouse } from '../warehouse/connect.ts'

/* What analysts ask first, from the same views that BI tools read. The SQL that is shown is the SQL that is run. */

export interface Chart {
  title: string
  about: string
  sql: string
  /** Undefined where a view is not there, with the reason in `missing`. */
  x: string[]
  series: { name: string; values: (number | null)[]; sample: number }[]
  sample: { name: string; total: number }
  unit: 'share' | 'position' | 'score'
  missing?: string
}

export interface AbsentPrompt {
  week: string
  prompt: string
  model_id: string
  own_brand: string
  rival_names: string[]
  best_rival_visibility: number
  answers: number
}

export interface Insights {
  charts: Chart[]
  absent: { rows: AbsentPrompt[]; sql: string; missing?: string }
}

interface Definition {
  title: string
  about: string
  view: BiView
  time: 'date' | 'week'
  name: string
  value: string
  sample: string
  sampleName: string
  unit: Chart['unit']
  where?: string
}

const DEFINITIONS: Definition[] = [
  {
    title: 'Visibility',
    about: 'Share of answers that name the brand, by day.',
    view: 'visibility_daily',
    time: 'date',
    name: 'brand',
    value: 'visibility',
    sample: 'answers',
    sampleName: 'answers',
    unit: 'share',
  },
  {
    title: 'Share of voice',
    about: "The brand's mentions over those of all tracked brands, by day.",
    view: 'share_of_voice_daily',
    time: 'date',
    name: 'brand',
    value: 'share_of_voice',
    sample: 'mention_count',
    sampleName: 'mentions',
    unit: 'share',
  },
  {
    title: 'Own visibility by model',
    about: 'Share of answers of each model that name an own brand, by week.',
    view: 'visibility_by_model_weekly',
    time: 'week',
    name: "brand || ', ' || model_id",
    value: 'visibility',
    sample: 'answers',
    sampleName: 'answers',
    unit: 'share',
    where: 'is_own',
  },
  {
    title: 'Own visibility by topic',
    about: 'Share of answers of each topic that name an own brand, by week.',
    view: 'topics_weekly',
    time: 'week',
    name: "brand || ', ' || topic",
    value: 'visibility',
    sample: 'answers',
    sampleName: 'answers',
    unit: 'share',
    where: 'is_own',
  },
  {
    title: 'Position',
    about: 'Mean position in the answers, by day; lower is better.',
    view: 'visibility_daily',
    time: 'date',
    name: 'brand',
    value: 'position',
    sample: 'position_count',
    sampleName: 'answers with a position',
    unit: 'position',
  },
  {
    title: 'Sentiment',
    about: "Mean sentiment, by day, on the service's own scale.",
    view: 'visibility_daily',
    time: 'date',
    name: 'brand',
    value: 'sentiment',
    sample: 'sentiment_count',
    sampleName: 'mentions with a sentiment',
    unit: 'score',
  },
]

// More lines than this are a tangle; those with the largest sample are drawn.
const MOST_SERIES = 8
const ABSENT_SHOWN = 50

export async function readInsights(warehouse: Warehouse, projectId: string, range: Range): Promise<Insights> {
  const views = await viewsThere(warehouse)
  const charts = []
  for (const definition of DEFINITIONS) charts.push(await readChart(warehouse, definition, projectId, range, views))
  const sql = `select week, prompt, model_id, own_brand, rival_names, best_rival_visibility, answers
from ${viewName(warehouse, 'absent_prompts')}
where ${where(projectId, 'week', range)}
order by week desc, best_rival_visibility desc, answers desc
limit ${ABSENT_SHOWN};`
  if (!views.has('absent_prompts')) return { charts, absent: { rows: [], sql, missing: missing('absent_prompts') } }
  const { rows } = await warehouse.pool.query<AbsentPrompt>(slowQuery(sql))
  return { charts, absent: { rows, sql } }
}

async function readChart(
  warehouse: Warehouse,
  definition: Definition,
  projectId: string,
  range: Range,
  views: ReadonlySet<string>,
): Promise<Chart> {
  const { title, about, view, time, name, value, sample, sampleName, unit } = definition
  const condition = definition.where === undefined ? '' : `\n  and ${definition.where}`
  const sql = `select ${time}, ${name === 'brand' ? 'brand' : `${name} as name`}, ${value}, ${sample}
from ${viewName(warehouse, view)}
where ${where(projectId, time, range)}${condition}
order by 1, 2;`
  const base = { title, about, sql, unit }
  if (!views.has(view))
    return { ...base, x: [], series: [], sample: { name: sampleName, total: 0 }, missing: missing(view) }
  const { rows } = await warehouse.pool.query<unknown[]>({ ...slowQuery(sql), rowMode: 'array' })
  const found = rows as [string, string, number | null, number | null][]
  const x = [...new Set(found.map(([at]) => at))]
  const places = new Map(x.map((at, index) => [at, index]))
  const byName = new Map<string, Chart['series'][number]>()
  for (const [at, series, measured, size] of found) {
    const line = byName.get(series) ?? { name: series, values: x.map(() => null), sample: 0 }
    byName.set(series, line)
    line.values[places.get(at)!] = measured
    line.sample += size ?? 0
  }
  const largest = [...byName.values()].sort((a, b) => b.sample - a.sample).slice(0, MOST_SERIES)
  // By name, so that a brand has the same colour in every chart.
  const series = largest.sort((a, b) => (a.name < b.name ? -1 : 1))
  // Answers stand on every brand's row of a group, so the largest is the sample, not the sum.
  const samples = [...byName.values()].map((line) => line.sample)
  const total = sample === 'answers' && name === 'brand' ? Math.max(0, ...samples) : samples.reduce((a, b) => a + b, 0)
  return { ...base, x, series, sample: { name: sampleName, total } }
}

async function viewsThere(warehouse: Warehouse): Promise<Set<string>> {
  const { rows } = await warehouse.pool.query<{ name: string }>(
    "select c.relname as name from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relkind = 'v'",
    [warehouse.schema],
  )
  return new Set(rows.map(({ name }) => name))
}

const missing = (view: BiView) =>
  `The view ${view} is not there: "visibility-sync migrate" tells which report it needs.`

function viewName({ schema }: Warehouse, view: BiView): string {
  return schema === 'visibility' ? `visibility.${view}` : quote(schema, view)
}

/** The project is one of those configured and the days are days, so nothing can break out of the quotes; they are doubled all the same. */
function where(projectId: string, time: string, { from, to }: Range): string {
  const text = (value: string) => `'${value.replaceAll("'", "''")}'`
  return `project_id = ${text(projectId)} and ${time} between ${text(from)} and ${text(to)}`
}
