import { addDays } from '../../core/day.ts'
import { count } from '../../core/text.ts'
import { type Html, html } from '../html.ts'
import { address, COMPARISONS, type Filters, mondayOf, weeksIn } from '../insights/filters.ts'
import { percent, points, verdictFor, whole } from '../insights/format.ts'
import type { ChartSection, Found, Read, Rows, Section } from '../insights/read-page.ts'
import type { ChartRow, LeadRow, Row } from '../insights/rows.ts'
import { CHART_KINDS } from '../insights/series.ts'
import { chart, chartOf, heatMap, isByChannel } from './insights-charts.ts'
import {
  type Column,
  type ColumnName,
  columnsFor,
  dataTable,
  name,
  promptLink,
  share,
  subjectLink,
  total,
  verdictOf,
  words,
} from './insights-columns.ts'

/* The sections of all pages but the headlines. */

interface Panel<R> {
  title: string
  about: Html | string
  /** The columns of its table, or what it has instead of a table. */
  columns?: readonly (ColumnName<R> | Column<R>)[]
  body?: () => Html
  /** The text without rows; null if the section is then left out. Few services offer the reports of such a section. */
  empty?: string | null
  /** Links to other views of it; they stay if there is nothing to show. */
  links?: Html
  pages?: Html
  isNarrow?: boolean
}

type PanelId = Exclude<Section, 'summary' | 'head-to-head-by-model' | 'falls'>
type Write<R> = (filters: Filters, found: Found, read: Read<R>) => Panel<R>

const NO_WEEK = 'No complete week begins in this range.'
const noSources = ({ hasDomains, weeks }: Found) => (hasDomains ? (weeks > 0 ? 'None in these weeks.' : NO_WEEK) : null)
const ownName = ({ own }: Found) => own?.name ?? 'the own brand'

