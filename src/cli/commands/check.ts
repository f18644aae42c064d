import { sql } from 'kysely'
import { resolveAllProjects } from '../../app/all-projects.ts'
import {
  configuredProjects,
  describeNewDatabase,
  hasDatabase,
  type OpenSource,
  type OpenWarehouse,
  openSource,
  openWarehouse,
} from '../../app/open-services.ts'
import { compareSpec, readSpec } from '../../app/spec-drift.ts'
import { chooseDatabase, chosenSource } from '../../core/config/choose-source.ts'
import type { Config } from '../../core/config/load.ts'
import { type Day, dayOf } from '../../core/day.ts'
import { ClockError, messageOf, ProjectError, RefusedError, UsageError } from '../../core/errors.ts'
import { count, helpOn, listSome } from '../../core/text.ts'
import { streamKey } from '../../core/vocabulary.ts'
import { hasLedger, readDiffering } from '../../ledger/days.ts'
import { readSource, refusal } from '../../ledger/source.ts'
import { readHeld } from '../../ledger/status.ts'
import { channelsOf } from '../../observe/channels.ts'
import { noticeOf } from '../../observe/notice.ts'
import { outsideFailure } from '../../observe/send.ts'
import { queueSchema } from '../../queue/boss.ts'
import type { Client } from '../../source/client.ts'
import type { StreamSet } from '../../streams/registry.ts'
import type { Stream } from '../../streams/stream.ts'
import { saysNotOffered } from '../../sync/run/execute.ts'
import { isRefusalOfProject } from '../../sync/run/refused-project.ts'
import type { SyncedProject } from '../../sync/run/run.ts'
import type { Warehouse } from '../../warehouse/connect.ts'
import { labelNotes, ownBrandNotes, projectsWithoutOwn } from '../../warehouse/load/own-brands.ts'
import { isMigrated } from '../../warehouse/schema/migrate.ts'
import { findForeignObjects, findNamesakes, inspectWarehouse } from '../../warehouse/schema/repair.ts'
import { listRestrictions, type Restriction } from '../../warehouse/schema/restrict-reader.ts'
import { refuseChanged } from '../../warehouse/schema/stream-tables.ts'
import { verifyReader } from '../../warehouse/schema/verify-reader.ts'
import { readFacts, unusedRelations } from '../../warehouse/schema/views.ts'
import { inTransaction } from '../../warehouse/transaction.ts'
import { type ProjectNames, projectNames, readProjectNames } from '../project-names.ts'
import type { Part, Session } from '../session.ts'
import { bad, good, warning, wrap, wrapNote } from '../table.ts'

const ALERT_MS = 10_000

const TABLES_OF_ROWS = ['projects', 'brands', 'topics', 'tags', 'models', 'prompt_tags', 'prompt_suggestion_tags']

interface Verdict {
  what: string
  ok: boolean
  detail: string
  project_id?: string
}

type AddVerdict = (what: string, work: () => Promise<string>, more?: Pick<Verdict, 'project_id'>) => Promise<boolean>

export async function check(
  session: Session,
  { spec, alerts }: { spec?: string; alerts?: boolean } = {},
): Promise<number> {
  if (spec !== undefined) return checkSpec(session, spec)
  const { config, clock } = session
  const verdicts: Verdict[] = []
  let isUsage = false
  const addVerdict: AddVerdict = async (what, work, more = {}) => {
    const verdict = await work().then(
      (detail) => ({ what, ok: true, detail, ...more }),
      (error: unknown) => {
        isUsage ||= error instanceof UsageError && /^(source|configuration$|database$)/.test(what)
        return { what, ok: false, detail: config.redactor.text(messageOf(error)), ...more }
      },
    )
    verdicts.push(verdict)
    return verdict.ok
  }
  await addVerdict('configuration', async () => {
    const { length } = session.streams.all
    if (length === 0) throw new UsageError('nothing to read: name a stream or a report')
    return `${config.file ?? 'no file, defaults and environment'}: ${count(length, 'stream')}`
  })
  const address = await checkSource(session, addVerdict)
  const ids = configuredProjects(config, clock).map(({ id }) => id)
  const { known, notes, shown } = await checkDatabase(session, addVerdict, { ids, address })
  if (alerts) await checkAlerts(session, addVerdict, shown)
  if (config.file !== undefined && config.source.base_url === undefined && chosenSource(config)?.kind === 'reference')
    notes.push(`${config.file} names no service, so synthetic data is read: set VISIBILITY_API_URL`)
  const ok = verdicts.every((verdict) => verdict.ok)
  session.print(
    { ok, verdicts, notes: [...config.warnings, ...notes] },
    render(config.redactor.value(verdicts), notes, projectNames(ids, known, session.fullIds), session),
  )
  return ok ? 0 : isUsage ? 2 : 1
}

