import { sql } from 'kysely'
import { configuredProjects, hasDatabase, refuseUnknown, withExisting } from '../app/open-services.ts'
import type { Config } from '../core/config/load.ts'
import { UsageError } from '../core/errors.ts'
import type { Log } from '../core/logger.ts'
import { inQuotes, listSome } from '../core/text.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { clipTo, faint } from './table.ts'

/* Projects as people know them: by their names, and by ids short enough to read if a name is not known or not enough. */

export interface ProjectNames {
  of(id: string): string
  heading(id: string): string
  within(text: string): string
}

const LONGEST_NAME = 40

async function readProjects(warehouse: Warehouse): Promise<{ project_id: string; name: string | null }[]> {
  const { db, schema } = warehouse
  const { rows: found } = await sql`
    select from pg_tables where schemaname = ${schema} and tablename = 'projects'`.execute(db)
  if (found.length === 0) return []
  return db.selectFrom('data.projects').select(['project_id', 'name']).orderBy('project_id').execute()
}

export async function readProjectNames(warehouse: Warehouse): Promise<Map<string, string>> {
  const projects = await readProjects(warehouse)
  return new Map(projects.flatMap(({ project_id, name }) => (name ? [[project_id, name]] : [])))
}

export async function readProjectIds(warehouse: Warehouse): Promise<string[]> {
  return (await readProjects(warehouse)).map(({ project_id }) => project_id)
}

export async function refuseUnread(warehouse: Warehouse, config: Config, named: readonly string[]): Promise<void> {
  if (named.length === 0) return
  const known = [...(await readProjectIds(warehouse)), ...config.projects.flatMap(({ id }) => id ?? [])]
  refuseUnknown(named, [...new Set(known)], 'known')
}

/** The ids of projects that were named by id, by name, by the start of an id, or by an id as it is shown shortened. */
export async function resolveNamed(
  services: { config: Config; log: Log },
  named: readonly string[],
): Promise<string[]> {
  const configured = configuredProjects(services.config, () => new Date()).map(({ id }) => id)
  if (named.every((text) => configured.includes(text))) return [...named]
  // A database that is away is a matter of the command.
  const read = hasDatabase(services.config) ? withExisting(services, readProjects).catch(() => []) : []
  const known = new Map(configured.map((id) => [id, '']))
  for (const { project_id, name } of await read) known.set(project_id, name ?? '')
  return named.map((text) => resolveOne(text, known))
}

function resolveOne(text: string, known: ReadonlyMap<string, string>): string {
  const wanted = text.trim().toLowerCase()
  const [start, ...ends] = wanted.split(/…|\.{3}/)
  const ways: [what: string, fits: (id: string, name: string) => boolean][] = [
    ['the id', (id) => id === text],
    ['the name', (_, name) => name.toLowerCase() === wanted],
    [
      'the start',
      (id) => start !== '' && id.toLowerCase().startsWith(start!) && id.toLowerCase().endsWith(ends.join('')),
    ],
  ]
  for (const [what, fits] of ways) {
    const ids = [...known].flatMap(([id, name]) => (fits(id, name) ? [id] : []))
    if (ids.length > 1)
      throw new UsageError(`--project: ${inQuotes(text)} is ${what} of ${listSome(ids)}: give the id, or more of it`)
    if (ids.length === 1) return ids[0]!
  }
  return text
}

export async function namesIn(
  warehouse: Warehouse | undefined,
  projects: readonly { id: string }[],
  isFull = false,
): Promise<ProjectNames> {
  const ids = projects.map(({ id }) => id)
  return projectNames(ids, warehouse === undefined ? new Map() : await readProjectNames(warehouse), isFull)
}

/** With `isFull`, whole ids in place of names. */
export function projectNames(ids: readonly string[], known: ReadonlyMap<string, string>, isFull = false): ProjectNames {
  const short = isFull ? new Map<string, string>() : shortIds(ids)
  const shortOf = (id: string) => short.get(id) ?? id
  const nameOf = (id: string) => {
    const name = known.get(id)
    return name && clipTo(name, LONGEST_NAME)
  }
  const shown = ids.map(nameOf)
  const of = (id: string) => {
    const name = nameOf(id)
    if (isFull || name === undefined) return shortOf(id)
    return shown.filter((other) => other === name).length > 1 ? `${name} (${shortOf(id)})` : name
  }
  return {
    of,
    // Ids that are short are shown as they are, and may be words.
    within: (text) => ids.reduce((said, id) => (shortOf(id) === id ? said : said.replaceAll(id, () => of(id))), text),
    heading: (id) => (nameOf(id) === undefined ? shortOf(id) : `${nameOf(id)} ${faint(`(${shortOf(id)})`)}`),
  }
}

const SHORT = 16
const FEWEST = 4

/** "or_1f0c…9ab2" for each id, with as many letters as make each unique. */
export function shortIds(ids: readonly string[]): Map<string, string> {
  const all = [...new Set(ids)]
  for (let letters = FEWEST; ; letters += 2) {
    const short = all.map((id) => shorten(id, letters))
    if (new Set(short).size === all.length) return new Map(all.map((id, index) => [id, short[index]!]))
  }
}

function shorten(id: string, letters: number): string {
  const prefix = /^[a-z]{1,4}_/.exec(id)?.[0] ?? ''
  const rest = id.slice(prefix.length)
  return id.length <= SHORT || rest.length <= 2 * letters + 1
    ? id
    : `${prefix}${rest.slice(0, letters)}…${rest.slice(-letters)}`
}
