import { readFileSync } from 'node:fs'
import { type Document, parseDocument } from 'yaml'
import { messageOf, UsageError } from '../errors.ts'
import type { Redactor } from '../redactor.ts'
import { secretsIn, textsIn } from './secrets.ts'
import { interpolate } from './variables.ts'

interface ReadDocument {
  written: Record<string, unknown>
  values: Record<string, unknown>
  warnings: string[]
}

/** The configuration file. Its secrets are given to the redactor before anything can go wrong. */
export function readDocument(file: string, env: NodeJS.ProcessEnv, redactor: Redactor): ReadDocument {
  let text: string
  try {
    text = readFileSync(file, 'utf8')
  } catch (cause) {
    throw new UsageError(
      `${file}: cannot be read (${messageOf(cause)}); name another with --config or VISIBILITY_CONFIG`,
    )
  }
  const raw = plainValues(parseDocument(text, { uniqueKeys: true }), file)
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw))
    throw new UsageError(`${file}: must hold settings such as "projects:"`)
  const written = raw as Record<string, unknown>
  redactor.add(secretsIn(written))
  const warnings = keysWrittenIn(written).map(
    (field) =>
      `${file}: ${field} is written in the file; a variable such as \${VISIBILITY_API_KEY} keeps it out of there`,
  )
  try {
    return { written, values: interpolate(written, env) as Record<string, unknown>, warnings }
  } catch (error) {
    throw new UsageError(`${file}: ${messageOf(error)}`)
  }
}

/** The parser's own words quote the file, which may hold a secret: a password that begins with "*" reads as an alias. */
function plainValues(document: Document.Parsed, file: string): unknown {
  const [problem] = document.errors
  if (problem !== undefined) {
    const [{ line, col } = { line: 1, col: 1 }] = problem.linePos ?? []
    const what = problem.code.toLowerCase().replaceAll('_', ' ')
    throw new UsageError(`${file}: not valid YAML: ${what} at line ${line}, column ${col}`)
  }
  try {
    return document.toJS() ?? {}
  } catch {
    throw new UsageError(
      `${file}: not valid YAML: an alias (*name) without its anchor (&name), or too many of them; a text that begins with "*" needs quotes`,
    )
  }
}

/** Where keys of the service are written. */
function keysWrittenIn(written: Record<string, unknown>): string[] {
  const settings = [...textsIn(written)].map(({ path, text }) => ({ name: path.join('.'), text }))
  const keys = settings.filter(({ name }) => /^(source|projects\.\d+)\.api_key$/.test(name))
  return keys.flatMap(({ name, text }) => (text === '' || text.includes('${') ? [] : [name]))
}