/** Gives the address of the source, whether it answers or not. */
async function checkSource(session: Session, addVerdict: AddVerdict): Promise<string | undefined> {
  const { config, clock, signal } = session
  let source: OpenSource | undefined
  const isAnswering = await addVerdict('source', async () => {
    const skipped = await resolveAllProjects(config, signal, impatient(config).source)
    source = await openSource(impatient(config), clock)
    await expectAnswer(source, signal)
    return `${source.source}${skipped.length === 0 ? '' : `; deleted and ended projects are skipped: ${listSome(skipped, 20)}`}`
  })
  // Contents are asked for by the ids of chats.
  const extras = session.streams.all.filter(({ isExtra, perChat }) => isExtra && !perChat)
  for (const project of isAnswering ? source!.projects : []) {
    const { client } = source!
    const { id } = project
    const isReadable = await addVerdict(`project ${id}`, () => readable(client, project, signal), { project_id: id })
    const asked = { config, day: dayOf(clock()), signal }
    if (isReadable && extras.length > 0)
      await addVerdict(`extras of ${id}`, () => offeredExtras(client, project, extras, asked), { project_id: id })
  }
  await source?.close()
  return source?.address
}

/** Sends the end of an alert that never was: nothing stays open. */
async function checkAlerts(
  { config, clock, signal }: Session,
  addVerdict: AddVerdict,
  warehouse: string,
): Promise<void> {
  const channels = channelsOf(config)
  if (channels.length === 0)
    await addVerdict('alerts', async () => {
      throw new UsageError('no channel is configured: set one under "alerts"')
    })
  const state = { text: 'a test message; nothing is wrong', members: [], raised_at: clock() }
  const naming = { nameOf: (id: string) => id, warehouse, pageUrl: config.alerts.page_url }
  const notice = noticeOf('run', undefined, state, naming)
  for (const channel of channels)
    await addVerdict(`alerts by ${channel.name}`, async () => {
      await channel.send(notice, AbortSignal.any([signal, AbortSignal.timeout(ALERT_MS)])).catch((error: unknown) => {
        throw new UsageError(outsideFailure(error))
      })
      return 'accepted a test message'
    })
}

/** Gives the names of projects, as far as they are known, and things worth knowing. */
export async function checkDatabase(
  { config, log, streams }: Pick<Session, 'config' | 'log' | 'streams'>,
  addVerdict: AddVerdict,
  { ids, address }: { ids: readonly string[]; address: string | undefined },
): Promise<{ known: Map<string, string>; notes: string[]; shown: string }> {
  let database: OpenWarehouse | undefined
  await addVerdict('database', async () => {
    chooseDatabase(config)
    if (!hasDatabase(config)) return describeNewDatabase(config)
    database = await openWarehouse(config, log)
    const { rows } = await sql<{ version: string }>`
      select current_setting('server_version') as version`.execute(database.warehouse.db)
    return `Postgres ${rows[0]?.version} at ${database.shown}`
  })
  if (database === undefined) return { known: new Map(), notes: [], shown: '' }
  const { warehouse, shown, close } = database
  await addVerdict('privileges', () => privileges(warehouse, config, streams))
  await addVerdict('owners', () => owners(warehouse, config))
  for (const found of await listRestrictions(warehouse).catch(() => []))
    await addVerdict(`reader ${found.role}`, () => restriction(warehouse, config, found))
  let isGood =
    address === undefined || (await addVerdict('source of the warehouse', () => sourceOfWarehouse(warehouse, address)))
  // A role without privileges may not read names either. That was just reported.
  const known = await readProjectNames(warehouse).catch(() => new Map<string, string>())
  if (await isMigrated(warehouse).catch(() => false))
    isGood = await addVerdict('tables', () => tables(warehouse, config))
  const hasNotes = isGood && (await hasLedger(warehouse).catch(() => false))
  const notes = hasNotes ? await ledgerNotes(warehouse, config, ids) : []
  await close()
  return { known, notes, shown }
}

