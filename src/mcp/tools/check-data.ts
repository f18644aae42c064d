import * as z from 'zod'
import { quote } from '../../core/identifier.ts'
import { count } from '../../core/text.ts'
import { text } from '../../web/insights/sql.ts'
import { href } from '../../web/pages/layout.ts'
import { inert, quoted, TEXT_LENGTH } from '../phrases.ts'
import { type Desk, defineTool, findProject, ofList, ofProject } from '../question.ts'

const PROBLEMS = { missing_days: 'missing', held_days: 'held for review', unreconciled_days: 'unreconciled' } as const
type Freshness = Record<keyof typeof PROBLEMS, number | null> & {
  stream: string
  last_read_at: Date | null
  quarantined_rows: number
  is_stale: boolean
  is_fine: boolean
}

export const checkData = defineTool({
  name: 'check_data',
  title: 'Check the data',
  description:
    'Whether the numbers can be trusted now: how fresh each stream is, days that are missing, held or do not add up, rows in quarantine, and the last runs.',
  input: z.object({ ...ofProject, ...ofList }),
  columns: {
    texts: 'stream last_read_at last_day',
    numbers: 'missing_days held_days unreconciled_days quarantined_rows',
    flags: 'is_stale is_fine',
  },
  about: 'Streams, those that need attention first. Unreconciled days do not add up to the totals of the service.',
  async answer(desk, { project: asked, limit, offset }) {
    const project = await findProject(desk, asked)
    const streams = await desk.all<Freshness>(
      `select *, not is_stale and coalesce(missing_days, 0) + held_days + unreconciled_days + quarantined_rows = 0 as is_fine
from ${desk.of('freshness')} where project_id = ${text(project.id)}
order by is_fine, stream`,
    )
    const wrong = streams.filter(({ is_fine }) => !is_fine).length
    return {
      project,
      sentences: [
        wrong === 0
          ? `All ${count(streams.length, 'stream')} are fresh and whole.`
          : `${wrong} of ${count(streams.length, 'stream')} need attention.`,
        ...(await readLedger(desk, project.id)),
      ],
      rows: streams.slice(offset, offset + limit).map((row) => ({ row, line: lineOf(row) })),
      ...{ total: streams.length, offset, narrower: 'ask for fewer', notes: [] },
      link: desk.pages && `${desk.pages}${href('/', { project: project.id })}`,
    }
  },
})

const minuteOf = (time: Date) => `${time.toISOString().slice(0, 16).replace('T', ' ')} UTC`

function lineOf({ stream, last_read_at, is_stale, quarantined_rows, ...days }: Freshness): string {
  const problems = [
    ...(is_stale ? ['stale'] : []),
    ...Object.entries(PROBLEMS).flatMap(([name, words]) => {
      const number = days[name as keyof typeof PROBLEMS] ?? 0
      return number === 0 ? [] : [`${count(number, 'day')} ${words}`]
    }),
    ...(quarantined_rows === 0 ? [] : [`${count(quarantined_rows, 'row')} in quarantine`]),
  ]
  return `${inert(stream)}: ${problems.join(', ') || 'fine'}; ${last_read_at === null ? 'never read' : `last read ${minuteOf(last_read_at)}`}.`
}

/** The last runs and the reasons of quarantine, from the ledger, which a restricted reader may not read. */
async function readLedger(desk: Desk, project: string): Promise<string[]> {
  const { opsSchema } = desk.warehouse
  const [found] = await desk.all<{ may: boolean }>(
    `select coalesce(has_schema_privilege(to_regnamespace(quote_ident(${text(opsSchema)})), 'usage'), false) as may`,
  )
  if (found?.may !== true) return ['The last runs and the reasons of quarantine are not visible to this role.']
  const runs = await desk.all<{ run_id: number; command: string; started_at: Date; outcome: string | null }>(
    `select run_id, command, started_at, outcome from ${quote(opsSchema, 'runs')}
where command not like 'create %' order by run_id desc limit 3`,
  )
  const rejects = await desk.all<{ stream: string; reason: string; rows: number }>(
    `select stream, reason, sum(occurrences)::integer as rows from ${quote(opsSchema, 'quarantine')}
where project_id = ${text(project)} and resolved_at is null group by 1, 2 order by 3 desc, 1, 2 limit 5`,
  )
  return [
    ...runs.map(
      (run) =>
        `Run ${run.run_id}, ${inert(run.command)}: ${run.outcome ?? 'still running'}, began ${minuteOf(run.started_at)}.`,
    ),
    ...rejects.map(
      ({ stream, reason, rows }) =>
        `Quarantine, ${inert(stream)}, ${count(rows, 'row')}: ${quoted(reason, TEXT_LENGTH)}.`,
    ),
  ]
}
