import { grantReader } from '../../warehouse/grant-reader.ts'
import { migrate } from '../../warehouse/migrate.ts'
import { openWarehouse } from '../open.ts'
import type { Session } from '../session.ts'

/** `grant`: read access for a BI tool's role. */
export async function grant(session: Session, { role }: { role: string }): Promise<number> {
  const database = await openWarehouse(session.config, session.log)
  try {
    const { warehouse } = database
    await migrate(warehouse, session.config)
    const statements = await grantReader(warehouse, role)
    session.print(
      { role, schema: warehouse.schema, statements },
      [
        ...statements.map((statement) => `${statement};`),
        '',
        `${role} reads ${warehouse.schema}, and tables that are made there later; ${warehouse.opsSchema} stays closed to it.`,
      ].join('\n'),
    )
    return 0
  } finally {
    await database.close()
  }
}
