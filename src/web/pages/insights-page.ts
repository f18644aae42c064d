import { addDays, countDays, type Day } from '../../core/day.ts'
import { count, listSome } from '../../core/text.ts'
import { type Html, html } from '../html.ts'
import { address, type Filters } from '../insights/filters.ts'
import { ENOUGH, percent, whole } from '../insights/format.ts'
import { type AbsentPrompts, CHARTS, type ChartSection, type Insights } from '../insights/read-insights.ts'
import { type ChartData, chartData, isDrawable } from '../insights/series.ts'
import { filterBar, rangeWords } from './filter-bar.ts'
import { chartPanel, heatPanel, sqlOf, tiles } from './insights-charts.ts'
import {
  absentPanel,
  leadPanel,
  moverAddress,
  moverPanel,
  promptLink,
  sourceGapPanel,
  sourceLink,
  sourcePanel,
} from './insights-tables.ts'
import { layout } from './layout.ts'

export interface InsightsPage {
  version: string
  now: Date
  projects: { id: string; name: string }[]
  filters: Filters
  insights: Insights
  absent: AbsentPrompts
}

export function insightsPage(page: InsightsPage): string {
  const { version, projects, filters, insights } = page
  const project = projects.find(({ id }) => id === filters.project)?.name ?? filters.project
  const body = html`<div class="insights${filters.print ? ' report' : ''}">
${filters.print ? reportHead(page, project) : head(page)}
${CHARTS.every((name) => insights.charts[name].rows.length === 0) ? emptyPage(filters, insights) : sections(page)}
</div>`
  const assets = { scripts: ['status.js', 'insights.js'], styles: ['insights.css'] }
  return layout({ title: `Insights: ${project}`, path: '/insights', version, ...assets }, body)
}

function sections({ filters, insights, absent }: InsightsPage): Html {
  const { own, summary, heat, movers } = insights
  const charts = Object.fromEntries(CHARTS.map((name) => [name, chartOf(name, insights, filters)])) as Record<
    ChartSection,
    ChartData | undefined
  >
  const name = own?.name ?? ''
  return html`${
    own === undefined
      ? noOwnBrand(insights)
      : html`<section class="headlines" id="summary" aria-labelledby="summary-title"><div class="title"><h2 id="summary-title">${own.name}</h2>${filters.print || summary.missing !== undefined ? '' : html`<p class="actions"><a href="${address(filters, '/insights', 'summary')}" aria-label="Link to the headlines, with these filters">Link</a><a href="${address(filters, '/insights/summary.csv')}" aria-label="Headlines as CSV" download>CSV</a></p>`}</div>
${summary.missing === undefined ? tiles(summary.rows, charts, beforeName(filters, insights)) : html`<p class="empty">${summary.missing}</p>`}
${filters.print || summary.missing !== undefined ? '' : sqlOf('the headlines', summary.sql)}</section>${filters.print ? '' : nextSteps(filters, insights, own.name)}`
  }
<div class="panels">${CHARTS.map((section) => chartPanel(filters, section, insights.charts[section], charts[section]))}
${own === undefined ? '' : heatPanel(filters, heat, name)}
${own === undefined ? '' : leadPanel(filters, name, insights)}
${moverPanel(filters, movers)}
${own === undefined ? '' : absentPanel(filters, absent, name)}
${sourcePanel(filters, insights.sources)}
${own === undefined ? '' : sourceGapPanel(filters, insights.sourceGaps, name)}</div>
${filters.print ? html`<p class="note">In the charts the band is the 95 % interval, dashed lines and hollow points are incomplete, and what is shaded may still change. Intervals cover asking these prompts again, not the market.</p>` : ''}`
}

const SOURCES_TO_WIN = 2

/** What is worth a look first. Each line is a count, or a change that is clear if all changes are considered together. */
function nextSteps(filters: Filters, { next, sourceGaps }: Insights, own: string): Html | '' {
  const absent = next.absent.map(
    (row) =>
      html`${promptLink(filters, row)} (${row.model_id ?? 'no model'}): in ${count(row.weeks_absent, 'week')}, ${own} is in none of ${whole(row.answers)} answers, a rival in up to ${percent(row.best_rival_visibility)} of a week.`,
  )
  const falls = next.falls.rows.map((row) => {
    const name = row.grain.startsWith('topic') ? row.topic : (row.model_id ?? row.brand)
    const to = moverAddress(filters, row)
    return html`${to === undefined ? name : html`<a href="${to}">${name}</a>`}${row.grain === 'topic and model' ? ` (${row.model_id ?? 'no model'})` : ''}: visibility fell from ${percent(row.previous_visibility)} to ${percent(row.visibility)}, a clear fall.`
  })
  const sources = sourceGaps.rows
    .filter((row) => !row.is_own && !row.is_rival)
    .slice(0, SOURCES_TO_WIN)
    .map(
      (row) =>
        html`${sourceLink(filters, row.domain)} is cited ${count(row.citation_count ?? 0, 'time')} in answers to prompts where rivals appear and ${own} does not.`,
    )
  const groups = [
    ['Clear falls', falls],
    ['Prompts where rivals appear and you do not', absent],
    ['Sources to win', sources],
  ] as const
  const shown = groups.filter(([, lines]) => lines.length > 0)
  const isCompared = next.falls.missing === undefined
  const nothing = html`<p class="about">Nothing stands out: ${isCompared ? 'no clear fall, ' : ''}no prompt with ${ENOUGH} answers in which only rivals appear, and no source to win.</p>`
  return html`<section class="card next" id="next" aria-labelledby="next-title"><h2 id="next-title">What to do next</h2>
${shown.length === 0 ? nothing : ''}<div class="columns">${shown.map(([title, lines]) => html`<div><h3>${title}</h3><ul>${lines.map((line) => html`<li>${line}</li>`)}</ul></div>`)}</div></section>`
}

