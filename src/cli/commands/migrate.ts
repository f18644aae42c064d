import { count } from '../../core/text.ts'
import { migrate as runMigrations } from '../../warehouse/migrate.ts'
import { openWarehouse } from '../open.ts'
import type { Session } from '../session.ts'

/** `migrate`: creates or upgrades the tables, without reading anything. */
export async function migrate(session: Session): Promise<number> {
  const database = await openWarehouse(session.config, session.log)
  try {
    const { applied, reportsMade } = await runMigrations(database.warehouse, session.config)
    const text =
      applied.length + reportsMade.length === 0
        ? `Nothing to do: ${database.shown} is up to date.`
        : [
            `${count(applied.length, 'migration')} applied to ${database.shown}${applied.length > 0 ? `: ${applied.join(', ')}` : ''}`,
            `${count(reportsMade.length, 'report table')} made${reportsMade.length > 0 ? `: ${reportsMade.join(', ')}` : ''}`,
          ].join('\n')
    session.print({ warehouse: database.shown, applied, reports_made: reportsMade }, text)
    return 0
  } finally {
    await database.close()
  }
}
