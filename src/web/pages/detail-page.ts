import { clip } from '../../core/text.ts'
import { type Html, html } from '../html.ts'
import { DETAILS, type DetailSection } from '../insights/detail-statements.ts'
import { type Filters, subjectAddress } from '../insights/filters.ts'
import { percent, points, whole } from '../insights/format.ts'
import type { BrandRow, ChatRow, Detail, DetailRows, GroupRow } from '../insights/read-detail.ts'
import type { Read } from '../insights/read-insights.ts'
import { chartData, isDrawable } from '../insights/series.ts'
import { filterBar, rangeWords } from './filter-bar.ts'
import { chart, interval, panel, verdictOf } from './insights-charts.ts'
import { number, promptLink, rowName, tablePanel, toned } from './insights-tables.ts'
import { layout } from './layout.ts'

export interface DetailPage {
  version: string
  projects: { id: string; name: string }[]
  filters: Filters
  detail: Detail
}

/** The reasons behind a number: of a topic, a model, a prompt or a source. */
export function detailPage({ version, projects, filters, detail }: DetailPage): string {
  const title = titleOf(filters, detail)
  const write = <S extends keyof DetailRows>(section: S) =>
    SECTIONS[section](filters, detail, detail.sections[section]!)
  const body = html`<div class="insights detail">
${breadcrumbs(filters, detail)}
<div class="title"><h1>${title}</h1></div>
${filterBar({ projects, filters, insights: detail })}
<p class="note">${rangeWords(filters, detail)}</p>
<div class="panels">${DETAILS[filters.path].map(write)}</div>
</div>`
  const assets = { scripts: ['status.js', 'insights.js'], styles: ['insights.css'] }
  return layout({ title: clip(title, 80), path: '/insights', version, ...assets }, body)
}

function titleOf({ subject }: Filters, { names }: Detail): string {
  const model = subject.model ?? names.channel ?? subject.channel
  const suffix = model === undefined ? '' : ` · ${model}`
  if (subject.prompt !== undefined) return `${names.prompt ?? subject.prompt}${suffix}`
  if (subject.topic !== undefined) return `${names.topic ?? subject.topic}${suffix}`
  return model ?? subject.domain ?? ''
}

/** The way back, with the filters of this page. */
function breadcrumbs(filters: Filters, { names }: Detail): Html {
  const { subject } = filters
  const { topicId } = names
  const isBelowTopic = topicId !== undefined && (subject.prompt ?? subject.model ?? subject.channel) !== undefined
  const topic = isBelowTopic
    ? html`<li><a href="${subjectAddress(filters, '/insights/topic', { topic: topicId })}">${names.topic ?? topicId}</a></li>`
    : ''
  const prompt =
    subject.prompt !== undefined && (subject.model ?? subject.channel) !== undefined
      ? html`<li><a href="${subjectAddress(filters, '/insights/prompt', { prompt: subject.prompt })}">${clip(names.prompt ?? subject.prompt, 60)}</a></li>`
      : ''
  const kind = { topic: 'Topic', model: 'Model', channel: 'Channel', prompt: 'Prompt', source: 'Source' }[
    filters.path.split('/')[2] ?? ''
  ]
  return html`<nav aria-label="Breadcrumbs"><ol class="crumbs"><li><a href="${subjectAddress(filters, '/insights')}">Insights</a></li>${topic}${prompt}<li aria-current="page">${kind}</li></ol></nav>`
}

type Sections = {
  [S in keyof DetailRows]: (filters: Filters, detail: Detail, read: Read<DetailRows[S]>) => Html
}

