import { clip } from '../../core/text.ts'
import { type Html, html } from '../html.ts'
import { type Filters, type PagePath, type Subject, subjectAddress } from '../insights/filters.ts'
import { interval, percent, points, pointsInterval, type Verdict, verdictOfChange, whole } from '../insights/format.ts'
import type { Rows } from '../insights/read-page.ts'
import type { ComparedRow, MoverRow, Row } from '../insights/rows.ts'
import { scrolling } from './layout.ts'

/* The columns of tables. A column with the same name is the same in each of them. */

type Owned = Partial<Row<'is_own'>>
type Content = Html | string | false

export interface Column<R> {
  head: Content
  cell: (row: R) => Content
  className?: string | undefined
  isName?: true
}

export function dataTable<R>(label: string, columns: readonly Column<R>[], rows: readonly R[], kind = ''): Html {
  const classOf = ({ className }: Column<R>) => className !== undefined && html` class="${className}"`
  const cellOf = (column: Column<R>, row: R) =>
    column.isName
      ? html`<th scope="row"${classOf(column)}>${column.cell(row)}</th>`
      : html`<td${classOf(column)}>${column.cell(row)}</td>`
  return scrolling(
    label,
    html`<table class="table${kind}"><thead><tr>${columns.map((column) => html`<th scope="col"${classOf(column)}>${column.head}</th>`)}</tr></thead>
<tbody>${rows.map((row) => html`<tr>${columns.map((column) => cellOf(column, row))}</tr>\n`)}</tbody></table>`,
  )
}

export const words = <R>(head: Content, cell: (row: R) => Content, className?: string) => ({ head, cell, className })
export const number = <R>(head: Content, cell: (row: R) => Content) => words(head, cell, 'n')
export const name = <R>(head: Content, cell: (row: R) => Content, className?: string): Column<R> => ({
  ...words(head, cell, className),
  isName: true,
})

export const share = <K extends string>(head: string, column: K) =>
  number(head, (row: Record<K, number | null>) => percent(row[column]))
export const total = <K extends string>(head: string, column: K) =>
  number(head, (row: Record<K, number | null>) => whole(row[column]))

type Columns = ReturnType<typeof columnsFor>
/** The columns of which a row has all that they show. */
export type ColumnName<R> = { [N in keyof Columns]: Columns[N] extends Column<R> ? N : never }[keyof Columns]

export function columnsFor(filters: Filters) {
  return {
    brand: name('brand', (row: Row<'brand is_own'>) => marked(row.brand, row)),
    domain: name('domain', (row: Row<'domain'> & Owned) => marked(row.domain, row)),
    sourceDomain: name('domain', (row: Row<'domain'> & Owned) => marked(sourceLink(filters, row.domain), row)),
    prompt: name('prompt', (row: Row<'prompt_id prompt'>) => promptLink(filters, row), 'prompt'),
    page: name('page', ({ url, title }: Row<'url title'>) => outside(url, clip(title ?? url, 120)), 'prompt'),
    day: name('day', ({ date }: Row<'date'>) => date),
    model: words('model', ({ model_id }: Row<'model_id'>) => model_id ?? '(no model)'),
    channel: words('channel', (row: Row<'model_channel_id model_id'>) => row.model_channel_id ?? row.model_id ?? '–'),
    chat: words('chat', ({ chat_id }: Row<'chat_id'>) => html`<code title="${chat_id}">${shortId(chat_id)}</code>`),
    answer: words('answer', content, 'prompt'),
    topic: words('topic', ({ topic }: Row<'topic'>) => topic),
    movedTopic: words('topic', (row: MoverRow) => linked(filters, moverAddress(filters, row), row.topic)),
    movedModel: words('model', ({ model_id, grain }: MoverRow) =>
      model_id === null ? `(${grain.endsWith('model') ? 'no model' : 'all models'})` : model_id,
    ),
    kind: words('kind', kindOf),
    last: words('last', ({ last_week }: Row<'last_week'>) => last_week),
    rivals: words('rivals', ({ rival_names }: Row<'rival_names'>) => [rival_names ?? []].flat().join(', '), 'prompt'),
    rivalsInBestWeek: words(
      'rivals (best week)',
      (row: Row<'rivals_in_their_best_week'>) => row.rivals_in_their_best_week ?? '',
      'names',
    ),
    bestRival: share('best rival', 'best_rival_visibility'),
    rival: words('best rival', (row: Row<'rival rival_visibility'>) =>
      row.rival === null ? '–' : `${row.rival}, ${percent(row.rival_visibility)}`,
    ),
    visibility: share('visibility', 'visibility'),
    now: share('now', 'visibility'),
    before: share('before', 'previous_visibility'),
    interval: number('95 % interval', (row: ComparedRow) => interval(row.visibility_low, row.visibility_high)),
    change: words('change', (row: Row<'change'> & Parameters<typeof verdictOfChange>[0]) =>
      verdictOf(verdictOfChange(row), points(row.change)),
    ),
    changeInterval: number('95 % interval', (row: MoverRow) => pointsInterval(row.change_low, row.change_high)),
    answers: total('answers', 'answers'),
    bothAnswers: number('answers', (row: MoverRow) => `${whole(row.previous_answers)}, ${whole(row.answers)}`),
    weeks: total('weeks', 'weeks'),
    weeksAbsent: total('weeks absent', 'weeks_absent'),
    namedElsewhere: total('answers that name it in other weeks', 'named_count'),
    citations: total('citations', 'citation_count'),
    retrieved: share('retrieved by', 'retrieved_share'),
    retrievedInterval: number('95 % interval', (row: Rows['sources']) =>
      interval(row.retrieved_share_low, row.retrieved_share_high),
    ),
    retrieving: total('answers that retrieve it', 'retrieved_chat_count'),
    mostPrompts: total('most prompts in a week', 'most_prompts_in_a_week'),
  }
}