function chartOf(
  section: ChartSection,
  { charts, own, brands }: Insights,
  { grain, range }: Filters,
): ChartData | undefined {
  const data = chartData(section, charts[section].rows, { grain, focus: own?.id, from: range.from, brands })
  return isDrawable(data) ? data : undefined
}

function head({ projects, filters, insights }: InsightsPage): Html {
  return html`<div class="title"><h1>Insights</h1><a class="button tiny" href="${address({ ...filters, page: 1, week: undefined, print: true })}">Printable report</a></div>
${filterBar({ projects, filters, insights })}
<p class="note">${rangeWords(filters, insights)}</p>
${unnamedTopics(insights)}`
}

/** How to name topics that are shown by their ids. */
function unnamedTopics({ heat }: Insights): Html | '' {
  const ids = [...new Set(heat.rows.flatMap(({ topic_id, topic }) => (topic_id === topic ? [topic_id] : [])))]
  if (ids.length === 0) return ''
  return html`<details class="note"><summary>${count(ids.length, 'topic has', 'topics have')} no name</summary><p>Set <code>extras: auto</code> if the service lists names, or copy this into the configuration, fill it in, and sync once more:</p>
<pre tabindex="0" role="region" aria-label="Names of topics"><code>labels:
  topics:${ids.map((id) => `\n    ${id}: …`)}</code></pre></details>`
}

function reportHead({ now, filters, insights }: InsightsPage, project: string): Html {
  return html`<div class="title"><h1>${project}</h1><p class="note">Made ${now.toISOString().slice(0, 16).replace('T', ' ')} UTC</p><p class="screen-only"><a href="${address({ ...filters, print: false })}">Back to the insights</a></p></div>
<p class="note">${rangeWords(filters, insights)}</p>`
}

function beforeName({ before }: Filters, { days }: Insights): string {
  const all = countDays(before)
  return days.whole_days_before < all ? `Before (${days.whole_days_before} of ${count(all, 'day')})` : 'Before'
}

/* Why there is nothing to see, and the step that helps. */

/** For a range of a project that has no row at all. */
function emptyPage(filters: Filters, { charts, extent }: Insights): Html {
  const missing = charts[CHARTS[0]!].missing
  if (missing !== undefined) return state('A view is missing', html`<p>${missing}</p>`)
  const { project, range } = filters
  if (extent === undefined)
    return state(
      'Nothing of this project was read yet',
      html`<p>The first sync fills these pages. The <a href="/">status page</a> shows whether one is running.</p><p><code>visibility-sync sync --project ${project}</code></p>`,
    )
  if (range.from > extent.last || range.to < extent.first)
    return state(
      'No day of this range was read',
      html`<p>Days from ${extent.first} to ${extent.last} were read. <a href="${address({ ...filters, period: undefined, ...lastDays(extent), page: 1 })}">Show the last of them</a>, or read the range:</p><p><code>visibility-sync backfill --project ${project} --from ${range.from} --to ${range.to}</code></p>`,
    )
  return state(
    'No answers in this range',
    html`<p>${
      filters.grain === 'week'
        ? html`No week that begins in this range has answers. <a href="${address({ ...filters, grain: 'day' })}">Look at it by day</a>, or choose a longer range.`
        : 'Its days were read, and the service had no answers for them. Choose a longer range.'
    }</p>`,
  )
}

const LAST_DAYS = 90

function lastDays({ first, last }: { first: Day; last: Day }): Pick<Filters, 'range' | 'before'> {
  const from = addDays(last, 1 - LAST_DAYS)
  const range = { from: from < first ? first : from, to: last }
  return { range, before: range }
}

/** For a project without an own brand: charts are there, and what compares with rivals is not. */
function noOwnBrand({ brands }: Insights): Html {
  const [example] = brands
  return state(
    'No brand is marked as your own',
    html`<p>So there are no headlines, and nothing is compared with rivals. Mark one of ${listSome(brands.map(({ name }) => name)) || 'your brands'} in the configuration, and sync once more:</p>
<pre tabindex="0" role="region" aria-label="Configuration"><code>labels:
  brands:
    ${example?.id ?? 'kw_…'}: { own: true }${example === undefined ? '' : ` # ${example.name.replaceAll(/\s+/g, ' ')}`}</code></pre>`,
  )
}

function state(title: string, body: Html): Html {
  return html`<section class="card empty-state"><h2>${title}</h2>${body}</section>`
}
