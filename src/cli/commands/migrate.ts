import { configuredProjects, openWarehouse, queueName, sourceAddress } from '../../app/open-services.ts'
import { count } from '../../core/text.ts'
import { moveSource } from '../../ledger/source.ts'
import { applyLabels, applyOwnBrands } from '../../warehouse/load/own-brands.ts'
import { migrate as runMigrations } from '../../warehouse/schema/migrate.ts'
import { recheckSummaries, refreshSummaries } from '../../warehouse/schema/summaries.ts'
import type { Session } from '../session.ts'

export async function migrate(session: Session, options: { moveSource?: boolean } = {}): Promise<number> {
  const database = await openWarehouse(session.config, session.log)
  try {
    const { applied, reportsMade, repaired, views } = await runMigrations(database.warehouse, session.config)
    const movedFrom = options.moveSource
      ? await moveSource(database.warehouse, sourceAddress(session.config))
      : undefined
    const ids = configuredProjects(session.config, session.clock).map(({ id }) => id)
    await applyLabels(database.warehouse, ids, session.config.labels)
    await applyOwnBrands(database.warehouse, ids, session.config.labels)
    await recheckSummaries(database.warehouse, session.config)
    await refreshSummaries(database.warehouse, session.config, session.signal)
    if (session.config.queue.mode === 'pg-boss') {
      const { openQueue } = await import('../../queue/boss.ts')
      const name = await queueName(session.config, session.streams, session.clock)
      await (await openQueue(database.warehouse, name, session.log)).close()
    }
    const text =
      applied.length + reportsMade.length + repaired.length + views.made.length === 0
        ? `Nothing to do: ${database.shown} is up to date.`
        : [
            `${count(applied.length, 'migration')} applied to ${database.shown}${applied.length > 0 ? `: ${applied.join(', ')}` : ''}`,
            `${count(reportsMade.length, 'report table')} made${reportsMade.length > 0 ? `: ${reportsMade.join(', ')}` : ''}`,
            `${count(views.made.length, 'view')} made or replaced${views.made.length > 0 ? `: ${views.made.join(', ')}` : ''}`,
          ].join('\n')
    const moved =
      movedFrom === undefined ? [] : [`The source moved from ${movedFrom} to ${sourceAddress(session.config)}`]
    const left = views.left.map(({ name, reason }) => `Left out: the view ${name}, which ${reason}`)
    const empty = views.empty.map(({ name, reason }) => `Empty: the view ${name}, which ${reason}`)
    session.print(
      {
        warehouse: database.shown,
        applied,
        reports_made: reportsMade,
        views_made: views.made,
        repaired,
        views_left_out: views.left,
        views_empty: views.empty,
        source_moved_from: movedFrom ?? null,
      },
      [text, ...repaired.map((note) => `Repaired: ${note}`), ...moved, ...left, ...empty].join('\n'),
    )
    return 0
  } finally {
    await database.close()
  }
}
