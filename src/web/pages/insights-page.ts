import type { Range } from '../../core/day.ts'
import { type Html, html, jsonFor } from '../html.ts'
import type { Chart, Insights } from '../insights.ts'
import { layout, number } from './layout.ts'

export interface InsightsPage {
  version: string
  projects: { id: string; name: string }[]
  project: string
  range: Range
  insights: Insights
}

export function insightsPage({ version, projects, project, range, insights }: InsightsPage): string {
  const body = html`<h1>Insights</h1>
<form method="get" action="/insights" class="choose">
<label>Project <select name="project">${projects.map(({ id, name }) => html`<option value="${id}"${id === project ? html` selected` : ''}>${name}</option>`)}</select></label>
<label>From <input type="date" name="from" value="${range.from}"></label>
<label>To <input type="date" name="to" value="${range.to}"></label>
<button>Show</button></form>
<p>Straight from the views that BI tools read. Every chart shows its sample and its SQL, to copy into Metabase.</p>
<div class="charts">${insights.charts.map(chart)}</div>
${absent(insights.absent)}`
  const assets = { scripts: ['uplot.js', 'insights.js'], styles: ['uplot.css'] }
  return layout({ title: 'Insights', path: '/insights', version, ...assets }, body)
}

const shown = (value: number | null, unit: Chart['unit']) =>
  value === null ? '–' : unit === 'share' ? `${(value * 100).toFixed(1)} %` : value.toFixed(unit === 'position' ? 2 : 1)

function chart({ title, about, sql, x, series, sample, unit, missing }: Chart, index: number): Html {
  const id = `chart-${index}`
  return html`<section class="chart" aria-labelledby="${id}-title"><h2 id="${id}-title">${title}</h2>
<p>${about}</p>
${
  missing !== undefined
    ? html`<p class="bad">${missing}</p>`
    : series.length === 0
      ? html`<p>No rows in this range.</p>`
      : html`<div class="plot" id="${id}" data-unit="${unit}" role="img" aria-label="${title}: a line for each of ${series.length}, from ${x[0]} to ${x.at(-1)}; the numbers are in the table below"><script type="application/json">${jsonFor({ x, series: series.map(({ name, values }) => ({ name, values })) })}</script></div>
<p class="sample">Sample: ${number(sample.total)} ${sample.name}.</p>
<details><summary>Numbers</summary><div class="scroll" role="region" aria-label="Numbers of ${title}" tabindex="0"><table><thead><tr><th scope="col">day</th>${series.map(({ name }) => html`<th scope="col" class="n">${name}</th>`)}</tr></thead>
<tbody>${x.map((day, at) => html`<tr><th scope="row">${day}</th>${series.map(({ values }) => html`<td class="n">${shown(values[at] ?? null, unit)}</td>`)}</tr>`)}</tbody></table></div></details>`
}
<details><summary>SQL</summary><pre><code>${sql}</code></pre></details></section>`
}

function absent({ rows, sql, missing }: Insights['absent']): Html {
  return html`<section><h2>Prompts where the own brand is absent</h2>
${
  missing !== undefined
    ? html`<p class="bad">${missing}</p>`
    : rows.length === 0
      ? html`<p>None in this range, or no brand is marked as own (labels in the configuration).</p>`
      : html`<div class="scroll" role="region" aria-label="Prompts where the own brand is absent" tabindex="0"><table><thead><tr><th scope="col">week</th><th scope="col">prompt</th><th scope="col">model</th><th scope="col">own brand</th><th scope="col">rivals</th><th scope="col" class="n">best rival</th><th scope="col" class="n">answers</th></tr></thead>
<tbody>${rows.map((row) => html`<tr><td>${row.week}</td><th scope="row">${row.prompt}</th><td>${row.model_id}</td><td>${row.own_brand}</td><td>${row.rival_names.join(', ')}</td><td class="n">${shown(row.best_rival_visibility, 'share')}</td><td class="n">${number(row.answers)}</td></tr>`)}</tbody></table></div>`
}
<details><summary>SQL</summary><pre><code>${sql}</code></pre></details></section>`
}
