import * as z from 'zod'
import type { Day } from '../../core/day.ts'
import { isWhole, reportName, text } from '../../web/insights/sql.ts'
import { named, outputOf } from '../answer.ts'
import { find, type Named, shown } from '../names.ts'
import { inert, quoted } from '../phrases.ts'
import { defineTool, ofList, ofProject } from '../question.ts'

const LISTED = 12

interface ProjectRow extends Named {
  brands: (Named & { own: boolean })[]
  channels: string[]
  topics: string[]
  tags: string[]
  complete_from: Day | null
  complete_to: Day | null
  missing_days: number | null
  is_stale: boolean | null
}

const names = z.object({ names: z.array(z.string()), total: z.number() })

export const listProjects = defineTool({
  name: 'list_projects',
  title: 'List projects',
  description:
    'Projects with their own brands, rivals, channels, topics and tags, and the days of which data is complete. Ask this first: other tools take these names or ids.',
  input: z.object({ ...ofProject, ...ofList }),
  output: outputOf(
    z.object({
      ...named.shape,
      own_brands: z.array(named),
      rivals: z.array(named),
      total_rivals: z.number(),
      channels: names,
      topics: names,
      tags: names,
      complete_from: z.string().nullable().describe('All days from here to complete_to are complete.'),
      complete_to: z.string().nullable(),
      missing_days: z.number().nullable(),
      is_stale: z.boolean(),
    }),
    {},
  ),
  async answer(desk, { project, limit, offset }) {
    const { of } = desk
    const list = (table: string, name: string) =>
      `array(select distinct ${name} from ${of(table)} t where t.project_id = p.project_id and ${name} is not null order by 1)`
    const all = await desk.all<ProjectRow>(`select p.project_id as id, coalesce(p.name, p.project_id) as name,
  (select coalesce(jsonb_agg(jsonb_build_object('id', brand_id, 'name', coalesce(name, brand_id), 'own', is_own) order by name, brand_id), '[]')
   from ${of('brands')} b where b.project_id = p.project_id) as brands,
  case when exists (select from ${of('model_channels')} c where c.project_id = p.project_id)
    then ${list('model_channels', 't.name')} else ${list('models', 't.model_id')} end as channels,
  ${list('topics', 't.name')} as topics, ${list('tags', 't.name')} as tags,
  d.complete_from, d.complete_to, f.missing_days, f.is_stale
from ${of('projects')} p
left join ${of('freshness')} f on f.project_id = p.project_id and f.stream = ${text(reportName(desk.reports))}
left join lateral (
  -- The newest days without a gap.
  select min(i.date) as complete_from, max(i.date) as complete_to
  from (
    select s.date, s.date - (row_number() over (order by s.date))::integer as island
    from ${of('data_status')} s where s.project_id = p.project_id and s.stream = f.stream and ${isWhole('s')}
  ) i
  group by i.island order by 2 desc limit 1
) d on true
order by name, id`)
    const chosen = project === undefined ? all : [find('project', project, all)]
    const rows = chosen.slice(offset, offset + limit).map((row) => {
      const some = (texts: string[]) => ({
        names: texts.slice(0, LISTED).map((one) => inert(one)),
        total: texts.length,
      })
      const own = row.brands.filter(({ own: isOwn }) => isOwn)
      const rivals = row.brands.filter(({ own: isOwn }) => !isOwn)
      const said = (texts: string[]) =>
        `${
          texts
            .slice(0, LISTED)
            .map((one) => quoted(one))
            .join(', ') || 'none'
        }${texts.length > LISTED ? ` and ${texts.length - LISTED} more` : ''}`
      const complete =
        row.complete_to === null
          ? 'no complete day'
          : `complete from ${row.complete_from} to ${row.complete_to}${row.is_stale === false ? '' : '; not read lately (stale)'}`
      return {
        fact: {
          ...shown(row),
          own_brands: own.slice(0, LISTED).map((brand) => shown(brand)),
          rivals: rivals.slice(0, LISTED).map((brand) => shown(brand)),
          total_rivals: rivals.length,
          channels: some(row.channels),
          topics: some(row.topics),
          tags: some(row.tags),
          complete_from: row.complete_from,
          complete_to: row.complete_to,
          missing_days: row.missing_days,
          is_stale: row.is_stale ?? true,
        },
        line: `${quoted(row.name)} (${inert(row.id)}): ${complete}. Own: ${said(own.map(({ name }) => name))}. Rivals: ${said(rivals.map(({ name }) => name))}. Channels: ${said(row.channels)}. Topics: ${said(row.topics)}.`,
      }
    })
    return {
      sentences: [`${all.length} ${all.length === 1 ? 'project' : 'projects'}. Today is ${desk.today} (UTC).`],
      rows,
      total: chosen.length,
      offset,
      narrower: 'with the name of one project',
      notes: [],
      link: desk.pages && `${desk.pages}/insights`,
    }
  },
})
