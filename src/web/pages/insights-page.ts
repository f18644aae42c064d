import { addDays, countDays } from '../../core/day.ts'
import { clip, count, listSome } from '../../core/text.ts'
import { type Html, html } from '../html.ts'
import { address, type Filters, subjectAddress } from '../insights/filters.ts'
import { ENOUGH, percent, whole } from '../insights/format.ts'
import { CHARTS, type Found, SECTIONS, type Section } from '../insights/read-page.ts'
import type { Row } from '../insights/rows.ts'
import { filterBar, rangeWords } from './filter-bar.ts'
import { chartOf, tiles } from './insights-charts.ts'
import { linked, moverAddress, promptLink, sourceLink } from './insights-columns.ts'
import { actions, isPanel, panel, sqlOf } from './insights-panels.ts'
import { layout } from './layout.ts'

interface InsightsPage {
  version: string
  now: Date
  projects: { id: string; name: string }[]
  filters: Filters
  found: Found
}

/** The first page, its report for print, or a page with the reasons behind one of its numbers. */
export function insightsPage(page: InsightsPage): string {
  const { version, projects, filters, found } = page
  const isFirst = filters.path === '/insights'
  const project = projects.find(({ id }) => id === filters.project)?.name ?? filters.project
  const subject = subjectName(filters, found)
  const body = isFirst
    ? html`<div class="insights${filters.print ? ' report' : ''}">
${filters.print ? reportHead(page, project) : head(page)}
${CHARTS.every((name) => found.sections[name].rows.length === 0) ? emptyPage(filters, found) : sections(filters, found)}
</div>`
    : html`<div class="insights detail">
${breadcrumbs(filters, found)}
<div class="title"><h1>${subject}</h1></div>
${filterBar(projects, filters, found)}
<p class="note">${rangeWords(filters, found)}</p>
<div class="panels">${SECTIONS[filters.path].filter(isPanel).map((id) => panel(filters, found, id))}</div>
</div>`
  const title = isFirst ? `Insights: ${project}` : clip(subject, 80)
  const assets = { scripts: ['status.js', 'insights.js'], styles: ['insights.css'] }
  return layout({ title, path: '/insights', version, ...assets }, body)
}

/* The first page. */

function head({ projects, filters, found }: InsightsPage): Html {
  return html`<div class="title"><h1>Insights</h1><a class="button tiny" href="${address({ ...filters, page: 1, week: undefined, print: true })}">Printable report</a></div>
${filterBar(projects, filters, found)}
<p class="note">${rangeWords(filters, found)}</p>
${unnamedTopics(found.sections['topics-by-model'].rows)}`
}

/** How to name topics that are shown by their ids. */
function unnamedTopics(rows: readonly Row<'topic_id topic'>[]): Html | '' {
  const ids = [...new Set(rows.flatMap(({ topic_id, topic }) => (topic_id === topic ? [topic_id] : [])))]
  if (ids.length === 0) return ''
  return html`<details class="note"><summary>${count(ids.length, 'topic has', 'topics have')} no name</summary><p>The service listed none for them. Copy this into the configuration, fill it in, and sync once more:</p>
<pre tabindex="0" role="region" aria-label="Names of topics"><code>labels:
  topics:${ids.map((id) => `\n    ${id}: …`)}</code></pre></details>`
}

function reportHead({ now, filters, found }: InsightsPage, project: string): Html {
  return html`<div class="title"><h1>${project}</h1><p class="note">Made ${now.toISOString().slice(0, 16).replace('T', ' ')} UTC</p><p class="screen-only"><a href="${address({ ...filters, print: false })}">Back to the insights</a></p></div>
<p class="note">${rangeWords(filters, found)}</p>`
}

function sections(filters: Filters, found: Found): Html {
  const { own } = found
  const withoutOwn: Section[] = [...CHARTS, 'movers', 'sources']
  const shown = SECTIONS['/insights'].filter(isPanel).filter((id) => own !== undefined || withoutOwn.includes(id))
  return html`${own === undefined ? noOwnBrand(found) : headlines(filters, found, own.name)}${own !== undefined && !filters.print && nextSteps(filters, found, own.name)}
<div class="panels">${shown.map((id) => panel(filters, found, id))}</div>
${filters.print && html`<p class="note">In the charts the band is the 95 % interval, dashed lines and hollow points are incomplete, and what is shaded may still change. Intervals cover asking these prompts again, not the market.</p>`}`
}

function headlines(filters: Filters, found: Found, own: string): Html {
  const { rows, missing, sql } = found.sections.summary
  const isOpen = !filters.print && missing === undefined
  const all = countDays(filters.before)
  const wholeDays = found.days.whole_days_before
  const previous = wholeDays < all ? `Before (${wholeDays} of ${count(all, 'day')})` : 'Before'
  const values = () => tiles(rows, (name) => chartOf(name, filters, found, found.sections[name].rows), previous)
  return html`<section class="headlines" id="summary" aria-labelledby="summary-title"><div class="title"><h2 id="summary-title">${own}</h2>${isOpen && actions(filters, 'summary', 'the headlines')}</div>
${missing === undefined ? values() : html`<p class="empty">${missing}</p>`}
${isOpen && sqlOf('the headlines', sql)}</section>`
}

const NEXT_SHOWN = 3
const SOURCES_TO_WIN = 2
const NO_WEEK_TO_SEARCH = 'No complete week begins in this range, so prompts and sources were not searched.'