const SECTIONS: Sections = {
  trend(filters, { own, brands }, read) {
    const { grain, range } = filters
    const data = chartData('visibility', read.rows, { grain, focus: own?.id, from: range.from, brands })
    const title = 'Visibility'
    const body = chart(filters, title, isDrawable(data) ? data : undefined)
    return panel(filters, { id: 'trend', title, about: 'Share of answers that name the brand.', read, body })
  },

  brands: (filters, _, read) =>
    tablePanel(filters, {
      id: 'brands',
      title: 'You and rivals',
      about: 'All tracked brands in these answers, the most visible first.',
      read,
      titles: ['brand', '#visibility', '#95 % interval', '#before', 'change', '#answers'],
      cells: (row) =>
        html`${rowName(row.brand, row.is_own)}${shareCells(row, row.is_own)}<td class="n">${whole(row.answers)}</td>`,
    }),

  'by-model': (filters, detail, read) => {
    const what = read.rows[0]?.grouped_by === 'model_channel_id' ? 'channel' : 'model'
    return groups(filters, detail, {
      id: 'by-model',
      title: `By ${what}`,
      what,
      read,
      name: ({ id, name }) =>
        id === null || id === (filters.subject.model ?? filters.subject.channel)
          ? html`${name ?? '(no model)'}`
          : html`<a href="${subjectAddress(filters, filters.path, { ...filters.subject, [what]: id })}">${name}</a>`,
    })
  },

  'by-topic': (filters, detail, read) =>
    groups(filters, detail, {
      id: 'by-topic',
      title: 'By topic',
      what: 'topic',
      read,
      name: ({ id, name }) =>
        id === null
          ? html`(no topic)`
          : html`<a href="${subjectAddress(filters, '/insights/topic', { ...filters.subject, topic: id })}">${name}</a>`,
    }),

  prompts: (filters, detail, read) =>
    groups(filters, detail, {
      id: 'prompts',
      title: 'Prompts',
      what: 'prompt',
      read,
      name: ({ id, name }) =>
        id === null ? html`(no prompt)` : promptLink(filters, { prompt_id: id, prompt: name ?? id }),
    }),

  chats(filters, _, read) {
    const hasContents = read.rows.some(({ messages }) => messages !== null)
    const hasChannels = read.rows.some(({ model_channel_id }) => model_channel_id !== null)
    const how = hasContents
      ? 'those whose content was read first, then the newest.'
      : html`the newest first. To read what they say, set <code>chat_contents</code> in the configuration.`
    return tablePanel(filters, {
      id: 'chats',
      title: 'Chats',
      about: html`Single answers to this prompt, ${how}`,
      read,
      titles: ['day', hasChannels ? 'channel' : 'model', 'chat', ...(hasContents ? ['answer'] : [])],
      cells: (row) =>
        html`<th scope="row">${row.date}</th><td>${row.model_channel_id ?? row.model_id ?? '–'}</td><td><code title="${row.chat_id}">${shortId(row.chat_id)}</code></td>${hasContents && html`<td class="prompt">${content(row)}</td>`}`,
    })
  },

  cited(filters, _, read) {
    if (read.rows.length === 0) return html``
    return tablePanel(filters, {
      id: 'cited',
      title: 'Sources cited',
      about: 'Domains in the answers whose content was read, the most cited first.',
      read,
      titles: ['domain', '#citations', '#answers'],
      cells: (row) =>
        html`<th scope="row">${row.domain}</th><td class="n">${number(row.citation_count)}</td><td class="n">${whole(row.answers)}</td>`,
    })
  },

  'source-prompts': (filters, detail, read) =>
    tablePanel(filters, {
      id: 'source-prompts',
      title: 'Prompts',
      about: `Prompts and models whose answers retrieve this domain in weeks in which rivals appear and ${ownName(detail)} does not.`,
      read,
      titles: ['prompt', 'topic', 'model', '#weeks', 'last', '#best rival'],
      cells: (row) =>
        html`<th scope="row" class="prompt">${promptLink(filters, row)}</th><td>${row.topic}</td><td>${row.model_id ?? '(no model)'}</td><td class="n">${whole(row.weeks)}</td><td>${row.last_week}</td><td class="n">${percent(row.best_rival_visibility)}</td>`,
    }),

  'source-pages'(filters, _, read) {
    if (read.rows.length === 0) return html``
    return tablePanel(filters, {
      id: 'source-pages',
      title: 'Pages that mention rivals and not you',
      about: 'The most cited first.',
      read,
      titles: ['page', 'rivals', '#citations', 'last'],
      cells: (row) =>
        html`<th scope="row" class="prompt">${outside(row.url, clip(row.title ?? row.url, 120))}</th><td class="prompt">${[row.rival_names ?? []].flat().join(', ')}</td><td class="n">${number(row.citation_count)}</td><td>${row.last_week}</td>`,
    })
  },
}