const PANELS: { [S in PanelId]: Write<Rows[S]> } = {
  visibility: chartPanel('visibility'),
  'share-of-voice': chartPanel('share-of-voice'),
  position: chartPanel('position'),
  sentiment: chartPanel('sentiment'),

  'topics-by-model': (filters, found, { rows }) => ({
    title: isByChannel(rows) ? 'Topics by channel' : 'Topics by model',
    about: `Share of answers that name ${ownName(found)}.${filters.comparison === 'none' ? '' : ` ▲ and ▼ mark clear changes against ${COMPARISONS[filters.comparison]}.`}`,
    empty: 'No topic had an answer in this range.',
    body: () => heatMap(filters, rows),
  }),

  'head-to-head': (filters, found, { rows }) => ({
    title: 'Head to head',
    about: `Visibility of ${ownName(found)} and of each rival in the same answers. A lead is clear where the two intervals do not touch.`,
    empty: 'No rival was tracked in this range.',
    body: () => rivals(filters, found, rows),
  }),

  movers(filters, _, { rows }) {
    const { week, range, comparison } = filters
    const against = comparison === 'none' ? '' : ` against ${COMPARISONS[comparison]}`
    const compared =
      week === undefined ? `${range.from} to ${range.to}${against}` : `Week of ${week} against the week before`
    const missing =
      week === undefined
        ? 'one of the two periods has no answers. A week may have one before.'
        : `the week of ${week} or the one before it has no answers.`
    return {
      title: 'Movers',
      about: `${compared}, the clearest changes first. ${rows[0] === undefined ? '' : clearWords(rows[0])}`,
      columns: ['brand', 'movedTopic', 'movedModel', 'change', 'changeInterval', 'before', 'now', 'bothAnswers'],
      empty: `Nothing can be compared: ${missing}`,
      links: steps(filters),
    }
  },

  'absent-prompts'(filters, found, { rows }) {
    const { from, to } = weeksIn(filters.range)
    const own = ownName(found)
    const counted = html`: <strong>${whole(rows[0]?.whole_count ?? 0)}</strong> in ${count(found.weeks, 'complete week')} from ${from} to ${to}. Those absent most often come first.`
    const none = `None: in every complete week that begins in this range, ${own} is named wherever a rival is.`
    return {
      title: 'Absent prompts',
      about: html`Prompts and models with a complete week in which no answer names ${own} and rivals are named${found.weeks > 0 ? counted : '.'}`,
      columns: [
        'prompt',
        'topic',
        'model',
        'weeksAbsent',
        'last',
        'bestRival',
        'rivalsInBestWeek',
        'answers',
        'namedElsewhere',
      ],
      empty: found.weeks > 0 ? none : NO_WEEK,
      pages: paging(filters, found, rows),
    }
  },

  sources({ range }, found) {
    const { from, to } = weeksIn(range)
    return {
      title: 'Sources cited',
      about: `Domains that answers of the complete weeks from ${from} to ${to} retrieve and cite, the most cited first.`,
      columns: ['domain', 'kind', 'citations', 'retrieved', 'retrievedInterval', 'answers'],
      empty: noSources(found),
    }
  },

  'source-gaps': (_, found) => ({
    title: 'Sources of answers without you',
    about: `Domains that answers cite for prompts and models where rivals appear and ${ownName(found)} does not in a complete week. The most cited come first, own and rival domains last.`,
    columns: ['sourceDomain', 'kind', 'citations', 'retrieving', 'mostPrompts', 'weeks', 'last'],
    empty: noSources(found),
  }),

  trend: chartPanel('visibility', false),

  brands: () => ({
    title: 'You and rivals',
    about: 'All tracked brands in these answers, the most visible first.',
    columns: ['brand', 'visibility', 'interval', 'before', 'change', 'answers'],
  }),

  'by-model': (filters, found, { rows }) =>
    groups(filters, found, rows[0]?.grouped_by === 'model_channel_id' ? 'channel' : 'model'),
  'by-topic': (filters, found) => groups(filters, found, 'topic'),
  prompts: (filters, found) => ({ ...groups(filters, found, 'prompt'), title: 'Prompts' }),

  chats(_, __, { rows }) {
    const hasContents = rows.some(({ messages }) => messages !== null)
    const hasChannels = rows.some(({ model_channel_id }) => model_channel_id !== null)
    const how = hasContents
      ? 'those whose content was read first, then the newest.'
      : html`the newest first. To read what they say, set <code>chat_contents</code> in the configuration.`
    return {
      title: 'Chats',
      about: html`Single answers to this prompt, ${how}`,
      columns: ['day', hasChannels ? 'channel' : 'model', 'chat', ...(hasContents ? ['answer' as const] : [])],
    }
  },

  cited: () => ({
    title: 'Sources cited',
    about: 'Domains in the answers whose content was read, the most cited first.',
    columns: ['domain', 'citations', 'answers'],
    empty: null,
  }),

  'source-prompts': (_, found) => ({
    title: 'Prompts',
    about: `Prompts and models whose answers retrieve this domain in weeks in which rivals appear and ${ownName(found)} does not.`,
    columns: ['prompt', 'topic', 'model', 'weeks', 'last', 'bestRival'],
  }),

  'source-pages': () => ({
    title: 'Pages that mention rivals and not you',
    about: 'The most cited first.',
    columns: ['page', 'rivals', 'citations', 'last'],
    empty: null,
  }),
}

const SHOWN_IN_PRINT = 5

export const isPanel = (id: Section): id is PanelId => id in PANELS

/** A section: its title, a link to it, its rows as a file, and its SQL. On paper only the numbers are left. */
export function panel<S extends PanelId>(filters: Filters, found: Found, id: S): Html | '' {
  const { print } = filters
  const read: Read<Rows[S]> = found.sections[id]
  const { sql, missing } = read
  const written = PANELS[id](filters, found, read)
  const { title, about, columns = [], empty = 'No answer in this range. Choose a longer one.' } = written
  if (empty === null && (read.rows.length === 0 || print)) return ''
  const all = columnsFor(filters) as Record<string, Column<never>>
  const rows = print ? read.rows.slice(0, SHOWN_IN_PRINT) : read.rows
  const table = () =>
    html`${dataTable(
      `${title}, as a table`,
      columns.map((column) => (typeof column === 'string' ? (all[column] as Column<Rows[S]>) : column)),
      rows,
    )}${!print && (written.pages ?? more(rows))}`
  const body = () => (read.rows.length === 0 ? note(empty) : (written.body ?? table)())
  const isOpen = !print && missing === undefined
  return html`<section class="card${written.isNarrow ? '' : ' wide'}" id="${id}" aria-labelledby="${id}-title">
<header><h2 id="${id}-title">${title}</h2>${isOpen && actions(filters, id, title)}</header>
<p class="about">${about}</p>
${!print && written.links}${missing === undefined ? body() : note(missing)}
${isOpen && sqlOf(title, sql)}</section>`
}