/** What to look at first. Each line is a count, or a change that is clear if all changes are considered together. */
function nextSteps(filters: Filters, found: Found, own: string): Html {
  const { sections, absent, hasDomains, weeks } = found
  const { falls, 'source-gaps': gaps } = sections
  const groups = {
    'Clear falls': falls.rows.map((row) => {
      const name = row.grain.startsWith('topic') ? row.topic : (row.model_id ?? row.brand)
      const model = row.grain === 'topic and model' && ` (${row.model_id ?? 'no model'})`
      return html`${linked(filters, moverAddress(filters, row), name)}${model}: visibility fell from ${percent(row.previous_visibility)} to ${percent(row.visibility)}, a clear fall.`
    }),
    'Prompts where rivals appear and you do not': absent.first
      .slice(0, NEXT_SHOWN)
      .filter(({ answers, named_count }) => (answers ?? 0) >= ENOUGH && named_count === 0)
      .map(
        (row) =>
          html`${promptLink(filters, row)} (${row.model_id ?? 'no model'}): in ${count(row.weeks_absent ?? 0, 'week')}, ${own} is in none of ${whole(row.answers)} answers, a rival in up to ${percent(row.best_rival_visibility)} of a week.`,
      ),
    'Sources to win': gaps.rows
      .filter((row) => !row.is_own && !row.is_rival)
      .slice(0, SOURCES_TO_WIN)
      .map(
        (row) =>
          html`${sourceLink(filters, row.domain)} is cited ${count(row.citation_count ?? 0, 'time')} in answers to prompts where rivals appear and ${own} does not.`,
      ),
  }
  const shown = Object.entries(groups).filter(([, lines]) => lines.length > 0)
  const searched = [
    falls.missing === undefined && 'no fall that stays clear among all changes',
    `no prompt with ${ENOUGH} answers in which only rivals appear`,
    hasDomains && 'no source to win',
  ].filter(Boolean)
  const none = weeks > 0 ? `There is ${searched.join(', ').replace(/, (?=[^,]+$)/, ' and ')}.` : NO_WEEK_TO_SEARCH
  return html`<section class="card next" id="next" aria-labelledby="next-title"><h2 id="next-title">What to do next</h2>
${shown.length === 0 && html`<p class="about">${none}</p>`}<div class="facts">${shown.map(([title, lines]) => html`<div><h3>${title}</h3><ul>${lines.map((line) => html`<li>${line}</li>`)}</ul></div>`)}</div></section>`
}

/* Why there is nothing to see, and the step that helps. */

const LAST_DAYS = 90

/** For a range of a project that has no row at all. */
function emptyPage(filters: Filters, { sections: { visibility }, extent }: Found): Html {
  const { project, range } = filters
  if (visibility.missing !== undefined) return state('A view is missing', html`<p>${visibility.missing}</p>`)
  if (extent === undefined)
    return state(
      'Nothing of this project was read yet',
      html`<p>The first sync fills these pages. The <a href="/">status page</a> shows whether one is running.</p><p><code>npx visibility-sync sync --project ${project}</code></p>`,
    )
  const { first, last } = extent
  if (range.from > last || range.to < first) {
    const from = addDays(last, 1 - LAST_DAYS)
    const lastDays = { from: from < first ? first : from, to: last }
    return state(
      'No day of this range was read',
      html`<p>Days from ${first} to ${last} were read. <a href="${address({ ...filters, period: undefined, range: lastDays, page: 1 })}">Show the last of them</a>, or read the range:</p><p><code>npx visibility-sync backfill --project ${project} --from ${range.from} --to ${range.to}</code></p>`,
    )
  }
  return state(
    'No answers in this range',
    filters.grain === 'week'
      ? html`<p>No week that begins in this range has answers. <a href="${address({ ...filters, grain: 'day' })}">Look at it by day</a>, or choose a longer range.</p>`
      : html`<p>Its days were read, and the service had no answers for them. Choose a longer range.</p>`,
  )
}

/** For a project without an own brand: charts are there, and what compares with rivals is not. */
function noOwnBrand({ brands }: Found): Html {
  const [example] = brands
  return state(
    'No brand is marked as your own',
    html`<p>So there are no headlines, and nothing is compared with rivals. Mark one of ${listSome(brands.map(({ name }) => name)) || 'your brands'} in the configuration, and sync once more:</p>
<pre tabindex="0" role="region" aria-label="Configuration"><code>labels:
  brands:
    ${example?.id ?? 'kw_…'}: { own: true }${example && ` # ${example.name.replaceAll(/\s+/g, ' ')}`}</code></pre>`,
  )
}

function state(title: string, body: Html): Html {
  return html`<section class="card"><h2>${title}</h2>${body}</section>`
}

/* The pages behind a number. */

function subjectName({ subject }: Filters, { names }: Found): string {
  const model = subject.model ?? names.channel ?? subject.channel
  const asked = subject.prompt ?? subject.topic
  if (asked === undefined) return model ?? subject.domain ?? ''
  const name = (subject.prompt === undefined ? names.topic : names.prompt) ?? asked
  return model === undefined ? name : `${name} · ${model}`
}

function breadcrumbs(filters: Filters, { names }: Found): Html {
  const { prompt, model = filters.subject.channel } = filters.subject
  const crumb = (to: string, text: string) => html`<a href="${to}">${text}</a> / `
  const hasTopic = names.topic_id !== null && (prompt ?? model) !== undefined
  const topic = hasTopic && subjectAddress(filters, '/insights/topic', { topic: names.topic_id! })
  const ofPrompt =
    prompt !== undefined && model !== undefined && subjectAddress(filters, '/insights/prompt', { prompt })
  const kind = filters.path.slice('/insights/'.length)
  return html`<nav class="crumbs" aria-label="Breadcrumbs">${crumb(subjectAddress(filters, '/insights'), 'Insights')}${topic && crumb(topic, names.topic!)}${ofPrompt && crumb(ofPrompt, clip(names.prompt ?? prompt, 60))}<span aria-current="page">${kind[0]?.toUpperCase()}${kind.slice(1)}</span></nav>`
}
