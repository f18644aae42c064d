import { withExisting } from '../../app/open-services.ts'
import { UsageError } from '../../core/errors.ts'
import { count } from '../../core/text.ts'
import { withRun } from '../../ledger/with-run.ts'
import type { Warehouse } from '../../warehouse/connect.ts'
import { withRetries } from '../../warehouse/retry.ts'
import { migrate } from '../../warehouse/schema/migrate.ts'
import { beginMove, moveMonths } from '../../warehouse/schema/move-to-months.ts'
import { readLayout } from '../../warehouse/schema/partitions.ts'
import type { Session } from '../session.ts'
import { renderTable } from '../table.ts'

interface Moved {
  table: string
  months: number
  rows: number
}

export async function partition(session: Session): Promise<number> {
  const { config, log, version, signal } = session
  if (config.warehouse.partition !== 'month')
    throw new UsageError(
      'warehouse.partition: got "none"; set it to month first, so that new tables are made in months, too',
    )
  return withExisting(session, async (warehouse) => {
    await withRetries(warehouse, signal, () => migrate(warehouse, config))
    const projectStreams = [{ projectId: '*', stream: 'partition' }]
    const start = { command: 'partition', version, source: '', projectStreams }
    const activity = () => 'tables are being moved into months'
    const { moved, unfinished } = await withRun(warehouse, start, { log, signal, activity }, async (run) => {
      const result = await moveTables(session, warehouse, run.signal)
      return { result, outcome: result.unfinished.length === 0 ? 'complete' : 'interrupted' }
    })
    const complete = unfinished.length === 0
    const rows = moved.reduce((sum, table) => sum + table.rows, 0)
    const table = renderTable({ rows: moved }, [
      { title: 'table', value: (row) => row.table },
      { title: 'months', value: (row) => row.months },
      { title: 'rows', value: (row) => row.rows },
    ])
    session.print({ complete, moved, unfinished }, [
      moved.length === 0 ? 'Nothing was left to move.' : table,
      complete
        ? `${count(rows, 'row')} moved; every report table is in months.`
        : `Not finished: ${unfinished.join(', ')}. Every row is where queries find it; run the command again to go on.`,
    ])
    return complete ? 0 : 1
  })
}

async function moveTables(
  { config, log }: Session,
  warehouse: Warehouse,
  signal: AbortSignal,
): Promise<{ moved: Moved[]; unfinished: string[] }> {
  const moved: Moved[] = []
  const unfinished: string[] = []
  for (const report of config.reports) {
    const { layout } = await readLayout(warehouse, report.name)
    if (layout === 'months') continue
    if (signal.aborted) {
      unfinished.push(report.name)
      continue
    }
    await beginMove(warehouse, report)
    // Views are renewed before the first row leaves the old table.
    await migrate(warehouse, config)
    const total = { table: report.name, months: 0, rows: 0 }
    const done = await moveMonths(warehouse, report, signal, (step) => {
      total.months++
      total.rows += step.rows
      log.info({ ...step }, 'month moved')
    })
    if (total.months > 0) moved.push(total)
    if (!done) unfinished.push(report.name)
  }
  return { moved, unfinished }
}
