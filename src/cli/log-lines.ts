import type { Config } from '../core/config/load.ts'
import { shortIds } from './project-names.ts'
import { bad, toOneLine, warning } from './table.ts'

const MOST_ALIKE = 3

/** Short lines; of a command with a result only a few of each kind, unless a level was chosen: the result names all. */
export function linesForPeople(
  config: Config,
  isService: boolean,
  write: (line: string) => void,
): (line: string) => void {
  const short = shortIds(config.projects.flatMap(({ id }) => id ?? []))
  const shortOf = (id: string) => short.get(id) ?? shortIds([id]).get(id)!
  const seen = new Map<string, number>()
  return (line) => {
    const { msg } = JSON.parse(line) as { msg: string }
    const times = (seen.get(msg) ?? 0) + 1
    seen.set(msg, times)
    if (isService || config.log_level !== undefined || times <= MOST_ALIKE) write(prettyLine(line, shortOf))
    else if (times === MOST_ALIKE + 1) write(`         … more lines "${msg}" are left out; LOG_LEVEL=info shows them\n`)
  }
}

/** Lines for people: time, message, then the fields that vary and say something. `shortOf` shortens ids of projects. */
export function prettyLine(line: string, shortOf: (id: string) => string = (id) => id): string {
  const { time, level, msg, project, ...others } = JSON.parse(line) as Record<string, unknown>
  const fields = typeof project === 'string' ? { project: shortOf(project), ...others } : others
  const mark = level === 'error' || level === 'fatal' ? bad('✗ ') : level === 'warn' ? warning('! ') : ''
  const rest = Object.entries(fields)
    .filter(([key, value]) => key !== 'run' && value !== 0)
    .map(([key, value]) => `${key}=${shown(value)}`)
    .join(' ')
  return `${String(time).slice(11, 19)} ${mark}${toOneLine(String(msg))}${rest === '' ? '' : `  ${rest}`}\n`
}

function shown(value: unknown): string {
  if (typeof value === 'number') return Number.isInteger(value) ? String(value) : value.toFixed(1)
  return toOneLine(typeof value === 'string' ? value : JSON.stringify(value))
}
