import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { hasDatabase, refuseUnknown, withExisting } from '../../app/open-services.ts'
import { shownId } from '../../core/config/secrets.ts'
import { messageOf, UsageError } from '../../core/errors.ts'
import { count, listSome } from '../../core/text.ts'
import { packFiles, type Tool } from '../../packs/pack-files.ts'
import type { Use } from '../../packs/relations.ts'
import { readFacts, unusedRelations, viewsByChannel } from '../../warehouse/schema/views.ts'
import { refuseUnread } from '../project-names.ts'
import type { Session } from '../session.ts'

interface PackOptions {
  out: string
  project?: string[]
  force?: boolean
}

/** Lists the files of a pack with their digests, so that the next run can distinguish them from other files. */
const MANIFEST = 'visibility-sync-pack.json'

export async function pack(session: Session, options: PackOptions, tool: Tool): Promise<number> {
  const { out, project = [], force = false } = options
  for (const id of project) {
    if (!/^[\w.:-]{1,255}$/.test(id))
      throw new UsageError(`--project: got ${shownId(id)}; allowed: letters, digits, "_", "-", "." or ":"`)
  }
  const configured = session.config.projects.flatMap(({ id }) => id ?? [])
  if (configured.length > 0) refuseUnknown(project, configured, 'configured')
  const files = packFiles(tool, session.config, project, await readUse(session, project))
  const removed = writePack(out, files, force)
  const paths = Object.keys(files)
  const next = NEXT[tool](out)
  session.print({ tool, folder: out, files: paths, removed, next }, [
    `Wrote ${count(paths.length, 'file')} to ${out}:`,
    ...paths.map((path) => `  ${path}`),
    removed.length > 0 && `Removed, since this configuration has no use for them: ${removed.join(', ')}`,
    `Next: ${next}`,
  ])
  return 0
}

export async function readUse({ config, log }: Session, projects: readonly string[] = []): Promise<Use> {
  const nothing: Use = { channelViews: new Set(), unused: unusedRelations(config) }
  if (!hasDatabase(config)) return nothing
  try {
    return await withExisting({ config, log }, async (warehouse) => {
      await refuseUnread(warehouse, config, projects)
      const unused = unusedRelations(config, await readFacts(warehouse, config))
      if (unused.includes('model_channels')) return { ...nothing, unused }
      return { unused, channelViews: await viewsByChannel(warehouse, config.reports) }
    })
  } catch (error) {
    if (error instanceof UsageError) throw error
    const reason = messageOf(error)
    log.warn({ reason }, 'what the warehouse has is not known, so models are used instead of channels')
    return nothing
  }
}

const NEXT: Record<Tool, (folder: string) => string> = {
  dbt: (folder) =>
    `add "- local: ${folder}" to packages.yml of your dbt project, then run\n  dbt deps && dbt build --select package:visibility_sync`,
  superset: (folder) =>
    `name your warehouse in ${join(folder, 'databases/AI_visibility.yaml')}, then run\n` +
    `  (cd ${dirname(resolve(folder))} && python3 -m zipfile -c visibility.zip ${basename(resolve(folder))})\n` +
    'and import visibility.zip under Dashboards',
  grafana: () => 'in Grafana, choose Dashboards → New → Import, one file after the other',
  prometheus: (folder) =>
    `run: promtool check config ${join(folder, 'prometheus.yml')}, and load alerts.yml in your Prometheus`,
  contract: (folder) => `fill in host and database under "servers" of ${join(folder, 'visibility.odcs.yaml')}`,
}

function writePack(folder: string, files: Record<string, string>, force: boolean): string[] {
  try {
    const before = readManifest(folder)
    if (!force) refuseOthersFiles(folder, Object.keys(files), before)
    const removed = Object.keys(before ?? {}).filter((path) => !(path in files) && existsSync(join(folder, path)))
    for (const path of removed) rmSync(join(folder, path))
    for (const [path, text] of Object.entries(files)) {
      mkdirSync(dirname(join(folder, path)), { recursive: true })
      writeFileSync(join(folder, path), text)
    }
    const digests = Object.fromEntries(Object.entries(files).map(([path, text]) => [path, digestOf(text)]))
    writeFileSync(join(folder, MANIFEST), `${JSON.stringify(digests, null, 2)}\n`)
    return removed
  } catch (error) {
    if (error instanceof UsageError) throw error
    throw new UsageError(`--out: cannot write to ${folder} (${messageOf(error)})`)
  }
}

function readManifest(folder: string): Record<string, string> | undefined {
  if (!existsSync(join(folder, MANIFEST))) return undefined
  const text = readFileSync(join(folder, MANIFEST), 'utf8')
  // A path that leads out of the folder is not ours.
  const entries = Object.entries(JSON.parse(text) as Record<string, string>)
  return Object.fromEntries(entries.filter(([path]) => !path.split('/').includes('..') && !path.startsWith('/')))
}

function refuseOthersFiles(folder: string, paths: string[], before: Record<string, string> | undefined): void {
  const refuse = (reason: string) => new UsageError(`--out: ${reason}`)
  if (!existsSync(folder)) return
  if (!statSync(folder).isDirectory()) throw refuse(`${folder} is not a folder`)
  if (before === undefined) {
    if (readdirSync(folder).length === 0) return
    throw refuse(`${folder} is not empty, and no pack was written to it; --force writes to it nevertheless`)
  }
  const changed = [...new Set([...Object.keys(before), ...paths])].filter((path) => {
    const file = join(folder, path)
    return existsSync(file) && digestOf(readFileSync(file)) !== before[path]
  })
  if (changed.length > 0)
    throw refuse(
      `in ${folder}, ${listSome(changed)} changed since the command wrote it; --force overwrites or removes it`,
    )
}

function digestOf(content: string | Buffer): string {
  return createHash('sha256').update(content).digest('hex')
}
