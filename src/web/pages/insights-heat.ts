import { type Html, html } from '../html.ts'
import type { Filters } from '../insights/filters.ts'
import { percent, whole } from '../insights/format.ts'
import type { HeatRow, Read } from '../insights/read-insights.ts'
import { verdictFor } from '../insights/verdicts.ts'
import { interval, panel } from './insights-parts.ts'
import { scrolling } from './layout.ts'

/** The lower bounds of the steps of colour: fixed, so that two maps can be compared. */
const STEPS = [0, 0.1, 0.2, 0.3, 0.45, 0.6]
const MOST_TOPICS = 15
const MOST_TOPICS_IN_PRINT = 8
const MOST_MODELS = 12
const MOST_MODELS_IN_PRINT = 5
const ENOUGH = 30

interface Sum {
  name: string
  count: number
  answers: number
}

/** Where the own brand is strong and where it is not to be seen: topics down, models across. */
export function heatPanel(filters: Filters, read: Read<HeatRow>, own: string): Html {
  return panel(filters, {
    id: 'topics-by-model',
    title: 'Topics by model',
    about: `Share of answers that name ${own}; ▲ and ▼ mark clear changes against the period before.`,
    read,
    body:
      read.rows.length === 0
        ? html`<p class="empty">No topic had an answer in this range.</p>`
        : map(read.rows, filters),
  })
}

function map(rows: readonly HeatRow[], filters: Filters): Html {
  const topics = summed(rows, (row) => [row.topic_id ?? '', row.topic])
  const models = summed(rows, (row) => [row.model_id ?? '', row.model_id ?? '(no model)'])
  const shownTopics = [...topics].slice(0, filters.print ? MOST_TOPICS_IN_PRINT : MOST_TOPICS)
  const shownModels = [...models].slice(0, filters.print ? MOST_MODELS_IN_PRINT : MOST_MODELS)
  const cells = new Map(rows.map((row) => [`${row.topic_id ?? ''}\n${row.model_id ?? ''}`, row]))
  const left = [
    ...(topics.size > shownTopics.length ? [`${topics.size - shownTopics.length} more topics`] : []),
    ...(models.size > shownModels.length ? [`${models.size - shownModels.length} more models`] : []),
  ]
  const table = html`<table class="heat"><thead><tr><th scope="col">topic</th><th scope="col" class="n">all models</th>${shownModels.map(([, { name }]) => html`<th scope="col" class="n">${name}</th>`)}</tr></thead>
<tbody>${shownTopics.map(
    ([
      topicId,
      topic,
    ]) => html`<tr><th scope="row">${topic.name}</th>${total(topic)}${shownModels.map(([modelId]) => cell(cells.get(`${topicId}\n${modelId}`)))}</tr>
`,
  )}</tbody>
<tfoot><tr><th scope="row">all topics</th>${total(sumOf('', [...topics.values()]))}${shownModels.map(([, model]) => total(model))}</tr></tfoot></table>`
  return html`${scrolling('Visibility by topic and model', table)}
<p class="note scale"><span>Answers stand below each share; hatched: fewer than ${ENOUGH}.</span> ${STEPS.map((step, index) => html`<span class="step heat-${index}">${index === STEPS.length - 1 ? `${percent(step)} and more` : `from ${percent(step)}`}</span>`)}</p>
${left.length === 0 ? '' : html`<p class="note">${left.join(', ')} ${filters.print ? 'are not shown' : 'in the CSV'}.</p>`}`
}

/** Sums by a key, the highest share first. Counts and answers add up over topics and models: a prompt has one topic. */
function summed(rows: readonly HeatRow[], keyOf: (row: HeatRow) => [key: string, name: string]): Map<string, Sum> {
  const groups = new Map<string, Sum>()
  for (const row of rows) {
    const [key, name] = keyOf(row)
    const group = groups.get(key) ?? { name, count: 0, answers: 0 }
    group.count += row.visibility_count
    group.answers += row.answers
    groups.set(key, group)
  }
  return new Map([...groups].sort(([, a], [, b]) => b.count / b.answers - a.count / a.answers))
}

function sumOf(name: string, sums: readonly Sum[]): Sum {
  return {
    name,
    count: sums.reduce((total, sum) => total + sum.count, 0),
    answers: sums.reduce((total, sum) => total + sum.answers, 0),
  }
}

const total = ({ count, answers }: Sum) =>
  html`<td class="n total">${percent(count / answers)}<small>${whole(answers)}</small></td>`

function cell(row: HeatRow | undefined): Html {
  if (row === undefined) return html`<td class="n none">–</td>`
  const step = STEPS.findLastIndex((bound) => row.visibility >= bound)
  const { mark, words } = verdictFor(row.verdict)
  const before =
    row.previous_visibility === null ? words : `${percent(row.previous_visibility)} before: ${words.toLowerCase()}`
  const tip = `${row.topic}, ${row.model_id ?? '(no model)'}: ${percent(row.visibility)}, ${interval(row.visibility_low, row.visibility_high)}, ${whole(row.visibility_count)} of ${whole(row.answers)} answers; ${before}`
  return html`<td class="n heat-${step}${row.answers < ENOUGH ? ' few' : ''}" title="${tip}">${percent(row.visibility)}${mark === '=' ? '' : html` <span class="mark">${mark}</span>`}<small>${whole(row.answers)}</small></td>`
}
