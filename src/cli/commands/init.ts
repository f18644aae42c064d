import { appendFileSync, chmodSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { envFile } from '../../core/config/env-file.ts'
import { given } from '../../core/config/variables.ts'
import { messageOf, UsageError } from '../../core/errors.ts'
import { packageFile } from '../../core/package-files.ts'
import type { Session } from '../session.ts'
import type { Answers, Named } from './init-questions.ts'

const TEMPLATE = packageFile('config/sync.example.yaml')
const SCHEMA = packageFile('config/sync.schema.json')

const VARIABLES = [
  ['VISIBILITY_API_URL', 'https://…/v1', 'the address of the service'],
  ['VISIBILITY_API_KEY', '…', 'its key'],
  ['VISIBILITY_PROJECTS', 'or_…,or_…', 'the projects (not with a project key)'],
  ['DATABASE_URL', 'postgres://…', 'the warehouse, Postgres 15 or later'],
] as const

export async function init(
  session: Session,
  { force, full, yes }: { force?: boolean; full?: boolean; yes?: boolean },
): Promise<number> {
  const file = session.configFile
  if (existsSync(file) && !force) throw new UsageError(`${file} exists; --force overwrites it`)
  if (session.terminal !== undefined && !full && !yes) return writeAnswers(session, file)
  const schema = writeConfiguration(file, readFileSync(TEMPLATE, 'utf8'))
  const unset = VARIABLES.filter(([name]) => given(name, session.env) === undefined)
  session.print({ file, schema, unset: unset.map(([name]) => name) }, [
    `Wrote ${file}, where every setting is explained, and ${schema} for editors.`,
    unset.length < VARIABLES.length && 'Variables that are set are not stored: set them wherever it runs, or in .env.',
    unset.length > 0 && 'Now set\n',
    ...unset.map(([name, example, meaning]) => `  ${`export ${name}=${example}`.padEnd(40)} ${meaning}`),
    unset.length === 0 ? `Next: ${session.command('check')}` : `\nand then: ${session.command('check')}`,
  ])
  return 0
}

async function writeAnswers(session: Session, file: string): Promise<number> {
  const { askQuestions } = await import('./init-questions.ts')
  const answers = await askQuestions(session)
  const schema = writeConfiguration(file, settingsOf(answers))
  const { VISIBILITY_API_URL: _, ...secrets } = answers.variables
  const variables = envFile(file)
  if (Object.keys(secrets).length > 0) writeSecrets(variables, secrets)
  session.print({ file, schema, variables }, [
    `Wrote ${file}, and the secrets to ${variables}, which only you can read.`,
    `Next: ${session.command('sync')}`,
    `Then: ${session.command('serve')}`,
    'The first chart is at http://127.0.0.1:8080/insights',
  ])
  return 0
}

/** Gives the name of the schema, which editors find beside the file by the first line of that. */
function writeConfiguration(file: string, text: string): string {
  const schema = join(dirname(file), 'sync.schema.json')
  const isNew = !existsSync(file)
  try {
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, text)
    writeFileSync(schema, readFileSync(SCHEMA))
  } catch (cause) {
    // An empty file would be a valid configuration.
    if (isNew && existsSync(file)) rmSync(file)
    throw new UsageError(`${file}: cannot be written (${messageOf(cause)})`)
  }
  return schema
}

/** What differs from the defaults. Labels are safe in a comment: they have one line. */
function settingsOf({ variables, projects, brands, schedule }: Answers): string {
  const list = <N extends Named>(items: readonly N[], line: (item: N) => string) =>
    items.map((item) => `${line(item)}${item.label === item.id ? '' : ` # ${item.label}`}\n`).join('')
  const { VISIBILITY_API_URL: address } = variables
  const sections = [
    '# yaml-language-server: $schema=./sync.schema.json\n' +
      '# What differs from the defaults. "npx visibility-sync help configuration" lists every setting. Secrets are in .env.\n',
    address && `# The service that is read.\nsource: { base_url: ${JSON.stringify(address)} }\n`,
    projects.length > 0 &&
      `# The projects that are synced.\nprojects:\n${list(projects, ({ id }) => `  - id: ${JSON.stringify(id)}`)}`,
    brands.length > 0 &&
      '# Your own brands: charts compare them with the others.\nlabels:\n  brands:\n' +
        list(brands, ({ id, own }) => `    ${JSON.stringify(id)}: { own: ${own} }`),
    schedule &&
      '# When "serve" syncs: minute, hour, day of the month, month, day of the week.\n' +
        `schedule: ${JSON.stringify(schedule)}\n`,
  ]
  return sections.filter(Boolean).join('\n')
}

/** What the file has stays. */
function writeSecrets(file: string, secrets: Record<string, string>): void {
  const quoted = (value: string) => {
    const quote = ["'", '"', '`'].find((mark) => !value.includes(mark)) ?? ''
    return quote + value + quote
  }
  const ignored = join(dirname(file), '.gitignore')
  try {
    const before = existsSync(file) ? readFileSync(file, 'utf8') : ''
    appendFileSync(file, before === '' || before.endsWith('\n') ? '' : '\n', { mode: 0o600 })
    chmodSync(file, 0o600)
    appendFileSync(
      file,
      Object.entries(secrets)
        .map(([name, value]) => `${name}=${quoted(value)}\n`)
        .join(''),
    )
    const lines = existsSync(ignored) ? readFileSync(ignored, 'utf8') : ''
    if (!lines.split('\n').includes('.env'))
      appendFileSync(ignored, `${lines === '' || lines.endsWith('\n') ? '' : '\n'}.env\n`)
  } catch (cause) {
    throw new UsageError(`${file}: cannot be written (${messageOf(cause)})`)
  }
}
