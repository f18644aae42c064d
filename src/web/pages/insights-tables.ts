import { addDays } from '../../core/day.ts'
import { clip, count } from '../../core/text.ts'
import { type Html, html } from '../html.ts'
import { address, COMPARISONS, type Filters, mondayOf, subjectAddress, weeksIn } from '../insights/filters.ts'
import { percent, points, type Verdict, verdictFor, whole } from '../insights/format.ts'
import {
  ABSENT_SHOWN,
  type AbsentPrompts,
  type Brand,
  type Insights,
  type LeadRow,
  type MoverRow,
  type Read,
  type SourceGapRow,
  type SourceRow,
} from '../insights/read-insights.ts'
import { interval, type Panel, panel, sqlOf, verdictOf } from './insights-charts.ts'
import { scrolling, table } from './layout.ts'

const SHOWN_IN_PRINT = 5
const FALSE_DISCOVERY_RATE = 0.1

/** What changed against the period or the week before, the clearest first. */
export function moverPanel(filters: Filters, movers: Insights['movers']): Html {
  const { week, range, comparison } = filters
  const rows = filters.print ? movers.rows.slice(0, SHOWN_IN_PRINT) : movers.rows
  const [first] = rows
  const compared =
    week === undefined
      ? `${range.from} to ${range.to}${comparison === 'none' ? '' : ` against ${COMPARISONS[comparison]}`}`
      : `Week of ${week} against the week before`
  return panel(filters, {
    id: 'movers',
    title: 'Movers',
    about: html`${compared}, the clearest changes first. ${first === undefined ? '' : clearWords(first)}`,
    read: movers,
    links: filters.print ? '' : steps(filters),
    body: html`${
      first === undefined
        ? html`<p class="empty">Nothing can be compared: ${week === undefined ? 'one of the two periods has no answers. A week may have one before.' : `the week of ${week} or the one before it has no answers.`}</p>`
        : moverTable(filters, rows)
    }${first === undefined || filters.print ? '' : more(first.whole_count, rows.length)}`,
  })
}

function clearWords({ whole_count, judged_count, clear_count, grain, comparison_is_complete }: MoverRow): string {
  if (judged_count === 0 && comparison_is_complete === false)
    return 'No change is ranked before both weeks are complete.'
  if (judged_count === 0) return `None of the ${count(whole_count, 'change')} has 30 answers in both periods.`
  const coarser = `Compared by ${grain}, because no topic and model together has 30 answers in both periods. `
  const found =
    clear_count === 0
      ? `None of ${count(judged_count, 'change')} with enough answers is clear`
      : `The first ${whole(clear_count)} of ${count(judged_count, 'change')} with enough answers ${clear_count === 1 ? 'is' : 'are'} clear`
  return `${grain === 'topic and model' ? '' : coarser}${found} if all are considered together (false discovery rate 10 %).`
}

function moverTable(filters: Filters, movers: readonly MoverRow[]): Html {
  const titles = ['brand', 'topic', 'model', 'change', '#95 % interval', '#before', '#now', '#answers']
  const cells = (row: MoverRow) =>
    html`${rowName(row.brand, row.is_own)}<td>${moverLink(filters, row)}</td><td>${row.model_id ?? (row.grain.endsWith('model') ? '(no model)' : '(all models)')}</td><td>${verdictOf(moverVerdict(row), points(row.change))}</td><td class="n">${points(row.change_low).replace(' points', '')} to ${points(row.change_high).replace(' points', '')}</td><td class="n">${percent(row.previous_visibility)}</td><td class="n">${percent(row.visibility)}</td><td class="n">${whole(row.previous_answers)}, ${whole(row.answers)}</td>`
  return table('Table of movers', titles, movers, cells)
}

/** The page of what moved: a topic, alone or with a model, or a model. */
export function moverAddress(filters: Filters, { topic_id, model_id }: MoverRow): string | undefined {
  const model = model_id === null ? {} : { model: model_id }
  if (topic_id !== null) return subjectAddress(filters, '/insights/topic', { topic: topic_id, ...model })
  return model_id === null ? undefined : subjectAddress(filters, '/insights/model', model)
}

function moverLink(filters: Filters, row: MoverRow): Html {
  const to = filters.print ? undefined : moverAddress(filters, row)
  return to === undefined ? html`${row.topic}` : html`<a href="${to}">${row.topic}</a>`
}

/** A change that is clear by itself, but not if all changes of the list are considered, may be chance. */
function moverVerdict(row: MoverRow): Verdict {
  const isChance = ['up', 'down'].includes(row.verdict) && !((row.q_value ?? 1) <= FALSE_DISCOVERY_RATE)
  return isChance ? { mark: '=', words: 'May be chance', tone: 'plain' } : toned(row.verdict, row.is_own)
}

