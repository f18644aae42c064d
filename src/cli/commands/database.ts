import { resolve } from 'node:path'
import { dataFolder, openWarehouse } from '../../app/open-services.ts'
import { UsageError } from '../../core/errors.ts'
import { passwordFile } from '../../warehouse/embedded/password.ts'
import { type Session, untilStopped } from '../session.ts'

/** `database`: keeps the embedded Postgres running until it is asked to stop, for psql or a BI tool. */
export async function database(session: Session): Promise<number> {
  if (session.config.warehouse.url !== undefined) {
    throw new UsageError(
      'DATABASE_URL is set, so there is no embedded Postgres to run: connect to that database directly',
    )
  }
  const open = await openWarehouse(session.config, session.log)
  const file = passwordFile(dataFolder(session.config))
  session.print(
    { url: open.shown, password_file: resolve(file) },
    [
      `The warehouse listens at ${open.shown}; the password is in ${file}`,
      `  PGPASSFILE=${file} psql ${open.shown} -c 'select * from ${session.config.warehouse.schema}.brand_daily limit 5'`,
      'Ctrl-C stops it.',
    ].join('\n'),
  )
  await untilStopped(session)
  await open.close()
  return 0
}
