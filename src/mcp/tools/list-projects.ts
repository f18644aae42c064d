import * as z from 'zod'
import type { Day } from '../../core/day.ts'
import { count } from '../../core/text.ts'
import { isWhole, reportName, text } from '../../web/insights/sql.ts'
import { find, type Named } from '../names.ts'
import { inert, quoted, quotedList } from '../phrases.ts'
import { type Desk, defineTool, ofList, ofProject } from '../question.ts'

const LISTS = ['own_brands', 'rivals', 'channels', 'topics', 'tags'] as const
type ProjectRow = Named &
  Record<(typeof LISTS)[number], string[]> &
  Record<'complete_from' | 'complete_to', Day | null> & { is_stale: boolean | null }

export const listProjects = defineTool({
  name: 'list_projects',
  title: 'List projects',
  description:
    'Projects with their own brands, rivals, channels, topics and tags, and the days of which data is complete. Ask this first: other tools take these names.',
  input: z.object({ ...ofProject, ...ofList }),
  columns: {
    texts: 'id name complete_from complete_to',
    numbers: 'missing_days',
    flags: 'is_stale',
    lists: LISTS.join(' '),
  },
  about: 'Projects. All days from complete_from to complete_to are complete.',
  async answer(desk, { project, limit, offset }) {
    const all = await desk.all<ProjectRow>(statement(desk))
    const chosen = project === undefined ? all : [find('project', project, all)]
    return {
      sentences: [
        `There ${all.length === 1 ? 'is' : 'are'} ${count(all.length, 'project')}. Today is ${desk.today}, UTC.`,
      ],
      rows: chosen.slice(offset, offset + limit).map((row) => ({ row, line: lineOf(row) })),
      ...{
        total: chosen.length,
        offset,
        narrower: 'name one project',
        notes: [],
        link: desk.pages && `${desk.pages}/insights`,
      },
    }
  },
})

function lineOf(row: ProjectRow): string {
  const days =
    row.complete_to === null ? 'no day is complete' : `complete from ${row.complete_from} to ${row.complete_to}`
  const lists = LISTS.map((name) => `${name.replace('_', ' ')}: ${quotedList(row[name])}`)
  return `${quoted(row.name)} (${inert(row.id)}): ${days}${row.is_stale === false ? '' : ', and stale'}; ${lists.join('; ')}.`
}

function statement({ of, reports }: Desk): string {
  const list = (table: string, name: string, where = '') =>
    `array(select ${name} from ${of(table)} t where t.project_id = p.project_id and ${name} is not null${where} group by 1 order by 1)`
  const brands = (isOwn: string) => list('brands', 'coalesce(t.name, t.brand_id)', ` and ${isOwn} t.is_own`)
  return `select p.project_id as id, coalesce(p.name, p.project_id) as name, ${brands('')} as own_brands, ${brands('not')} as rivals,
  case when exists (select from ${of('model_channels')} c where c.project_id = p.project_id)
    then ${list('model_channels', 't.name')} else ${list('models', 't.model_id')} end as channels,
  ${list('topics', 't.name')} as topics, ${list('tags', 't.name')} as tags,
  d.complete_from, d.complete_to, f.missing_days, f.is_stale
from ${of('projects')} p
left join ${of('freshness')} f on f.project_id = p.project_id and f.stream = ${text(reportName(reports))}
left join lateral (
  -- The newest days without a gap.
  select min(i.date) as complete_from, max(i.date) as complete_to
  from (
    select s.date, s.date - (row_number() over (order by s.date))::integer as island
    from ${of('data_status')} s where s.project_id = p.project_id and s.stream = f.stream and ${isWhole('s')}
  ) i
  group by i.island order by 2 desc limit 1
) d on true
order by name, id`
}