/** A rival's rise is no good news, so only own brands have colours. */
export function toned(verdict: string, isOwn: boolean) {
  const judged = verdictFor(verdict)
  return isOwn ? judged : { ...judged, tone: 'plain' as const }
}

/** From the range to its last whole week, and from week to week. */
function steps(filters: Filters): Html {
  const { week, range } = filters
  const link = (to: string | undefined, name: string, isCurrent = false) =>
    html`<a href="${address({ ...filters, week: to }, '/insights', 'movers')}"${isCurrent ? html` aria-current="true"` : ''}>${name}</a>`
  const last = week ?? mondayOf(addDays(range.to, -6))
  return html`<nav class="segments" aria-label="What the movers are compared over">${link(undefined, 'Whole period', week === undefined)}${link(last, `Week of ${last}`, week !== undefined)}${week === undefined ? '' : html`${link(addDays(week, -7), '← Week before')}${link(addDays(week, 7), 'Week after →')}`}</nav>`
}

/** Prompts whose answers name rivals and not the own brand, page by page. */
export function absentPanel(filters: Filters, absent: AbsentPrompts, own: string): Html {
  const shown = filters.print ? absent.rows.slice(0, SHOWN_IN_PRINT) : absent.rows
  const days = weeksIn(filters.range)
  const titles = ['prompt', 'topic', 'model', '#weeks absent', 'last', '#best rival', 'rivals (best week)', '#answers']
  const cells = (row: AbsentPrompts['rows'][number]) =>
    html`<th scope="row" class="prompt">${promptLink(filters, row)}</th><td>${row.topic}</td><td>${row.model_id ?? '(no model)'}</td><td class="n">${whole(row.weeks_absent)}</td><td>${row.last_week}</td><td class="n">${percent(row.best_rival_visibility)}</td><td class="names">${row.rivals_in_their_best_week}</td><td class="n">${whole(row.answers)}</td>`
  return panel(filters, {
    id: 'absent-prompts',
    title: 'Absent prompts',
    about: html`Prompts and models with a complete week in which no answer names ${own} and rivals are named${days.from > days.to ? '.' : html`: <strong>${whole(absent.whole)}</strong> in the weeks from ${days.from} to ${days.to}. Those absent most often come first.`}`,
    read: absent,
    body:
      shown.length === 0
        ? html`<p class="empty">${days.from > days.to ? 'No week begins in this range.' : `None: in every complete week that begins in this range, ${own} is named wherever a rival is.`}</p>`
        : html`${table('Table of absent prompts', titles, shown, cells)}${filters.print ? '' : paging(filters, absent)}`,
  })
}

/** A prompt as a link to its page. */
export function promptLink(filters: Filters, { prompt_id, prompt }: { prompt_id: string; prompt: string }): Html {
  const text = clip(prompt, 200)
  if (filters.print) return html`${text}`
  return html`<a href="${subjectAddress(filters, '/insights/prompt', { prompt: prompt_id })}">${text}</a>`
}

function paging(filters: Filters, { whole: all, page, pages, rows }: AbsentPrompts): Html {
  const first = (page - 1) * ABSENT_SHOWN + 1
  const link = (to: number, name: string, rel: string) =>
    html`<a href="${address({ ...filters, page: to }, '/insights', 'absent-prompts')}" rel="${rel}">${name}</a>`
  return html`<nav class="pages" aria-label="Pages of absent prompts">${page > 1 ? link(page - 1, '← Previous', 'prev') : ''}<span>${whole(first)} to ${whole(first + rows.length - 1)} of ${whole(all)}</span>${page < pages ? link(page + 1, 'Next →', 'next') : ''}</nav>`
}

const MOST_RIVALS = 12
const MOST_RIVALS_IN_PRINT = 6

/** The own brand against each rival, and against one of them by model. */
export function leadPanel(filters: Filters, own: string, { leads, leadsByModel: byModel, rival }: Insights): Html {
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
        : html`${scrolling('Head to head with each rival', leadTable(filters, shown, { own, rival }))}
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
${scrolling(`${own} and ${rival.name} by model`, leadTable(filters, byModel.rows, { own, rival, byModel: true }))}
${sqlOf(`${own} and ${rival.name} by model`, byModel.sql, 'SQL by model')}`
}`
}

function leadTable(
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
    return html`<tr><th scope="row">${name}</th><td class="drawn">${drawn(row, scale)}</td><td class="n">${percent(row.own_visibility)}</td><td class="n">${percent(row.rival_visibility)}</td><td>${verdictOf(verdictFor(row.lead_verdict), row.lead === null ? '' : points(row.lead))}</td><td class="n">${percent(row.own_share_of_both)}</td><td class="n">${whole(row.answers)}</td></tr>
