import { sql } from 'kysely'
import * as z from 'zod'
import type { Dimension } from '../../core/vocabulary.ts'
import { dataTable } from '../../warehouse/database.ts'
import { interval, percent, verdictFor, whole } from '../../web/insights/format.ts'
import {
  channelsOf,
  columnOf,
  GROUPS,
  type Group,
  grouped,
  headToHeadBy,
  METRICS,
  type Metric,
  overTime,
  type RivalRow,
  reportWith,
} from '../../web/insights/measure-statements.ts'
import { changeOf, kindOf, type Measured, numberOf } from '../../web/insights/measure-words.ts'
import { STATEMENTS } from '../../web/insights/read-page.ts'
import { type Context, NAMES, reportName } from '../../web/insights/sql.ts'
import { find, type Named, quoted, TEXT_LENGTH } from '../answer.ts'
import { aName, COMPARISON, defineTool, openQuestion, PERIOD, type Question } from '../question.ts'

/* The numbers of brands, and who is ahead. */

const GRAINS = ['day', 'week', 'month'] as const
const none = (by: string) => `There are no answers${/week|month/.test(by) ? ` or no ${by} begins` : ''} in this period.`

export const getVisibility = defineTool({
  name: 'get_visibility',
  description:
    'Visibility, share of voice, position and sentiment of brands, against the period before; by day, week or month, or ' +
    'by topic, channel, country, tag or prompt. By default all four of the own brand over the last four complete weeks.',
  input: {
    brands: z.array(aName('Name or id; or own, rivals, all.')).min(1).max(10).default(['own']),
    metric: z.enum(METRICS).optional().describe('By default all four, or visibility of several brands or groups.'),
    by: z.enum(['none', ...GRAINS, ...GROUPS]).default('none'),
    topic: aName('Only this topic, by name or id.').optional(),
    channel: aName('Only this channel (or model), by name or id.').optional(),
    country: aName('Only prompts of this country, two letters.').optional(),
    tag: aName('Only this tag, by name or id.').optional(),
    prompt: aName('Only this prompt, by text or id.').optional(),
    ...{ ...PERIOD, ...COMPARISON },
  },
  columns: {
    texts: 'metric brand brand_id name id verdict',
    numbers: 'value low high count sample previous_value previous_sample change change_low change_high',
    flags: 'is_complete is_provisional',
  },
  about:
    'name and id are those of the topic, channel, country, tag or prompt, or the first day. Shares are from 0 to 1, ' +
    'position 1 is first, sentiment is on the scale of the service. low and high: the 95 % interval, which only ' +
    'visibility has. count of sample: answers or mentions. change: given only if verdict is up or down.',
  async answer(desk, asked) {
    const { by, metric = 'visibility' } = asked
    const [grain, group] = [GRAINS.find((one) => one === by), GROUPS.find((one) => one === by)]
    const question = await openQuestion(desk, asked, grain)
    const brands = chooseBrands(question, asked.brands)
    const found = await narrow(question, asked)
    const conditions = found.map((one) => sql` and r.${sql.raw(one.column)} = ${one.id}`)
    const column = group && columnOf(desk.reports, group)
    const needs = ['date' as const, ...found.map((one) => one.column), column].filter((one) => one !== undefined)
    const where = sql.join(conditions, sql``)
    const of = { report: reportWith(desk.reports, needs), where, brands: brands.map(({ id }) => id), column }
    // All four of one brand as a whole are so few that no part of them is read.
    const isWhole = asked.metric === undefined && by === 'none' && found.length === 0 && brands.length === 1
    const read = (one: Metric) => {
      const write = (context: Context) => (grain ? overTime : grouped)(context, { ...of, metric: one })
      return question.page(write, { columns: sql<Measured>`*, ${one} as metric`, ...(isWhole && { offset: 0 }) })
    }
    const parts = []
    for (const one of isWhole ? METRICS : [metric]) parts.push(await read(one))
    const rows = parts.flatMap((part) => part.rows.map(judged))
    const only = found.map((one) => `, only ${one.by} ${quoted(one.name, TEXT_LENGTH)}`)
    const title = [by === 'none' ? '' : ` by ${by}`, ...only].join('')
    const period = question.whole(grain)
    const subject = found.find((one) => one.by === 'topic' || one.by === 'prompt')
    return {
      ...(await question.about(cautions(rows, by), reportName(desk.reports, of.report), period)),
      sentences: [
        title !== '' && `${kindOf(metric).title}${title}.`,
        parts[0]!.missing ?? (rows.length === 0 && none(by)),
      ],
      ...{ rows, ...(!isWhole && { total: parts[0]!.total }) },
      narrower: 'narrow it by brand, topic, channel or period',
      line(row: Measured) {
        const name = row.name ?? (group && `(no ${group})`)
        const of = name === undefined ? '' : `${grain ? name : quoted(name, TEXT_LENGTH)}, `
        const state = `${grain && !row.is_complete ? '; incomplete' : ''}${grain && row.is_provisional !== false ? '; may still change' : ''}`
        const number = `${kindOf(row.metric).title.toLowerCase()} ${numberOf(row.metric, row)}`
        return `${of}${quoted(row.brand)}: ${number}${state}.${changeOf(row.metric, row)}`
      },
      link: question.link('', subject?.by as 'topic' | 'prompt' | undefined, subject?.id, period),
    }
  },
})