/** A short form of an id for tables; the title of the cell has all of it. */
const shortId = (id: string) => (id.length <= 14 ? id : `${id.slice(0, 7)}…${id.slice(-4)}`)

const ownName = ({ own }: Detail) => own?.name ?? 'the own brand'

/** The share with its interval, the one before, and the change. */
function shareCells(row: BrandRow | GroupRow, isOwn: boolean): Html {
  const change = row.change === null ? '' : points(row.change)
  return html`<td class="n">${percent(row.visibility)}</td><td class="n">${interval(row.visibility_low, row.visibility_high)}</td><td class="n">${percent(row.previous_visibility)}</td><td>${verdictOf(toned(row.verdict, isOwn), change)}</td>`
}

interface Groups {
  id: DetailSection
  title: string
  what: string
  read: Read<GroupRow>
  name: (row: GroupRow) => Html
}

function groups(filters: Filters, detail: Detail, { what, name, ...rest }: Groups): Html {
  const own = ownName(detail)
  return tablePanel(filters, {
    ...rest,
    about: `${own} and the most visible rival of each ${what}, where ${own} is furthest behind first.`,
    titles: [what, '#visibility', '#95 % interval', '#before', 'change', 'best rival', '#answers'],
    cells: (row) =>
      html`<th scope="row" class="prompt">${name(row)}</th>${shareCells(row, true)}<td>${row.rival === null ? '–' : `${row.rival}, ${percent(row.rival_visibility)}`}</td><td class="n">${whole(row.answers)}</td>`,
  })
}

/** A link to an address that the service gave. Anything but a web address is shown as text. */
function outside(url: string, name: string): Html {
  return /^https?:\/\//i.test(url) ? html`<a href="${url}" rel="noreferrer nofollow">${name}</a>` : html`${name}`
}

const MOST_LETTERS = 6000
const MOST_SOURCES = 10

/** The objects of a list that the service sent. */
function listOf(value: unknown): Record<string, unknown>[] {
  return Array.isArray(value) ? value.filter((item) => typeof item === 'object' && item !== null) : []
}

/** What an answer says, which brands it names, and what it cites. */
function content({ messages, sources, brands_mentioned }: ChatRow): Html {
  if (messages === null) return html`<span class="quiet">not read</span>`
  const texts = listOf(messages).flatMap(({ role, content }) =>
    typeof content === 'string' ? [{ role, content }] : [],
  )
  const answer = (texts.findLast(({ role }) => role === 'assistant') ?? texts.at(-1))?.content ?? ''
  const brands = listOf(brands_mentioned).flatMap(({ name }) => (typeof name === 'string' ? [name] : []))
  const cited = listOf(sources).flatMap(({ url, domain }) =>
    typeof url === 'string' ? [{ url, name: typeof domain === 'string' ? domain : url }] : [],
  )
  return html`<details><summary>${clip(answer, 90)}</summary><p class="answer">${clip(answer, MOST_LETTERS)}</p>
${brands.length === 0 ? '' : html`<p>Names ${brands.join(', ')}.</p>`}
${cited.length === 0 ? '' : html`<p>Cites ${cited.slice(0, MOST_SOURCES).map(({ url, name }, index) => html`${index === 0 ? '' : ', '}${outside(url, name)}`)}${cited.length > MOST_SOURCES ? ` and ${cited.length - MOST_SOURCES} more` : ''}.</p>`}</details>`
}
