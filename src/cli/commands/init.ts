import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { given } from '../../core/config/variables.ts'
import { messageOf, UsageError } from '../../core/errors.ts'
import { packageFile } from '../../core/package-files.ts'
import type { Session } from '../session.ts'

const TEMPLATE = packageFile('config/sync.example.yaml')
const SCHEMA = packageFile('config/sync.schema.json')

const VARIABLES = [
  ['VISIBILITY_API_URL', 'https://…/v1', 'the address of the service'],
  ['VISIBILITY_API_KEY', '…', 'its key'],
  ['VISIBILITY_PROJECTS', 'or_…,or_…', 'the projects (not with a project key)'],
  ['DATABASE_URL', 'postgres://…', 'the warehouse, Postgres 15 or later'],
] as const

/** `init`: writes a configuration in which every setting is explained, and says what to set. */
export async function init(session: Session, options: { force?: boolean }): Promise<number> {
  const file = session.configFile
  const schema = join(dirname(file), 'sync.schema.json')
  const isNew = !existsSync(file)
  if (!isNew && !options.force) throw new UsageError(`${file} exists; --force overwrites it`)
  try {
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, readFileSync(TEMPLATE))
    // Editors find it beside the file, by the first line of that.
    writeFileSync(schema, readFileSync(SCHEMA))
  } catch (cause) {
    // An empty file would be a valid configuration.
    if (isNew && existsSync(file)) rmSync(file)
    throw new UsageError(`${file}: cannot be written (${messageOf(cause)})`)
  }
  const unset = VARIABLES.filter(([name]) => given(name, session.env) === undefined)
  session.print({ file, schema, unset: unset.map(([name]) => name) }, [
    `Wrote ${file}, where every setting is explained, and ${schema} for editors.`,
    unset.length > 0 && 'Now set\n',
    ...unset.map(([name, example, meaning]) => `  ${`export ${name}=${example}`.padEnd(40)} ${meaning}`),
    unset.length === 0 ? `Next: ${session.command('check')}` : `\nand then: ${session.command('check')}`,
  ])
  return 0
}