function cautions(rows: readonly { verdict: string }[], by: string) {
  const compared = rows.filter(({ verdict }) => ['up', 'down', 'no_clear_change'].includes(verdict)).length
  const isLong = by === 'week' || by === 'month'
  return [
    (isLong || by === 'day') &&
      `The ${by}s are not judged against each other: find_changes compares the whole period with the one before.`,
    isLong && `Only ${by}s that begin in the period are listed, as a whole.`,
    // Of so many comparisons, one is likely to be called clear by chance.
    compared >= 6 && `Of ${compared} comparisons, about one in 20 is called clear by chance; see find_changes.`,
    by === 'tag' && 'A prompt can have several tags: rows overlap and must not be added up.',
  ]
}

async function narrow({ desk, context }: Question, asked: Partial<Record<Group, string | undefined>>) {
  const found: (Named & { by: Group; column: Dimension })[] = []
  for (const by of GROUPS) {
    const [name, column] = [asked[by], columnOf(desk.reports, by)]
    if (name === undefined) continue
    // Countries are those of prompts. Channels that the service does not list are only in reports.
    const { table, name: words } = NAMES[column] ?? { table: 'prompts', name: column }
    const id = sql.raw(column)
    const all = sql<Named>`select distinct ${id} as id, coalesce(${sql.raw(words)}, ${id}) as name from ${dataTable(table)}
where project_id = ${context.project} and ${id} is not null order by 2, 1 limit 5000`
    const known = await desk.run(by === 'channel' ? channelsOf(desk.reports, context.project) : all)
    found.push({ by, column, ...find(by, name, known) })
  }
  return found
}

function chooseBrands({ brands, brand }: Question, asked: readonly string[]) {
  const of = (isOwn: boolean) => brands.filter((one) => one.isOwn === isOwn)
  if (asked.includes('own')) brand()
  const words = new Map<string, readonly Named[]>(Object.entries({ own: of(true), rivals: of(false), all: brands }))
  return [...new Set(asked.flatMap((name) => words.get(name) ?? [find('brand', name, brands)]))]
}

/** A change that is not clear is not given, only the interval in which it lies. */
function judged(row: Measured) {
  const verdict = row.verdict ?? ((row.previous_value ?? null) === null ? 'not_compared' : 'no_interval')
  return { ...row, verdict, change: verdict === 'up' || verdict === 'down' ? row.change : null }
}

export const compareBrands = defineTool({
  name: 'compare_brands',
  description: 'The own brand against its rivals in the same answers, or by topic or channel: who is clearly ahead.',
  input: {
    brand: aName('An own brand, by name or id; by default the first.').optional(),
    rival: aName('By default all rivals, and by topic or channel the most visible one.').optional(),
    by: z.enum(['none', 'topic', 'channel']).default('none'),
    ...PERIOD,
  },
  columns: {
    texts: 'name rival_brand rival_brand_id lead_verdict',
    numbers:
      'own_visibility own_visibility_low own_visibility_high own_answers rival_visibility rival_visibility_low ' +
      'rival_visibility_high answers lead own_share_of_both',
  },
  about:
    'Shares from 0 to 1 with 95 % intervals. name is the topic or channel; answers is the sample of the rival. ' +
    'lead is given only if lead_verdict is ahead or behind.',
  async answer(desk, { by, ...asked }) {
    const question = await openQuestion(desk, asked)
    const { filters, brands, chooseRival, read } = question
    const own = question.brand(asked.brand, true)
    const rivals = brands.filter(({ isOwn }) => !isOwn)
    filters.rival = asked.rival && find('rival', asked.rival, rivals).id
    const column = by === 'none' ? undefined : columnOf(desk.reports, by)
    const all = await read<RivalRow>(STATEMENTS['head-to-head'])
    const rival = chooseRival(all.rows)
    if (column !== undefined) filters.rival = rival?.id
    const { rows, missing } = column === undefined ? all : await read((context) => headToHeadBy(context, column))
    const leads = rows.filter((row) => filters.rival === undefined || row.rival_brand_id === filters.rival)
    const against = column === undefined ? 'its rivals' : `${quoted(rival?.name ?? '')} by ${by}`
    const stream = column && reportName(desk.reports, ['date', column])
    return {
      ...(await question.about(['A lead is clear only if the two 95 % intervals do not overlap.'], stream)),
      sentences: [
        missing ?? `${quoted(own.name)} against ${against}, in the same answers.`,
        leads.length === 0 && 'There are no answers in this period.',
      ],
      rows: leads.map((row) => ({ ...row, lead: ['ahead', 'behind'].includes(row.lead_verdict) ? row.lead : null })),
      line(row: RivalRow) {
        const share = (of: 'own' | 'rival') => {
          const [low, high] = [row[`${of}_visibility_low`], row[`${of}_visibility_high`]]
          return `${percent(row[`${of}_visibility`])}${low === null ? '' : ` (${interval(low, high)})`}`
        }
        const of = column === undefined ? '' : `${quoted(row.name ?? `(no ${by})`)}: `
        const both =
          row.own_share_of_both === null ? '' : `, with ${percent(row.own_share_of_both)} of the mentions of both`
        const mine = `${quoted(own.name)} ${share('own')} of ${whole(row.own_answers)} answers`
        const theirs = `${quoted(row.rival_brand)} ${share('rival')} of ${whole(row.answers)}`
        return `${of}${mine}, ${theirs}. ${verdictFor(row.lead_verdict).words}${both}.`
      },
      ...{ narrower: 'name one rival', link: question.link('head-to-head') },
    }
  },
})
