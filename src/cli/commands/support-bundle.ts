import { existsSync, rmSync, writeFileSync } from 'node:fs'
import { arch, platform, release, totalmem } from 'node:os'
import { sql } from 'kysely'
import { openExisting, queueName } from '../../app/open-services.ts'
import { explainConfig } from '../../core/config/load.ts'
import { codeOf, messageOf, UsageError } from '../../core/errors.ts'
import { packageFacts } from '../../core/package-files.ts'
import { printable } from '../../core/text.ts'
import { readAlerts } from '../../ledger/alert-policy.ts'
import { hasLedger } from '../../ledger/days.ts'
import { readTableSizes } from '../../ledger/retention.ts'
import { readQueueStatus } from '../../queue/dead-windows.ts'
import type { Warehouse } from '../../warehouse/connect.ts'
import type { Session } from '../session.ts'
import { makePlan, type Plan } from './plan.ts'
import { readOwnStatus } from './status.ts'

const RUNS = 20
const WINDOWS = 5

/**
 * A section that cannot be read contains the error instead. The file has names of projects, counts and reasons of failures,
 * but no rows of reports or of the quarantine.
 */
export async function supportBundle(session: Session, options: { output?: string }): Promise<number> {
  const { config, clock } = session
  const now = clock()
  const file = options.output ?? `visibility-sync-support-${now.toISOString().slice(0, 19).replaceAll(':', '-')}.json`
  const read = async (section: () => Promise<unknown>) => {
    try {
      return (await section()) ?? null
    } catch (error) {
      return { error: messageOf(error), ...(codeOf(error) === undefined ? {} : { code: codeOf(error) }) }
    }
  }
  const opening = openExisting(session)
  const ofDatabase = (section: (warehouse: Warehouse) => Promise<unknown>) =>
    read(async () => section((await opening).warehouse))
  const ofLedger = (section: (warehouse: Warehouse) => Promise<unknown>) =>
    ofDatabase(async (warehouse) => ((await hasLedger(warehouse)) ? section(warehouse) : undefined))
  try {
    const bundle = {
      made_at: now.toISOString(),
      versions: {
        visibility_sync: session.version,
        node: process.version,
        platform: `${platform()} ${arch()} ${release()}`,
        memory_bytes: totalmem(),
        dependencies: packageFacts().dependencies,
      },
      configuration: { file: config.file ?? null, settings: explainConfig(config) },
      database: await ofDatabase(databaseFacts),
      migrations: await ofLedger(async ({ db }) => {
        const { rows } = await sql`
          select version, name, applied_at from ops.migrations order by version`.execute(db)
        return rows
      }),
      status: await ofLedger((warehouse) => readOwnStatus(session, warehouse, RUNS)),
      alerts: await ofLedger(readAlerts),
      queue: await ofLedger(async (warehouse) =>
        readQueueStatus(warehouse, await queueName(config, session.streams, clock)),
      ),
      plan: await read(async () => shortPlan((await makePlan(session, {})).document)),
      tables: await ofLedger(async (warehouse) => ({
        warehouse: await readTableSizes(warehouse, warehouse.schema),
        ledger: await readTableSizes(warehouse, warehouse.opsSchema),
      })),
    }
    const text = `${printable(config.redactor.json(JSON.stringify(bundle, null, 2), 2))}\n`
    write(file, text)
    session.print(
      { file, bytes: Buffer.byteLength(text) },
      `Wrote ${file}. Look through it before you send it: secrets are taken out, names of projects are in it.`,
    )
    return 0
  } finally {
    await opening.then(({ close }) => close()).catch(() => {})
  }
}

function write(file: string, text: string): void {
  try {
    // Another bundle is not overwritten.
    writeFileSync(file, text, { flag: 'wx', mode: 0o600 })
  } catch (cause) {
    const isOfAnother = codeOf(cause) === 'EEXIST'
    if (!isOfAnother && existsSync(file)) rmSync(file)
    const why = isOfAnother ? 'it exists; name another with --output' : messageOf(cause)
    throw new UsageError(`${file}: cannot be written (${why})`)
  }
}

async function databaseFacts({ db }: Warehouse): Promise<unknown> {
  const { rows } = await sql<Record<string, unknown>>`
    select version() as version, pg_database_size(current_database())::double precision as bytes,
    current_setting('max_connections') as max_connections, current_setting('shared_buffers') as shared_buffers,
    pg_is_in_recovery() as is_replica, (select count(*)::integer from pg_stat_activity) as connections`.execute(db)
  return rows[0]
}

function shortPlan(plan: Plan): Plan {
  return { ...plan, streams: plan.streams.map((row) => ({ ...row, windows: row.windows.slice(0, WINDOWS) })) }
}
