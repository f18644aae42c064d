import { REDACTED } from '../redactor.ts'
import { valueAt } from './describe-issue.ts'
import { SECRET_ADDRESS, SECRET_NAME } from './secrets.ts'
import { everySetting } from './settings.ts'
import { given, ONLY_VARIABLES, PLACEHOLDER, VARIABLES } from './variables.ts'

export interface Explained {
  /** As in docs/reference/configuration.md; parts of lists by index: "reports.0.name". */
  setting: string
  /** Null if nothing is set and there is no default. Secrets are masked. */
  value: unknown
  /** "default", "file", "file, from NAME", "variable NAME" or "the file that NAME_FILE names". */
  from: string
}

/** `written` is the file before its variables are filled in. */
export function explain(config: object, written: unknown, env: NodeJS.ProcessEnv): Explained[] {
  const groups = new Set(everySetting().map(({ path }) => path.replace(/(\[\]|\.\*).*$/, '')))
  const inFile = [...groups].flatMap((path) => {
    const steps = path.split('.')
    if (path === 'projects' && (config as { all_projects?: boolean }).all_projects)
      return [{ setting: path, value: 'all', from: 'variable VISIBILITY_PROJECTS' }]
    return leavesOf(valueAt(config, steps), steps).map(({ path: leaf, value }) => ({
      setting: leaf.join('.'),
      value: shown(leaf, value),
      from: value === null ? 'default' : originOf(leaf, written, env),
    }))
  })
  const outside = Object.entries(ONLY_VARIABLES).map(([setting, path]) => {
    const value = shown(path.split('.'), valueAt(config, path.split('.')) ?? null)
    return { setting, value, from: given(setting, env) ?? 'default' }
  })
  return [...inFile, ...outside]
}

/** Lists of plain values stay whole: people set them as one. */
function leavesOf(value: unknown, path: string[]): { path: string[]; value: unknown }[] {
  if (value === undefined) return [{ path, value: null }]
  const isGroup = typeof value === 'object' && value !== null && Object.keys(value).length > 0
  if (!isGroup || (Array.isArray(value) && value.every((item) => typeof item !== 'object'))) return [{ path, value }]
  // `isTwin` is no setting.
  return Object.entries(value).flatMap(([name, item]) => (name === 'isTwin' ? [] : leavesOf(item, [...path, name])))
}

function originOf(path: readonly string[], written: unknown, env: NodeJS.ProcessEnv): string {
  const variable = VARIABLES[path.join('.')]
  const found = variable === undefined ? undefined : given(variable, env)
  if (found !== undefined) return found
  if (path[0] === 'projects' && env.VISIBILITY_PROJECTS?.trim()) {
    // Their keys are those of the same project in the file.
    return path.at(-1) === 'api_key' ? 'file' : 'variable VISIBILITY_PROJECTS'
  }
  const text = valueAt(written, path)
  if (text === undefined || text === null) return 'default'
  const names = typeof text === 'string' ? [...text.matchAll(PLACEHOLDER)].map(([, name]) => name!) : []
  return names.length === 0 ? 'file' : `file, from ${[...new Set(names)].join(', ')}`
}

function shown(path: readonly string[], value: unknown): unknown {
  const name = path.at(-1) ?? ''
  if (typeof value !== 'string') return value
  if (SECRET_NAME.test(name)) return REDACTED
  if (!/(^|_)url$/.test(name) || !URL.canParse(value)) return value
  const { protocol, host, username, pathname } = new URL(value)
  // The path of such an address is a secret: it grants write access.
  if (SECRET_ADDRESS.test(name)) return `${protocol}//${host}/${REDACTED}`
  return `${protocol}//${username === '' ? '' : `${username}@`}${host}${pathname === '/' ? '' : pathname}`
}