const note = (text: string | null) => html`<p class="empty">${text}</p>`

function more(rows: readonly object[]): Html | '' {
  const { whole_count: all = 0 }: Partial<Row<'whole_count'>> = rows[0] ?? {}
  return all > rows.length ? html`<p class="note">${rows.length} of ${whole(all)}; the CSV has all.</p>` : ''
}

export function actions(filters: Filters, id: Section, title: string): Html {
  return html`<p class="actions"><a href="${address(filters, filters.path, id)}" aria-label="Link to ${title}, with these filters">Link</a><a href="${address(filters, `${filters.path}/${id}.csv`)}" aria-label="${title} as CSV" download>CSV</a></p>`
}

export function sqlOf(title: string, sql: string, summary = 'SQL'): Html {
  return html`<details class="sql"><summary>${summary}</summary><pre tabindex="0" role="region" aria-label="SQL of ${title}"><code>${sql}</code></pre></details>`
}

function chartPanel(kind: ChartSection, isNarrow = true): Write<ChartRow> {
  const { title, about } = CHART_KINDS[kind]
  return (filters, found, { rows }) => {
    const body = () => chart(filters, title, chartOf(kind, filters, found, rows))
    return { title, about, body, isNarrow }
  }
}

function groups(
  filters: Filters,
  found: Found,
  what: 'topic' | 'prompt' | 'model' | 'channel',
): Panel<Rows['prompts']> {
  const { subject } = filters
  const own = ownName(found)
  const link = ({ id, name: text }: Row<'id name'>) => {
    if (id === null) return `(no ${what})`
    if (what === 'prompt') return promptLink(filters, { prompt_id: id, prompt: text ?? id })
    if (id === subject[what]) return text ?? id
    return subjectLink(
      filters,
      what === 'topic' ? '/insights/topic' : filters.path,
      { ...subject, [what]: id },
      text ?? id,
    )
  }
  return {
    title: `By ${what}`,
    about: `${own} and the most visible rival of each ${what}, where ${own} is furthest behind first.`,
    columns: [name(what, link, 'prompt'), 'visibility', 'interval', 'before', 'change', 'rival', 'answers'],
  }
}

