import { type Html, html } from '../html.ts'
import { address, type Filters, weeksIn } from '../insights/filters.ts'
import { percent, points, whole } from '../insights/format.ts'
import type { Brand, LeadRow, Read } from '../insights/read-insights.ts'
import { leadVerdict } from '../insights/verdicts.ts'
import { panel, scrolling, sqlOf, verdictOf } from './insights-parts.ts'

const MOST_RIVALS = 12
const MOST_RIVALS_IN_PRINT = 6

/** The own brand against each rival, and against one of them by model. */
export function leadPanel(
  filters: Filters,
  {
    own,
    leads,
    byModel,
    rival,
  }: { own: string; leads: Read<LeadRow>; byModel: Read<LeadRow>; rival: Brand | undefined },
): Html {
  const shown = leads.rows.slice(0, filters.print ? MOST_RIVALS_IN_PRINT : MOST_RIVALS)
  const left = leads.rows.length - shown.length
  return panel(filters, {
    id: 'head-to-head',
    title: 'Head to head',
    about: `Visibility of ${own} and of each rival in the same answers. A lead is clear where the two intervals do not touch.`,
    read: leads,
    body:
      shown.length === 0
        ? html`<p class="empty">No rival was tracked in this range.</p>`
        : html`${scrolling('Head to head with each rival', table(filters, shown, { own, rival }))}
${left > 0 ? html`<p class="note">${left} more ${left === 1 ? 'rival' : 'rivals'}${filters.print ? '' : ' in the CSV'}.</p>` : ''}
${filters.print || rival === undefined ? '' : modelsOf(filters, byModel, { own, rival })}`,
  })
}

function modelsOf(filters: Filters, byModel: Read<LeadRow>, { own, rival }: { own: string; rival: Brand }): Html {
  const weeks = weeksIn(filters.range)
  const csv = address({ ...filters, rival: rival.id }, '/insights/head-to-head-by-model.csv')
  return html`<h3 id="head-to-head-by-model">${own} and ${rival.name} by model</h3>
${
  byModel.missing !== undefined
    ? html`<p class="empty">${byModel.missing}</p>`
    : byModel.rows.length === 0
      ? html`<p class="empty">No week that begins in this range has answers of both.</p>`
      : html`<p class="about">Weeks from ${weeks.from} to ${weeks.to}, where ${own} is furthest behind first. <a href="${csv}" aria-label="${own} and ${rival.name} by model as CSV" download>CSV</a></p>
${scrolling(`${own} and ${rival.name} by model`, table(filters, byModel.rows, { own, rival, byModel: true }))}
${sqlOf(`${own} and ${rival.name} by model`, byModel.sql, 'SQL by model')}`
}`
}

function table(
  filters: Filters,
  rows: readonly LeadRow[],
  { own, rival, byModel = false }: { own: string; rival: Brand | undefined; byModel?: boolean },
): Html {
  const widest = Math.max(...rows.flatMap((row) => [row.own_visibility_high ?? 0, row.rival_visibility_high ?? 0]), 0.1)
  const scale = Math.min(1, Math.ceil(widest * 10) / 10)
  return html`<table class="table leads"><thead><tr><th scope="col">${byModel ? 'model' : 'rival'}</th><th scope="col" class="drawn"><span>0 %</span><span>${percent(scale)}</span></th><th scope="col" class="n">${own}</th><th scope="col" class="n">rival</th><th scope="col">lead</th><th scope="col" class="n">share of both</th><th scope="col" class="n">answers</th></tr></thead>
<tbody>${rows.map((row) => {
    const name = byModel
      ? html`${row.model_id ?? '(no model)'}`
      : filters.print
        ? html`${row.rival_brand}`
        : html`<a href="${address({ ...filters, rival: row.rival_brand_id }, '/insights', 'head-to-head-by-model')}"${row.rival_brand_id === rival?.id ? html` aria-current="true"` : ''}>${row.rival_brand}</a>`
    return html`<tr><th scope="row">${name}</th><td class="drawn">${drawn(row, scale)}</td><td class="n">${percent(row.own_visibility)}</td><td class="n">${percent(row.rival_visibility)}</td><td>${verdictOf(leadVerdict(row.lead_verdict), row.lead === null ? '' : points(row.lead))}</td><td class="n">${percent(row.own_share_of_both)}</td><td class="n">${whole(row.answers)}</td></tr>
`
  })}</tbody></table>`
}

/** Both shares and their intervals on one line from zero. */
function drawn(row: LeadRow, scale: number): Html {
  const at = (share: number | null) => `${Number((((share ?? 0) / scale) * 100).toFixed(1))}%`
  const bar = (name: string, y: string, low: number | null, high: number | null, value: number | null) =>
    value === null
      ? ''
      : html`<line class="${name}" x1="${at(low)}" x2="${at(high)}" y1="${y}" y2="${y}"/><circle class="${name}" cx="${at(value)}" cy="${y}" r="4"/>`
  return html`<svg aria-hidden="true"><line class="grid" x1="0" x2="100%" y1="50%" y2="50%"/>${bar('rival', '68%', row.rival_visibility_low, row.rival_visibility_high, row.rival_visibility)}${bar('own', '32%', row.own_visibility_low, row.own_visibility_high, row.own_visibility)}</svg>`
}
