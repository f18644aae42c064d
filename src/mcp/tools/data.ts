import type { Day } from '../../core/day.ts'
import { count } from '../../core/text.ts'
import { text } from '../../web/insights/sql.ts'
import { href } from '../../web/pages/layout.ts'
import { find, type Named } from '../names.ts'
import { inert, MOST_IN_LIST, quoted, quotedList, TEXT_LENGTH } from '../phrases.ts'
import { type Desk, defineTool, findProject } from '../question.ts'

/* What there is, and whether it can be trusted. */

const LISTS = ['own_brands', 'rivals', 'channels', 'topics', 'tags'] as const
type Days = Record<'complete_from' | 'complete_to', Day | null>
type ProjectRow = Named & Days & Record<(typeof LISTS)[number], string[]> & { is_stale: boolean | null }

export const listProjects = defineTool({
  name: 'list_projects',
  description:
    'Projects with their own brands, rivals, channels, topics and tags, and the days of which data is complete. ' +
    'Ask this first: other tools take these names.',
  input: {},
  columns: {
    ...{
      texts: 'id name complete_from complete_to',
      numbers: 'missing_days',
      flags: 'is_stale',
      lists: LISTS.join(' '),
    },
  },
  about: 'Projects. All days from complete_from to complete_to are complete.',
  async answer(desk, { project, limit, offset }) {
    const names = (await hasChannels(desk)) ? ['model_channels', 'c.name'] : ['models', 'c.model_id']
    const all = await desk.rows<ProjectRow>('projects', {}, { channels: names[0]!, channel_name: names[1]! })
    const chosen = project === undefined ? all : [find('project', project, all)]
    const lineOf = (row: ProjectRow) => {
      const days =
        row.complete_to === null ? 'no day is complete' : `complete from ${row.complete_from} to ${row.complete_to}`
      const lists = LISTS.map((name) => `${name.replace('_', ' ')}: ${quotedList(row[name])}`).join('; ')
      return `${quoted(row.name)} (${inert(row.id)}): ${days}${row.is_stale === false ? '' : ', and stale'}; ${lists}.`
    }
    const isCut = chosen.some((row) => LISTS.some((name) => row[name].length > MOST_IN_LIST))
    return {
      notes: [
        isCut && `Lists show ${MOST_IN_LIST} names; get_visibility lists all brands, and all by topic, channel or tag.`,
      ],
      sentences: [`${count(all.length, 'project')}. Today is ${desk.today}, UTC.`],
      rows: chosen.slice(offset, offset + limit).map((row) => ({ row, line: lineOf(row) })),
      ...{ total: chosen.length, narrower: 'name one project', link: desk.pages && `${desk.pages}/insights` },
    }
  },
})

async function hasChannels({ readable, run, warehouse }: Desk): Promise<boolean> {
  if (!readable.has('model_channels')) return false
  return (await run(`select from ${warehouse.schema}.model_channels where name is not null limit 1`)).length > 0
}

const PROBLEMS = { missing_days: 'missing', held_days: 'held for review', unreconciled_days: 'unreconciled' } as const
type Freshness = Record<keyof typeof PROBLEMS, number | null> &
  Record<'is_stale' | 'is_fine', boolean> & { stream: string; last_read_at: Date | null; quarantined_rows: number }

export const checkData = defineTool({
  name: 'check_data',
  description:
    'Whether the numbers can be trusted now: how fresh each stream is, days that are missing, held or do not add up, ' +
    'rows in quarantine, and the last runs.',
  input: {},
  columns: {
    texts: 'stream last_read_at last_day',
    numbers: 'missing_days held_days unreconciled_days quarantined_rows',
    flags: 'is_stale is_fine',
  },
  about: 'Streams, those that need attention first. Unreconciled days do not add up to the totals of the service.',
  async answer(desk, { project: asked, limit, offset }) {
    const project = await findProject(desk, asked)
    const streams = await desk.rows<Freshness>('streams', { project: project.id })
    const wrong = streams.filter(({ is_fine }) => !is_fine).length
    const all = count(streams.length, 'stream')
    return {
      project,
      sentences: [
        wrong === 0 ? `All ${all} are fresh and whole.` : `${wrong} of ${all} need attention.`,
        ...(await readLedger(desk, project.id)),
      ],
      rows: streams.slice(offset, offset + limit).map((row) => ({ row, line: stateOf(row) })),
      ...{ total: streams.length, link: desk.pages && `${desk.pages}${href('/', { project: project.id })}` },
    }
  },
})

const minuteOf = (time: Date) => `${time.toISOString().slice(0, 16).replace('T', ' ')} UTC`

function stateOf({ stream, last_read_at, is_stale, quarantined_rows, ...days }: Freshness): string {
  const problems = Object.entries(PROBLEMS).map(([name, words]) => {
    const number = days[name as keyof typeof PROBLEMS] ?? 0
    return number > 0 && `${count(number, 'day')} ${words}`
  })
  const rejects = quarantined_rows > 0 && `${count(quarantined_rows, 'row')} in quarantine`
  const all = [is_stale && 'stale', ...problems, rejects].filter(Boolean).join(', ')
  return `${inert(stream)}: ${all || 'fine'}; ${last_read_at === null ? 'never read' : `last read ${minuteOf(last_read_at)}`}.`
}

/** The last runs and the reasons of quarantine, from the ledger, which a restricted reader may not read. */
async function readLedger(desk: Desk, project: string): Promise<string[]> {
  const schema = `to_regnamespace(quote_ident(${text(desk.warehouse.opsSchema)}))`
  const [found] = await desk.run<{ may: boolean | null }>(`select has_schema_privilege(${schema}, 'usage') as may`)
  if (found?.may !== true) return ['The last runs and the reasons of quarantine are not visible to this role.']
  const entries = await desk.rows<{ what: string; state: string; at: Date; rows: number | null }>('ledger', { project })
  return entries.map(({ what, state, at, rows }) =>
    rows === null
      ? `${inert(what)}: ${state}, began ${minuteOf(at)}.`
      : `${inert(what)}, ${count(rows, 'row')}: ${quoted(state, TEXT_LENGTH)}.`,
  )
}
