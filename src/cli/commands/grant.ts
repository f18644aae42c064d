import { openExisting } from '../../app/open-services.ts'
import { queueSchema } from '../../queue/boss.ts'
import { type AppliedSetting, applySetting, grantReader, READER_SETTINGS } from '../../warehouse/schema/grant-reader.ts'
import { migrate } from '../../warehouse/schema/migrate.ts'
import { verifyReader } from '../../warehouse/schema/verify-reader.ts'
import type { Session } from '../session.ts'

/** `grant`: read access for a BI tool's role, checked in the database before anything is claimed of it. */
export async function grant(
  session: Session,
  {
    role,
    keepTimezone = false,
    keepSettings = false,
  }: { role: string; keepTimezone?: boolean; keepSettings?: boolean },
): Promise<number> {
  const database = await openExisting(session.config, session.log)
  try {
    const { warehouse } = database
    await migrate(warehouse, session.config)
    const granted = await grantReader(warehouse, role)
    const { timezone, jit } = READER_SETTINGS
    const zone = keepTimezone || keepSettings ? undefined : await applySetting(warehouse, role, timezone)
    const compiling = keepSettings ? undefined : await applySetting(warehouse, role, jit)
    const applied = [zone, compiling].flatMap((setting) =>
      setting?.refused === undefined ? (setting?.statement ?? []) : [],
    )
    const statements = [...granted, ...applied]
    const { relations, closed, problems } = await verifyReader(warehouse, role, [
      warehouse.opsSchema,
      queueSchema(warehouse),
    ])
    const ok = problems.length === 0
    const time_zone = zone === undefined ? 'kept' : (zone.refused ?? 'UTC')
    session.print(
      {
        ok,
        role,
        schema: warehouse.schema,
        relations,
        closed,
        statements,
        problems,
        time_zone,
        jit: compiling === undefined ? 'kept' : (compiling.refused ?? 'off'),
      },
      [
        ...statements.map((statement) => `${statement};`),
        '',
        ...problems.map((problem) => `✗ ${problem}`),
        ok
          ? `Checked: ${role} reads all ${relations} tables and views of ${warehouse.schema}, and those that are made there later; ` +
            `it can write nothing, and ${closed.join(' and ')} ${closed.length === 1 ? 'is' : 'are'} closed to it.`
          : 'The statements were run, but the role may do more or less than it should: fix what is marked ✗ and run the command again.',
        aboutTimeZone(zone),
        ...aboutJit(compiling),
      ].join('\n'),
    )
    return ok ? 0 : 1
  } finally {
    await database.close()
  }
}

function aboutTimeZone(zone: AppliedSetting | undefined): string {
  if (zone === undefined)
    return 'Its time zone was left as it is: if that is not UTC, BI tools may show days and weeks one day off.'
  if (zone.refused === undefined)
    return 'It reads this database in UTC, so that BI tools show days and weeks as they are; --keep-timezone leaves that alone.'
  return `Its time zone could not be set (${zone.refused}). If it is not UTC, BI tools may show days and weeks one day off; somebody who may change the role can run:\n${zone.statement};`
}

function aboutJit(jit: AppliedSetting | undefined): string[] {
  if (jit === undefined) return []
  if (jit.refused === undefined)
    return [
      'Its queries are not compiled (jit = off), which would take longer than to run them; --keep-settings leaves that alone.',
    ]
  return [
    `JIT could not be switched off for it (${jit.refused}). Its queries may take seconds longer; somebody who may change the role can run:\n${jit.statement};`,
  ]
}
