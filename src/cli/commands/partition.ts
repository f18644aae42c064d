import { openExisting } from '../../app/open-services.ts'
import { messageOf, UsageError } from '../../core/errors.ts'
import { count } from '../../core/text.ts'
import { lockRun, type RunLock } from '../../ledger/run-lock.ts'
import { closeRun } from '../../ledger/runs.ts'
import { migrate } from '../../warehouse/schema/migrate.ts'
import { beginMove, type MoveStep, moveMonths } from '../../warehouse/schema/move-to-months.ts'
import { readLayout } from '../../warehouse/schema/partitions.ts'
import type { Session } from '../session.ts'
import { renderTable } from '../table.ts'

/** `partition`: moves report tables without partitions into monthly partitions. May be stopped and started again at any time. */
export async function partition(session: Session): Promise<number> {
  const { config, log } = session
  if (config.warehouse.partition !== 'month') {
    throw new UsageError(
      'warehouse.partition: got "none"; set it to month first, so that new tables are made in months, too',
    )
  }
  const database = await openExisting(config, log)
  const { warehouse } = database
  let lock: RunLock | undefined
  let isClosed = false
  try {
    await migrate(warehouse, config)
    lock = await lockRun(
      warehouse,
      [{ projectId: '*', stream: 'partition' }],
      { command: 'partition', version: session.version, source: '' },
      { log, signal: session.signal, activity: () => 'tables are being moved into months' },
    )
    const signal = AbortSignal.any([session.signal, lock.lost])
    const steps: MoveStep[] = []
    const unfinished: string[] = []
    for (const report of config.reports) {
      const { layout } = await readLayout(warehouse, report.name)
      if (layout === 'months') continue
      await beginMove(warehouse, report)
      // Views are renewed before the first row leaves the old table.
      await migrate(warehouse, config)
      const done = await moveMonths(warehouse, report, signal, (step) => {
        steps.push(step)
        log.info({ ...step }, 'month moved')
      })
      if (!done) unfinished.push(report.name)
      if (signal.aborted) break
    }
    const rows = steps.reduce((sum, step) => sum + step.rows, 0)
    const moved = [...new Set(steps.map(({ table }) => table))].map((table) => {
      const own = steps.filter((step) => step.table === table)
      return { table, months: own.length, rows: own.reduce((sum, step) => sum + step.rows, 0) }
    })
    const complete = unfinished.length === 0 && !signal.aborted
    const outcome = complete ? 'complete' : 'interrupted'
    await closeRun(warehouse, lock.runId, { outcome, summary: [], error: null })
    isClosed = true
    session.print(
      { complete, moved, unfinished },
      [
        steps.length === 0
          ? 'Nothing was left to move.'
          : renderTable(
              [
                { title: 'table', value: (row: (typeof moved)[number]) => row.table },
                { title: 'months', align: 'right', value: (row) => row.months },
                { title: 'rows', align: 'right', value: (row) => row.rows },
              ],
              moved,
            ),
        ...(complete
          ? [`${count(rows, 'row')} moved; every report table is in months.`]
          : [
              `Not finished: ${unfinished.join(', ')}. Every row is where queries find it; run the command again to go on.`,
            ]),
      ].join('\n'),
    )
    return complete ? 0 : 1
  } catch (error) {
    const end = { outcome: 'failed' as const, summary: [], error: messageOf(error) }
    if (lock !== undefined && !isClosed) await closeRun(warehouse, lock.runId, end).catch(() => {})
    throw error
  } finally {
    await lock?.release()
    await database.close()
  }
}
