import { readFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { parseEnv } from 'node:util'
import { codeOf, UsageError } from '../errors.ts'
import { DEFAULT_FILE } from './variables.ts'

export interface Variables {
  env: NodeJS.ProcessEnv
  file: string
  /** Those of `env` that the file gives. */
  fromFile: ReadonlySet<string>
}

/** The file of variables for a configuration file: in its folder, or in the current one for the default file. */
export function envFile(configuration: string): string {
  return resolve(configuration) === resolve(DEFAULT_FILE) ? '.env' : join(dirname(configuration), '.env')
}

export function withEnvFile(configuration: string, env: NodeJS.ProcessEnv): Variables {
  const file = envFile(configuration)
  const found = Object.entries(readVariables(file)).filter(([name]) => !isSet(name, env))
  return { env: { ...Object.fromEntries(found), ...env }, file, fromFile: new Set(found.map(([name]) => name)) }
}

function readVariables(file: string): NodeJS.ProcessEnv {
  try {
    return parseEnv(readFileSync(file, 'utf8'))
  } catch (cause) {
    const code = codeOf(cause)
    // Some programs call a folder so.
    if (['ENOENT', 'ENOTDIR', 'EISDIR'].includes(code ?? '')) return {}
    throw new UsageError(`${file}: cannot be read (${code})`)
  }
}

/** A secret may be set by its name, or by that of its file. An empty variable counts: it takes the value away. */
function isSet(name: string, env: NodeJS.ProcessEnv): boolean {
  const other = name.endsWith('_FILE') ? name.slice(0, -'_FILE'.length) : `${name}_FILE`
  return env[name] !== undefined || !!env[other]
}