function clearWords({ whole_count, judged_count, clear_count, grain, comparison_is_complete }: Rows['movers']): string {
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

/** From the range to its last whole week, and from week to week. */
function steps(filters: Filters): Html {
  const { week, range } = filters
  const link = (to: string | undefined, text: string) =>
    html`<a href="${address({ ...filters, week: to }, '/insights', 'movers')}"${to === week && html` aria-current="true"`}>${text}</a>`
  const last = week ?? mondayOf(addDays(range.to, -6))
  return html`<nav class="tabs" aria-label="What the movers are compared over">${link(undefined, 'Whole period')}${link(last, `Week of ${last}`)}${week !== undefined && html`${link(addDays(week, -7), '← Week before')}${link(addDays(week, 7), 'Week after →')}`}</nav>`
}

function paging(
  filters: Filters,
  { absent: { page, pages, first } }: Found,
  rows: readonly Rows['absent-prompts'][],
): Html {
  const before = (page - 1) * first.length
  const link = (to: number, text: string, rel: string) =>
    html`<a href="${address({ ...filters, page: to }, '/insights', 'absent-prompts')}" rel="${rel}">${text}</a>`
  return html`<nav class="pages" aria-label="Pages of absent prompts">${page > 1 && link(page - 1, '← Previous', 'prev')}<span>${whole(before + 1)} to ${whole(before + rows.length)} of ${whole(rows[0]?.whole_count ?? 0)}</span>${page < pages && link(page + 1, 'Next →', 'next')}</nav>`
}

const MOST_RIVALS = 12
const MOST_RIVALS_IN_PRINT = 6

/** The own brand against each rival, and against one of them by model. */
function rivals(filters: Filters, found: Found, rows: readonly Rows['head-to-head'][]): Html {
  const { rival } = found
  const shown = rows.slice(0, filters.print ? MOST_RIVALS_IN_PRINT : MOST_RIVALS)
  const left = rows.length - shown.length
  const isCurrent = (row: Rows['head-to-head']) => row.rival_brand_id === rival?.id && html` aria-current="true"`
  const link = (row: Rows['head-to-head']) =>
    filters.print
      ? row.rival_brand
      : html`<a href="${address({ ...filters, rival: row.rival_brand_id }, '/insights', 'head-to-head-by-model')}"${isCurrent(row)}>${row.rival_brand}</a>`
  return html`${leads('Head to head with each rival', name('rival', link), shown, found)}
${left > 0 && html`<p class="note">${count(left, 'more rival')}${filters.print ? '' : ' in the CSV'}.</p>`}
${!filters.print && rival !== undefined && byModel(filters, found, rival)}`
}

function byModel(filters: Filters, found: Found, rival: { id: string; name: string }): Html {
  const { rows, missing, sql } = found.sections['head-to-head-by-model']
  const { from, to } = weeksIn(filters.range)
  const own = ownName(found)
  const title = `${own} and ${rival.name} by model`
  const csv = address({ ...filters, rival: rival.id }, '/insights/head-to-head-by-model.csv')
  const model = columnsFor(filters).model
  return html`<h3 id="head-to-head-by-model">${title}</h3>
${
  rows.length === 0
    ? note(missing ?? 'No week that begins in this range has answers of both.')
    : html`<p class="about">Weeks from ${from} to ${to}, where ${own} is furthest behind first. <a href="${csv}" aria-label="${title} as CSV" download>CSV</a></p>
${leads(title, { ...model, isName: true }, rows, found)}
${sqlOf(title, sql, 'SQL by model')}`
}`
}

function leads<R extends LeadRow>(label: string, first: Column<R>, rows: readonly R[], found: Found): Html {
  const widest = Math.max(...rows.flatMap((row) => [row.own_visibility_high ?? 0, row.rival_visibility_high ?? 0]), 0.1)
  const scale = Math.min(1, Math.ceil(widest * 10) / 10)
  const columns = [
    first,
    words(html`<span>0 %</span><span>${percent(scale)}</span>`, (row: LeadRow) => drawn(row, scale), 'drawn'),
    share(ownName(found), 'own_visibility'),
    share('rival', 'rival_visibility'),
    words('lead', (row: LeadRow) => verdictOf(verdictFor(row.lead_verdict), points(row.lead))),
    share('share of both', 'own_share_of_both'),
    total('answers', 'answers'),
  ]
  return dataTable(label, columns, rows, ' leads')
}

/** Both shares and their intervals on one line from zero. */
function drawn(row: LeadRow, scale: number): Html {
  const at = (share: number | null) => `${Number((((share ?? 0) / scale) * 100).toFixed(1))}%`
  const bar = (whose: 'own' | 'rival', y: string) => {
    const value = row[`${whose}_visibility`]
    const [low, high] = [row[`${whose}_visibility_low`], row[`${whose}_visibility_high`]]
    return (
      value !== null &&
      html`<line class="${whose}" x1="${at(low)}" x2="${at(high)}" y1="${y}" y2="${y}"/><circle class="${whose}" cx="${at(value)}" cy="${y}" r="4"/>`
    )
  }
  return html`<svg aria-hidden="true"><line class="grid" x1="0" x2="100%" y1="50%" y2="50%"/>${bar('rival', '68%')}${bar('own', '32%')}</svg>`
}
