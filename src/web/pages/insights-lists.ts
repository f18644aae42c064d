import { addDays } from '../../core/day.ts'
import { clip, count } from '../../core/text.ts'
import { type Html, html } from '../html.ts'
import { address, type Filters, mondayOf, weeksIn } from '../insights/filters.ts'
import { percent, points, whole } from '../insights/format.ts'
import { ABSENT_SHOWN, type AbsentPrompts, type Insights, type MoverRow } from '../insights/read-insights.ts'
import { shareVerdict } from '../insights/verdicts.ts'
import { panel, scrolling, verdictOf } from './insights-parts.ts'

const SHOWN_IN_PRINT = 5
// One change in twenty lies outside its interval by chance alone.
const BY_CHANCE = 0.05

/** What changed against the period or the week before, the clearest first. */
export function moverPanel(filters: Filters, movers: Insights['movers']): Html {
  const { week, range } = filters
  const rows = filters.print ? movers.rows.slice(0, SHOWN_IN_PRINT) : movers.rows
  const [first] = rows
  const compared =
    week === undefined
      ? `${range.from} to ${range.to} against the period before`
      : `Week of ${week} against the week before`
  return panel(filters, {
    id: 'movers',
    title: 'Movers',
    about: html`${compared}, by brand, topic and model; the clearest changes first, not the largest. ${first === undefined ? '' : clearWords(first)}${first?.comparison_is_complete === false ? html` <strong>One of the two weeks is incomplete.</strong>` : ''}`,
    read: movers,
    links: filters.print ? '' : steps(filters),
    body: html`${
      first === undefined
        ? html`<p class="empty">Nothing can be compared: ${week === undefined ? 'one of the two periods has no answers. A week may have one before.' : `the week of ${week} or the one before it has no answers.`}</p>`
        : scrolling('Table of movers', moverTable(rows))
    }${first !== undefined && !filters.print && first.whole_count > rows.length ? html`<p class="note">${rows.length} of ${whole(first.whole_count)}; the CSV has all.</p>` : ''}`,
  })
}

function clearWords({ whole_count, judged_count, clear_count }: MoverRow): string {
  if (judged_count === 0)
    return `None of the ${count(whole_count, 'change')} has enough answers, 30 on both sides, to be judged.`
  const chance = judged_count * BY_CHANCE
  return `${whole(clear_count)} of ${count(judged_count, 'change')} with enough answers ${clear_count === 1 ? 'is' : 'are'} clear; by chance alone it would be ${chance < 1 ? 'fewer than one' : `about ${whole(chance)}`}.`
}

function moverTable(rows: readonly MoverRow[]): Html {
  return html`<table class="table"><thead><tr><th scope="col">brand</th><th scope="col">topic</th><th scope="col">model</th><th scope="col">change</th><th scope="col" class="n">95 % interval</th><th scope="col" class="n">before</th><th scope="col" class="n">now</th><th scope="col" class="n">answers</th></tr></thead>
<tbody>${rows.map(
    (row) =>
      html`<tr${row.is_own ? html` class="own-row"` : ''}><th scope="row">${row.brand}</th><td>${row.topic}</td><td>${row.model_id ?? '(no model)'}</td><td>${verdictOf(toned(row.verdict, row.is_own), points(row.change))}</td><td class="n">${points(row.change_low).replace(' points', '')} to ${points(row.change_high).replace(' points', '')}</td><td class="n">${percent(row.previous_visibility)}</td><td class="n">${percent(row.visibility)}</td><td class="n">${whole(row.previous_answers)}, ${whole(row.answers)}</td></tr>
`,
  )}</tbody></table>`
}

/** A rival's rise is no good news, so only own brands have colours. */
function toned(verdict: string, isOwn: boolean) {
  const judged = shareVerdict(verdict)
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
  const { rows, whole: all } = absent
  const shown = filters.print ? rows.slice(0, SHOWN_IN_PRINT) : rows
  const days = weeksIn(filters.range)
  return panel(filters, {
    id: 'absent-prompts',
    title: 'Absent prompts',
    about: html`Prompts and models where ${own} is in no answer of a week and rivals are. <strong>${whole(all)}</strong> in the weeks from ${days.from} to ${days.to}; those absent most often first.`,
    read: absent,
    body:
      rows.length === 0
        ? html`<p class="empty">None: in every week that begins in this range, ${own} is named wherever a rival is.</p>`
        : html`${scrolling(
            'Table of absent prompts',
            html`<table class="table"><thead><tr><th scope="col">prompt</th><th scope="col">topic</th><th scope="col">model</th><th scope="col" class="n">weeks absent</th><th scope="col">last</th><th scope="col" class="n">best rival</th><th scope="col">rivals in their best week</th><th scope="col" class="n">answers</th></tr></thead>
<tbody>${shown.map(
              (row) =>
                html`<tr><th scope="row" class="prompt">${clip(row.prompt, 200)}</th><td>${row.topic}</td><td>${row.model_id ?? '(no model)'}</td><td class="n">${whole(row.weeks_absent)}</td><td class="day">${row.last_week}</td><td class="n">${percent(row.best_rival_visibility)}</td><td>${row.rivals_in_their_best_week}</td><td class="n">${whole(row.answers)}</td></tr>
`,
            )}</tbody></table>`,
          )}${filters.print ? '' : paging(filters, absent)}`,
  })
}

function paging(filters: Filters, { whole: all, page, pages, rows }: AbsentPrompts): Html {
  const first = (page - 1) * ABSENT_SHOWN + 1
  const link = (to: number, name: string, rel: string) =>
    html`<a href="${address({ ...filters, page: to }, '/insights', 'absent-prompts')}" rel="${rel}">${name}</a>`
  return html`<nav class="pages" aria-label="Pages of absent prompts">${page > 1 ? link(page - 1, '← Previous', 'prev') : ''}<span>${whole(first)} to ${whole(first + rows.length - 1)} of ${whole(all)}</span>${page < pages ? link(page + 1, 'Next →', 'next') : ''}</nav>`
}