async function ledgerNotes(warehouse: Warehouse, config: Config, ids: readonly string[]): Promise<string[]> {
  const notes = await labelNotes(warehouse, ids, config.labels)
  notes.push(...(await ownBrandNotes(warehouse, await projectsWithoutOwn(warehouse, ids))))
  for (const { project_id, stream, last_day, difference } of await readDiffering(warehouse, 'settled'))
    notes.push(
      `${stream} of ${project_id} does not add up to the totals of the service, so its pages are proven instead (${last_day}: ${difference})`,
    )
  notes.push(...(await heldNotes(warehouse)))
  for (const kind of ['topic', 'tag'] as const)
    notes.push(...(await unnamedNotes(warehouse, kind, ids, config.extras === 'auto')))
  return notes
}

async function checkSpec(session: Session, from: string): Promise<number> {
  const { gone, different, added } = compareSpec(await readSpec(from, session.signal), session.streams.all)
  const ok = gone.length === 0
  session.print({ ok, gone, different, added }, [
    ...gone.map((text) => `${bad('✗')} ${text}`),
    ...different.map((text) => `${warning('!')} ${text}`),
    ...added.map((text) => `  new: ${text}`),
    '',
    ok
      ? `Everything that is needed is described. ${count(different.length, 'difference')}, ${count(added.length, 'addition')}.`
      : `${count(gone.length, 'thing')} that visibility-sync uses ${gone.length === 1 ? 'is' : 'are'} not described any more (✗). Check the service's changelog before the next sync.`,
  ])
  return ok ? 0 : 1
}

async function restriction(warehouse: Warehouse, config: Config, { role, projects }: Restriction): Promise<string> {
  const closedSchemas = [warehouse.opsSchema, queueSchema(warehouse)]
  const unused = unusedRelations(config, await readFacts(warehouse, config))
  const { relations, problems } = await verifyReader(warehouse, role, { closedSchemas, projects, unused })
  if (problems.length > 0) throw new UsageError(problems.join('; '))
  return `reads ${count(relations, 'table and view', 'tables and views')}, and in them ${count(projects.length, 'project')} only: ${listSome(projects, 20)}`
}

function render(
  verdicts: Verdict[],
  notes: readonly string[],
  names: ProjectNames,
  { width, command, config }: Session,
): Part[] {
  const hasWarnings = config.warnings.length + notes.length > 0
  const wellSaid = hasWarnings ? warning('Ready, but see the warnings above.') : good('All well.')
  return [
    ...verdicts.map(({ what, ok, detail, project_id }) => {
      const shown = project_id === undefined ? what : what.replace(project_id, names.heading(project_id))
      return wrap(`${ok ? good('✓') : bad('✗')} ${shown}: ${detail}`, width, '', '  ')
    }),
    ...notes.map((note) => wrapNote(`${warning('!')} ${names.within(note)}`, width, '', '  ')),
    '',
    verdicts.every(({ ok }) => ok)
      ? `${wellSaid} Next: ${command('sync')}`
      : `${bad('Not ready:')} fix what is marked ✗ and check again.`,
  ]
}

