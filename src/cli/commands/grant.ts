import { sql } from 'kysely'
import { withExisting } from '../../app/open-services.ts'
import { UsageError } from '../../core/errors.ts'
import { count } from '../../core/text.ts'
import { queueSchema } from '../../queue/boss.ts'
import type { Warehouse } from '../../warehouse/connect.ts'
import {
  type AppliedSetting,
  applySetting,
  grantReader,
  READER_SETTINGS,
  revokeReader,
} from '../../warehouse/schema/grant-reader.ts'
import { migrate } from '../../warehouse/schema/migrate.ts'
import { listUnrestricted } from '../../warehouse/schema/restrict-reader.ts'
import { type ReaderVerdict, verifyReader } from '../../warehouse/schema/verify-reader.ts'
import { readFacts, unusedRelations } from '../../warehouse/schema/views.ts'
import { refuseUnread } from '../project-names.ts'
import type { Session } from '../session.ts'

interface GrantOptions {
  role: string
  project?: string[]
  revoke?: boolean
  keepTimezone?: boolean
  keepSettings?: boolean
}

export async function grant(session: Session, options: GrantOptions): Promise<number> {
  const { role, project: projects, keepTimezone = false, keepSettings = false } = options
  if (options.revoke && projects !== undefined)
    throw new UsageError('--revoke takes all access back: leave --project out')
  return withExisting(session, async (warehouse) => {
    await migrate(warehouse, session.config)
    if (options.revoke) return await revoke(session, warehouse, role)
    if (projects !== undefined) await refuseUnread(warehouse, session.config, projects)
    const unused = unusedRelations(session.config, await readFacts(warehouse, session.config))
    const { statements, leftOut } = await grantReader(warehouse, { role, projects, unused })
    const set = async (isKept: boolean, setting: string) => {
      const applied = isKept ? undefined : await applySetting(warehouse, role, setting)
      if (applied !== undefined && applied.refused === undefined) statements.push(applied.statement)
      return applied
    }
    const zone = await set(keepTimezone || keepSettings, READER_SETTINGS.timezone)
    const jit = await set(keepSettings, READER_SETTINGS.jit)
    const closedSchemas = [warehouse.opsSchema, queueSchema(warehouse)]
    const verdict = await verifyReader(warehouse, role, { closedSchemas, projects, unused })
    const { problems } = verdict
    const unrestricted = projects && (await listUnrestricted(warehouse))
    const ok = problems.length === 0
    const document = {
      ...{ ok, role, schema: warehouse.schema, projects: projects ?? 'all', ...verdict, unrestricted },
      ...{ left_out: leftOut, statements, time_zone: stateOf(zone, 'UTC'), jit: stateOf(jit, 'off') },
    }
    session.print(document, [
      ...statements.map((statement) => `${statement};`),
      projects && `(and a policy and a grant for each of the ${verdict.relations} tables and views)`,
      '',
      ...problems.map((problem) => `✗ ${problem}`),
      ok
        ? `Checked: ${aboutAccess(warehouse, options, verdict)}`
        : 'The statements were run, but the role may do more or less than it should: fix what is marked ✗ and run the command again.',
      leftOut.length > 0 &&
        `Left out: ${leftOut.join(', ')}. They are empty: this configuration does not fill them, or the service lists no channels. Run this command again once they are used.`,
      unrestricted && `Roles that see every project, as before: ${unrestricted.join(', ') || 'none'}.`,
      aboutSetting(zone, {
        kept: 'Its time zone was left as it is: if that is not UTC, BI tools may show days and weeks one day off.',
        set: 'It reads this database in UTC, so that BI tools show days and weeks as they are; --keep-timezone leaves that alone.',
        failed: 'Its time zone could not be set',
        effect: 'If it is not UTC, BI tools may show days and weeks one day off',
      }),
      aboutSetting(jit, {
        set: 'Its queries are not compiled (jit = off), which takes longer than running them; --keep-settings leaves that alone.',
        failed: 'JIT could not be switched off for it',
        effect: 'Its queries may take seconds longer',
      }),
    ])
    return ok ? 0 : 1
  })
}

function stateOf(setting: AppliedSetting | undefined, value: string): string {
  return setting === undefined ? 'kept' : (setting.refused ?? value)
}

function aboutAccess({ schema }: Warehouse, { role, project }: GrantOptions, verdict: ReaderVerdict): string {
  const { relations, closed, wasAsked } = verdict
  const reads = `${role} reads ${relations} tables and views of ${schema}, and`
  const rest = `it can write nothing, and ${closed.join(' and ')} ${closed.length === 1 ? 'is' : 'are'} closed to it.`
  if (project === undefined) return `${reads} those that are made there later; ${rest}`
  const how = wasAsked
    ? 'The database was asked as this role.'
    : 'The policies are in place, but the database could not be asked as this role: the role of DATABASE_URL may not take it on.'
  return `${reads} in them ${count(project.length, 'project')} only: ${project.join(', ')}; ${rest} ${how}`
}

async function revoke(session: Session, warehouse: Warehouse, role: string): Promise<number> {
  const statements = await revokeReader(warehouse, role)
  for (const setting of ['reset timezone', 'reset jit']) {
    const { statement, refused } = await applySetting(warehouse, role, setting)
    if (refused === undefined) statements.push(statement)
  }
  const { schema } = warehouse
  const { rows } = await sql<{ reads: boolean }>`
    select has_schema_privilege(${role}, ${schema}, 'usage') as reads`.execute(warehouse.db)
  const ok = !rows[0]!.reads
  session.print({ ok, role, schema, statements }, [
    ...statements.map((statement) => `${statement};`),
    '',
    ok
      ? `Checked: ${role} can no longer read ${schema}.`
      : `✗ ${role} can still read ${schema}, through PUBLIC or a role that it is a member of.`,
  ])
  return ok ? 0 : 1
}

function aboutSetting(
  setting: AppliedSetting | undefined,
  texts: { kept?: string; set: string; failed: string; effect: string },
): string | undefined {
  if (setting === undefined) return texts.kept
  const { statement, refused } = setting
  return refused === undefined
    ? texts.set
    : `${texts.failed} (${refused}). ${texts.effect}; somebody who may change the role can run:\n${statement};`
}
