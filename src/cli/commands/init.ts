import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { UsageError } from '../../core/errors.ts'
import type { Session } from '../session.ts'

const FILE = 'config/sync.yaml'
const TEMPLATE = new URL('../../../config/sync.yaml', import.meta.url)
const SCHEMA = new URL('../../../config/sync.schema.json', import.meta.url)

/** `init`: writes a commented configuration, and tells what to set. */
export async function init(session: Session, { force }: { force?: boolean }): Promise<number> {
  if (existsSync(FILE) && !force) throw new UsageError(`${FILE} exists; --force overwrites it`)
  mkdirSync(dirname(FILE), { recursive: true })
  writeFileSync(FILE, readFileSync(TEMPLATE))
  writeFileSync(`${dirname(FILE)}/sync.schema.json`, readFileSync(SCHEMA))
  const text = `Wrote ${FILE}, where every setting is explained. Now set

  export VISIBILITY_API_URL=https://…/v1      the address of the service
  export VISIBILITY_API_KEY=…                 its key
  export VISIBILITY_PROJECTS=or_…,or_…        the projects (leave out with a project key)
  export DATABASE_URL=postgres://…            the warehouse, Postgres 15 or later

and then: npx visibility-sync check`
  session.print({ file: FILE }, text)
  return 0
}
