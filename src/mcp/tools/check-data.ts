import * as z from 'zod'
import type { Day } from '../../core/day.ts'
import { quote } from '../../core/identifier.ts'
import { count } from '../../core/text.ts'
import { text } from '../../web/insights/sql.ts'
import { href } from '../../web/pages/layout.ts'
import { outputOf } from '../answer.ts'
import { inert, quoted, TEXT_LENGTH } from '../phrases.ts'
import { type Desk, defineTool, findProject, ofList, ofProject } from '../question.ts'

const RUNS = 5
const REASONS = 5

interface Freshness {
  stream: string
  last_read_at: Date | null
  last_day: Day | null
  missing_days: number | null
  held_days: number
  quarantined_rows: number
  unreconciled_days: number
  is_stale: boolean
}

const run = z.object({
  run_id: z.number(),
  command: z.string(),
  started_at: z.string(),
  outcome: z.string().nullable().describe('Null while it runs.'),
})
const reason = z.object({ stream: z.string(), reason: z.string(), rows: z.number() })

export const checkData = defineTool({
  name: 'check_data',
  title: 'Check the data',
  description:
    'Whether the numbers can be trusted now: how fresh each stream is, days that are missing, held or do not add up, rows in quarantine, and the last runs.',
  input: z.object({ ...ofProject, ...ofList, limit: ofList.limit.default(30) }),
  output: outputOf(
    z.object({
      stream: z.string(),
      last_read_at: z.string().nullable(),
      last_day: z.string().nullable(),
      missing_days: z.number().nullable(),
      held_days: z.number(),
      quarantined_rows: z.number(),
      unreconciled_days: z.number(),
      is_stale: z.boolean(),
      is_fine: z.boolean(),
    }),
    {
      runs: z.array(run).nullable().describe('The last runs of all projects; null if the role may not read them.'),
      quarantine: z.array(reason).nullable().describe('Open reasons; null if the role may not read them.'),
    },
  ),
  async answer(desk, { project: asked, limit, offset }) {
    const project = await findProject(desk, asked)
    const isFine = `missing_days is not distinct from 0 or missing_days is null`
    const streams = await desk.all<Freshness & { is_fine: boolean; total: number }>(
      `select *, not is_stale and (${isFine}) and held_days = 0 and quarantined_rows = 0 and unreconciled_days = 0 as is_fine,
  count(*) over () as total
from (
  select stream, last_read_at, last_day, missing_days, held_days, quarantined_rows, unreconciled_days, is_stale
  from ${desk.of('freshness')} where project_id = ${text(project.id)}
) f
order by is_fine, stream`,
    )
    const ledger = await readLedger(desk, project.id)
    const wrong = streams.filter(({ is_fine }) => !is_fine)
    const rows = streams.slice(offset, offset + limit).map(({ total: _total, last_read_at, ...row }) => {
      const fact = { ...row, last_read_at: last_read_at?.toISOString() ?? null }
      const days = (number: number | null, words: string) => (number ? [`${count(number, 'day')} ${words}`] : [])
      const problems = [
        ...(row.is_stale ? ['stale'] : []),
        ...days(row.missing_days, 'missing'),
        ...days(row.held_days, 'held'),
        ...days(row.unreconciled_days, 'unreconciled'),
        ...(row.quarantined_rows > 0 ? [`${count(row.quarantined_rows, 'row')} in quarantine`] : []),
      ]
      const last = last_read_at === null ? 'never read' : `last read ${fact.last_read_at!.slice(0, 16)}Z`
      return { fact, line: `${inert(row.stream)}: ${problems.join(', ') || 'fine'} (${last})` }
    })
    const lastRun = ledger?.runs[0]
    return {
      project,
      sentences: [
        wrong.length === 0
          ? `All ${streams.length} streams of ${quoted(project.name)} are fresh and whole.`
          : `${wrong.length} of ${streams.length} streams of ${quoted(project.name)} need attention.`,
        ...(lastRun === undefined
          ? []
          : [
              `Last run: ${inert(lastRun.command)}, ${lastRun.outcome ?? 'still running'}, began ${lastRun.started_at.slice(0, 16)}Z.`,
            ]),
        ...(ledger?.quarantine ?? []).map(
          (one) => `Quarantine of ${inert(one.stream)}, ${count(one.rows, 'row')}: ${quoted(one.reason, TEXT_LENGTH)}`,
        ),
      ],
      rows,
      total: streams.length,
      offset,
      facts: { runs: ledger?.runs ?? null, quarantine: ledger?.quarantine ?? null },
      notes: ledger === undefined ? ['Runs and reasons of quarantine are not visible to this role.'] : [],
      link: desk.pages && `${desk.pages}${href('/', { project: project.id })}`,
    }
  },
})

/** From the ledger, which a restricted reader may not read. */
async function readLedger(desk: Desk, project: string) {
  const { opsSchema } = desk.warehouse
  const [may] = await desk.all<{ may: boolean }>(
    `select coalesce(has_schema_privilege(to_regnamespace(${text(`"${opsSchema}"`)}), 'usage'), false) as may`,
  )
  if (may?.may !== true) return undefined
  const runs = await desk.all<{ run_id: number; command: string; started_at: Date; outcome: string | null }>(
    `select run_id, command, started_at, outcome from ${quote(opsSchema, 'runs')}
where command not like 'create %' order by run_id desc limit ${RUNS}`,
  )
  const quarantine = await desk.all<{ stream: string; reason: string; rows: number }>(
    `select stream, reason, sum(occurrences)::integer as rows from ${quote(opsSchema, 'quarantine')}
where project_id = ${text(project)} and resolved_at is null group by 1, 2 order by 3 desc, 1, 2 limit ${REASONS}`,
  )
  return {
    runs: runs.map(({ started_at, ...one }) => ({ ...one, started_at: started_at.toISOString() })),
    quarantine: quarantine.map((one) => ({ ...one, reason: inert(one.reason, TEXT_LENGTH) })),
  }
}