async function heldNotes(warehouse: Warehouse): Promise<string[]> {
  const { ranges } = await readHeld(warehouse)
  if (ranges.length === 0) return []
  const held = new Set(ranges.map(({ project_id, stream }) => streamKey(project_id, stream))).size
  const streams = [...new Set(ranges.map(({ stream }) => stream))]
  return [
    `${count(held, 'stream')} held (${listSome(streams)}): an answer would have deleted most rows; "npx visibility-sync status" shows how to let it through`,
  ]
}

async function unnamedNotes(
  warehouse: Warehouse,
  kind: 'topic' | 'tag',
  projects: readonly string[],
  asksForNames: boolean,
): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    select distinct ${sql.id(`${kind}_id`)} as id from ${sql.table(`data.${kind}s`)}
    where name is null and project_id = any(${projects}) order by 1`.execute(warehouse.db)
  if (rows.length === 0) return []
  const some = rows.slice(0, 3).map(({ id }) => `${id}: …`)
  const extras = asksForNames ? '' : 'set "extras: auto" if the service lists names, or '
  const remedy = `${extras}name them in the file: labels: { ${kind}s: { ${some.join(', ')} } }`
  return [`${count(rows.length, kind)} without a name, shown as ids; ${remedy}`]
}

/** Throws if the service gives no usable answer. A refusal is an answer: the verdict on the project names it. */
async function expectAnswer({ client, projects }: OpenSource, signal: AbortSignal): Promise<void> {
  const [project] = projects
  if (project === undefined) return
  await client.prompts(project.caller, { limit: 1 }, { signal }).catch((error: unknown) => {
    if (!(error instanceof RefusedError) || error instanceof ClockError) throw error
  })
}

async function readable(client: Client, { caller }: SyncedProject, signal: AbortSignal): Promise<string> {
  const { total, items } = await client.prompts(caller, { limit: 1 }, { signal }).catch(async (error: unknown) => {
    const isOfProject = error instanceof ProjectError || isRefusalOfProject(error)
    if (!isOfProject || caller.projectId === undefined) throw error
    // Most likely a wrong id.
    const listed = await client.listProjects(caller)
    const which = listed.length === 0 ? '' : `; the key can read: ${listSome(listed, 20)}`
    const plan = error.status === 402 ? 'its plan has ended or does not cover it; ' : ''
    throw new UsageError(
      `${error.message}; ${plan}check the id in VISIBILITY_PROJECTS, or under projects in the file${which}`,
    )
  })
  if (items.length === 0) return 'readable, no prompts yet'
  return total === undefined ? 'readable' : `readable, ${count(total, 'prompt')}`
}

/** Which extra streams the service offers to a project. That it does not is no fault. */
async function offeredExtras(
  client: Client,
  { caller }: SyncedProject,
  extras: readonly Stream[],
  { config, day, signal }: { config: Config; day: Day; signal: AbortSignal },
): Promise<string> {
  const offered: string[] = []
  const missing: string[] = []
  const page = { limit: 1, offset: 0 }
  for (const stream of extras) {
    try {
      if (stream.by === 'list') await stream.read(client, caller, page, { signal })
      else await stream.read(client, caller, { range: { from: day, to: day }, page, filters: [] }, { signal })
      offered.push(stream.name)
    } catch (error) {
      if (!saysNotOffered(config, stream, error)) throw error
      missing.push(`${stream.name} (HTTP ${error.status})`)
    }
  }
  const parts = [
    offered.length > 0 && `offered: ${offered.join(', ')}`,
    missing.length > 0 && `not offered: ${missing.join(', ')}`,
  ]
  return parts.filter(Boolean).join('; ')
}

async function sourceOfWarehouse(warehouse: Warehouse, address: string): Promise<string> {
  const known = (await hasLedger(warehouse)) ? await readSource(warehouse) : undefined
  if (known === undefined) return 'nothing was synced into it yet'
  if (known !== address) throw new UsageError(refusal(known, address))
  return `filled from ${known}`
}

/** Short timeouts and few retries, because a person waits for the result. */
export function impatient(config: Config): Config {
  const { timeout_seconds, max_attempts, patience_seconds } = config.source
  const source = {
    ...config.source,
    timeout_seconds: Math.min(15, timeout_seconds),
    max_attempts: Math.min(2, max_attempts),
    patience_seconds: Math.min(5, patience_seconds),
  }
  return { ...config, source }
}

/** Refuses what a run refuses: tables in the way of ours, and objects of somebody who could run code with the rights of this role. */
async function owners(warehouse: Warehouse, config: Config): Promise<string> {
  const namesakes = await findNamesakes(warehouse)
  if (namesakes !== undefined) throw new UsageError(namesakes)
  const complaint = await findForeignObjects(warehouse, config)
  if (complaint === undefined) return 'nothing that is used belongs to somebody else'
  if (config.warehouse.allow_foreign_owner) return `warehouse.allow_foreign_owner is true, and ${complaint}`
  throw new UsageError(complaint)
}

async function tables(warehouse: Warehouse, config: Config): Promise<string> {
  await refuseChanged(warehouse, config)
  const { repairable, lost } = await inspectWarehouse(warehouse, config)
  if (lost.length > 0) throw new UsageError(lost.join('; '))
  if (repairable.length === 0) return 'all there'
  throw new UsageError(
    `missing: ${listSome(repairable, 20)}; the next sync makes them again and reads their days again`,
  )
}

interface Privileges {
  may_temp: boolean
  may_create: boolean
  is_read_only: boolean
  has_queue: boolean
  schemas: { name: string; usable: boolean }[] | null
  closed: string[]
}

async function privileges(warehouse: Warehouse, config: Config, streams: StreamSet): Promise<string> {
  const { db, schema, opsSchema } = warehouse
  const queue = config.queue.mode === 'none' ? undefined : queueSchema(warehouse)
  const wanted = [schema, opsSchema, ...(queue === undefined ? [] : [queue])]
  // Tables that people keep beside ours in the schema for people are theirs alone.
  const tables = [...TABLES_OF_ROWS, ...streams.all.map(({ table }) => table)]
  const { rows } = await sql<Privileges>`
    select has_database_privilege(current_database(), 'temp') as may_temp,
      has_database_privilege(current_database(), 'create') as may_create,
      current_setting('transaction_read_only')::boolean as is_read_only,
      exists (select from pg_tables where schemaname = ${queue ?? null} and tablename = 'job') as has_queue,
      (select json_agg(json_build_object('name', nspname,
         'usable', has_schema_privilege(nspname, 'create') and has_schema_privilege(nspname, 'usage')))
       from pg_namespace where nspname = any(${wanted})) as schemas,
      array(select format('%s.%s', nspname, relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where nspname = any(${wanted}) and relkind in ('r', 'p') and (nspname <> ${schema} or relname = any(${tables}))
          and not (has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
            and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete')) order by 1) as closed`.execute(
    db,
  )
  const { may_temp, may_create, is_read_only, has_queue, schemas, closed } = rows[0]!
  if (is_read_only)
    throw new UsageError('the server can only be read, as a standby can: name the primary in DATABASE_URL')
  // A pooler may refuse transactions.
  await inTransaction(warehouse, async () => {})
  const isMissing = [schema, opsSchema].some((name) => !schemas?.some((found) => found.name === name))
  const lacking = [
    !may_temp && 'temp on the database',
    isMissing && !may_create && `create on the database (or the schemas ${schema} and ${opsSchema} made beforehand)`,
    queue !== undefined &&
      !has_queue &&
      !may_create &&
      `create on the database, once: pg-boss makes the schema ${queue} itself`,
    ...(schemas ?? []).filter(({ usable }) => !usable).map(({ name }) => `usage and create on schema ${name}`),
    closed.length > 0 && `select, insert, update, delete on ${listSome(closed)}`,
  ].filter(Boolean)
  if (lacking.length > 0)
    throw new UsageError(`the role lacks: ${lacking.join(', ')}; ${helpOn('database-role')} lists the grants`)
  return `enough to make and fill ${wanted.slice(0, -1).join(', ')} and ${wanted.at(-1)}`
}
