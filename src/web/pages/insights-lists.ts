import { addDays } from '../../core/day.ts'
import { clip, count } from '../../core/text.ts'
import { type Html, html } from '../html.ts'
import { address, type Filters, weeksIn } from '../insights/filters.ts'
import { percent, points, whole } from '../insights/format.ts'
import { ABSENT_SHOWN, type AbsentPrompts, type Insights } from '../insights/read-insights.ts'
import { shareVerdict } from '../insights/verdicts.ts'
import { panel, scrolling, verdictOf } from './insights-parts.ts'

const SHOWN_IN_PRINT = 6
// One change in twenty lies outside its interval by chance alone.
const BY_CHANCE = 0.05

/** What changed against the week before, the clearest first. */
export function moverPanel(filters: Filters, movers: Insights['movers']): Html {
  const { week } = movers
  const rows = filters.print ? movers.rows.slice(0, SHOWN_IN_PRINT) : movers.rows
  const [first] = rows
  const about =
    week === undefined
      ? 'What changed against the week before, by brand, topic and model.'
      : html`Week of ${week} against the week before, by brand, topic and model; the clearest changes first, not the largest.${
          first === undefined
            ? ''
            : ` ${whole(first.clear_count)} of ${count(first.judged_count, 'change')} with enough answers ${first.clear_count === 1 ? 'is' : 'are'} clear; by chance alone it would be about ${whole(first.judged_count * BY_CHANCE)}.`
        }${first !== undefined && !first.comparison_is_complete ? html` <strong>One of the two weeks is incomplete.</strong>` : ''}`
  return panel(filters, {
    id: 'movers',
    title: 'Movers',
    about,
    read: movers,
    body: html`${filters.print || week === undefined ? '' : weeks(filters, week)}${
      rows.length === 0
        ? html`<p class="empty">${week === undefined ? 'No week that begins in this range was read.' : `Nothing can be compared: the week of ${week} or the one before it has no answers. Choose another week.`}</p>`
        : scrolling(
            'Movers',
            html`<table class="table"><thead><tr><th scope="col">brand</th><th scope="col">topic</th><th scope="col">model</th><th scope="col">change</th><th scope="col" class="n">95 % interval</th><th scope="col" class="n">before</th><th scope="col" class="n">week</th><th scope="col" class="n">answers</th></tr></thead>
<tbody>${rows.map(
              (row) =>
                html`<tr${row.is_own ? html` class="own-row"` : ''}><th scope="row">${row.brand}</th><td>${row.topic}</td><td>${row.model_id ?? '(no model)'}</td><td>${verdictOf(toned(row.verdict, row.is_own), points(row.change))}</td><td class="n">${points(row.change_low).replace(' points', '')} to ${points(row.change_high).replace(' points', '')}</td><td class="n">${percent(row.previous_visibility)}</td><td class="n">${percent(row.visibility)}</td><td class="n">${whole(row.previous_answers)}, ${whole(row.answers)}</td></tr>
`,
            )}</tbody></table>`,
          )
    }${first !== undefined && !filters.print && first.whole_count > rows.length ? html`<p class="note">${rows.length} of ${whole(first.whole_count)}; the CSV has all.</p>` : ''}`,
  })
}

/** A rival's rise is no good news, so only own brands have colours. */
function toned(verdict: string, isOwn: boolean) {
  const judged = shareVerdict(verdict)
  return isOwn ? judged : { ...judged, tone: 'plain' as const }
}

function weeks(filters: Filters, week: string): Html {
  const link = (days: number, name: string) =>
    html`<a href="${address({ ...filters, week: addDays(week, days) }, '/insights', 'movers')}">${name}</a>`
  return html`<nav class="pages" aria-label="Week of the movers">${link(-7, '← Week before')}${link(7, 'Week after →')}</nav>`
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
            'Absent prompts',
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
