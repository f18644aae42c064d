import { resolve } from 'node:path'
import { dataFolder, openWarehouse } from '../../app/open-services.ts'
import { chooseDatabase, EMBEDDED } from '../../core/config/choose-source.ts'
import { UsageError } from '../../core/errors.ts'
import { untilStopped } from '../../core/waiting.ts'
import { passwordFile } from '../../warehouse/embedded/cluster.ts'
import { stopEmbedded } from '../../warehouse/embedded/server.ts'
import type { Session } from '../session.ts'

export async function database(session: Session, _options: object, action?: string): Promise<number> {
  const { config, log } = session
  if (chooseDatabase(config) !== EMBEDDED)
    throw new UsageError('DATABASE_URL is set, so there is no embedded Postgres: connect to that database directly')
  const folder = dataFolder(config)
  if (action === 'stop') {
    const stopped = await stopEmbedded(folder)
    session.print({ stopped }, stopped ? `The database in ${folder} is stopped.` : `No database runs in ${folder}.`)
    return 0
  }
  const open = await openWarehouse(config, log)
  const file = passwordFile(folder)
  session.print({ url: open.shown, password_file: resolve(file) }, [
    `The warehouse listens at ${open.shown}; the password is in ${file}`,
    `  PGPASSFILE=${file} psql ${open.shown} -c 'select * from ${config.warehouse.schema}.projects'`,
    'Ctrl-C stops it.',
  ])
  await untilStopped(session.signal)
  await open.close()
  return 0
}
