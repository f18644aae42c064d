import { grantReader } from '../../warehouse/grant-reader.ts'
import { migrate } from '../../warehouse/migrate.ts'
import { readInUtc, type TimeZoneResult } from '../../warehouse/reader-time-zone.ts'
import { openWarehouse } from '../open.ts'
import type { Session } from '../session.ts'

/** `grant`: read access for a BI tool's role. */
export async function grant(
  session: Session,
  { role, keepTimezone = false }: { role: string; keepTimezone?: boolean },
): Promise<number> {
  const database = await openWarehouse(session.config, session.log)
  try {
    const { warehouse } = database
    await migrate(warehouse, session.config)
    const granted = await grantReader(warehouse, role)
    const zone = keepTimezone ? undefined : await readInUtc(warehouse, role)
    const statements = [...granted, ...(zone !== undefined && zone.refused === undefined ? [zone.statement] : [])]
    session.print(
      { role, schema: warehouse.schema, statements, time_zone: zone === undefined ? 'kept' : (zone.refused ?? 'UTC') },
      [
        ...statements.map((statement) => `${statement};`),
        '',
        `${role} reads ${warehouse.schema}, and tables that are made there later; ${warehouse.opsSchema} stays closed to it.`,
        aboutTimeZone(zone),
      ].join('\n'),
    )
    return 0
  } finally {
    await database.close()
  }
}

function aboutTimeZone(zone: TimeZoneResult | undefined): string {
  if (zone === undefined)
    return 'Its time zone was left as it is: where that is not UTC, BI tools may show days and weeks one day off.'
  if (zone.refused === undefined)
    return 'It reads this database in UTC, so that BI tools show days and weeks as they are; --keep-timezone leaves that alone.'
  return `Its time zone could not be set (${zone.refused}). Where it is not UTC, BI tools may show days and weeks one day off; somebody who may change the role can run:\n${zone.statement};`
}