/** Emphasizes the own brand. */
const marked = (text: Html | string, { is_own }: Owned) => html`<span${is_own && html` class="own"`}>${text}</span>`

/** Own domains and those of rivals first: the service may class them otherwise. */
function kindOf({ is_own, is_rival, classification }: Row<'is_own is_rival classification'>): string {
  if (is_own) return 'own'
  if (is_rival) return 'rival'
  return (classification ?? '–').toLowerCase().replaceAll('_', ' ')
}

export function verdictOf({ mark, words: text, tone }: Verdict, change = ''): Html {
  return html`<span class="judged ${tone}">${mark !== '=' && html`<span aria-hidden="true">${mark}</span> `}${change !== '' && html`<span class="change">${change}</span> `}<span class="words">${text}</span></span>`
}

/** A short form of an id for tables; the title of the cell has all of it. */
const shortId = (id: string) => (id.length <= 14 ? id : `${id.slice(0, 7)}…${id.slice(-4)}`)

/* Links to the pages behind a number. On paper there are none. */

export function linked({ print }: Filters, to: string | undefined, text: string): Html {
  return print || to === undefined ? html`${text}` : html`<a href="${to}">${text}</a>`
}

export function subjectLink(filters: Filters, path: PagePath, subject: Subject, text: string): Html {
  return linked(filters, subjectAddress(filters, path, subject), text)
}

export function promptLink(filters: Filters, { prompt_id, prompt }: Row<'prompt_id prompt'>): Html {
  return subjectLink(filters, '/insights/prompt', { prompt: prompt_id }, clip(prompt, 200))
}

export function sourceLink(filters: Filters, domain: string): Html {
  return subjectLink(filters, '/insights/source', { domain }, domain)
}

/** The page of what moved: a topic, alone or with a model, or a model. */
export function moverAddress(filters: Filters, { topic_id, model_id }: MoverRow): string | undefined {
  const model = model_id === null ? {} : { model: model_id }
  if (topic_id !== null) return subjectAddress(filters, '/insights/topic', { topic: topic_id, ...model })
  return model_id === null ? undefined : subjectAddress(filters, '/insights/model', model)
}

/** A link to an address that the service gave. Anything but a web address is shown as text. */
function outside(url: string, text: string): Html {
  return /^https?:\/\//i.test(url) ? html`<a href="${url}" rel="noreferrer nofollow">${text}</a>` : html`${text}`
}

const MOST_LETTERS = 6000
const MOST_SOURCES = 10

function listOf(value: unknown): Record<string, unknown>[] {
  return Array.isArray(value) ? value.filter((item) => typeof item === 'object' && item !== null) : []
}

/** The text of an answer, its brands and its sources. */
function content({ messages, sources, brands_mentioned }: Rows['chats']): Html {
  if (messages === null) return html`<span class="quiet">not read</span>`
  const texts = listOf(messages).flatMap(({ role, content: text }) =>
    typeof text === 'string' ? [{ role, text }] : [],
  )
  const answer = (texts.findLast(({ role }) => role === 'assistant') ?? texts.at(-1))?.text ?? ''
  const brands = listOf(brands_mentioned).flatMap((brand) => (typeof brand.name === 'string' ? [brand.name] : []))
  const cited = listOf(sources).flatMap(({ url, domain }) =>
    typeof url === 'string' ? [outside(url, typeof domain === 'string' ? domain : url)] : [],
  )
  const more = cited.length > MOST_SOURCES && ` and ${cited.length - MOST_SOURCES} more`
  const links = cited.slice(0, MOST_SOURCES).map((link, index) => [index > 0 && ', ', link])
  return html`<details><summary>${clip(answer, 90)}</summary><p class="answer">${clip(answer, MOST_LETTERS)}</p>
${brands.length > 0 && html`<p>Names ${brands.join(', ')}.</p>`}
${cited.length > 0 && html`<p>Cites ${links}${more}.</p>`}</details>`
}