`
  })}</tbody></table>`
}

/** Both shares and their intervals on one line from zero. */
function drawn(row: LeadRow, scale: number): Html {
  const at = (share: number | null) => `${Number((((share ?? 0) / scale) * 100).toFixed(1))}%`
  const bar = (name: 'own' | 'rival', y: string) => {
    const value = row[`${name}_visibility`]
    const [low, high] = [row[`${name}_visibility_low`], row[`${name}_visibility_high`]]
    return value === null
      ? ''
      : html`<line class="${name}" x1="${at(low)}" x2="${at(high)}" y1="${y}" y2="${y}"/><circle class="${name}" cx="${at(value)}" cy="${y}" r="4"/>`
  }
  return html`<svg aria-hidden="true"><line class="grid" x1="0" x2="100%" y1="50%" y2="50%"/>${bar('rival', '68%')}${bar('own', '32%')}</svg>`
}

/*
 * Domains that answers retrieve and cite. Few services offer the reports that they come from, so without rows there is no
 * section. The printed report fits on one sheet without them.
 */

export function sourcePanel(filters: Filters, sources: Insights['sources']): Html | '' {
  if (sources.rows.length === 0 || filters.print) return ''
  const weeks = weeksIn(filters.range)
  return tablePanel(filters, {
    id: 'sources',
    title: 'Sources cited',
    about: `Domains that answers of the weeks from ${weeks.from} to ${weeks.to} retrieve and cite, the most cited first.`,
    read: sources,
    titles: ['domain', 'kind', '#citations', '#retrieved by', '#95 % interval', '#answers'],
    cells: (row) =>
      html`${domainCells(row, row.domain)}<td class="n">${percent(row.retrieved_share)}</td><td class="n">${interval(row.retrieved_share_low, row.retrieved_share_high)}</td><td class="n">${number(row.answers)}</td>`,
  })
}

export function sourceGapPanel(filters: Filters, gaps: Insights['sourceGaps'], own: string): Html | '' {
  if (gaps.rows.length === 0 || filters.print) return ''
  const counts = ['#citations', '#answers that retrieve it', '#most prompts in a week', '#weeks']
  return tablePanel(filters, {
    id: 'source-gaps',
    title: 'Sources of answers without you',
    about: `Domains that answers cite for prompts and models where rivals appear and ${own} does not in a week, the most cited first.`,
    read: gaps,
    titles: ['domain', 'kind', ...counts, 'last'],
    cells: (row) =>
      html`${domainCells(row, sourceLink(filters, row.domain))}<td class="n">${number(row.retrieved_chat_count)}</td><td class="n">${whole(row.most_prompts_in_a_week)}</td><td class="n">${whole(row.weeks)}</td><td>${row.last_week}</td>`,
  })
}

export function sourceLink(filters: Filters, domain: string): Html {
  return html`<a href="${subjectAddress(filters, '/insights/source', { domain })}">${domain}</a>`
}

/** The beginning of a row: the domain, its kind and its citations. */
function domainCells(row: SourceRow | SourceGapRow, domain: Html | string): Html {
  return html`${rowName(domain, row.is_own)}<td>${kindOf(row)}</td><td class="n">${number(row.citation_count)}</td>`
}

/** Own domains and those of rivals first: the service may class them otherwise. */
function kindOf({ is_own, is_rival, classification }: SourceRow | SourceGapRow): string {
  if (is_own) return 'own'
  if (is_rival) return 'rival'
  return (classification ?? '–').toLowerCase().replaceAll('_', ' ')
}

export const number = (value: number | null) => (value === null ? '–' : whole(value))

/** The first cell of a row, which stands out if the row is about the own brand. */
export function rowName(name: Html | string, isOwn: boolean): Html {
  return html`<th scope="row"${isOwn && html` class="own"`}>${name}</th>`
}

function more(all: number, shown: number): Html | '' {
  return all > shown ? html`<p class="note">${shown} of ${whole(all)}; the CSV has all.</p>` : ''
}

interface TablePanel<R> extends Omit<Panel, 'body'> {
  read: Read<R>
  titles: readonly string[]
  cells: (row: R) => Html
}

/** A section with a table, and how many more rows the file has. */
export function tablePanel<R extends { whole_count?: number | undefined }>(
  filters: Filters,
  { titles, cells, ...rest }: TablePanel<R>,
): Html {
  const { rows } = rest.read
  const body =
    rows.length === 0
      ? html`<p class="empty">No answer in this range. Choose a longer one.</p>`
      : html`${table(`${rest.title}, as a table`, titles, rows, cells)}${more(rows[0]!.whole_count ?? 0, rows.length)}`
  return panel(filters, { ...rest, body })
}
