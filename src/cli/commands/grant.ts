import { queueSchema } from '../../queue/boss.ts'
import { grantReader } from '../../warehouse/grant-reader.ts'
import { migrate } from '../../warehouse/migrate.ts'
import { verifyReader } from '../../warehouse/verify-reader.ts'
import { openWarehouse } from '../open.ts'
import type { Session } from '../session.ts'

/** `grant`: read access for a BI tool's role, checked in the database before anything is claimed of it. */
export async function grant(session: Session, { role }: { role: string }): Promise<number> {
  const database = await openWarehouse(session.config, session.log)
  try {
    const { warehouse } = database
    await migrate(warehouse, session.config)
    const statements = await grantReader(warehouse, role)
    const { relations, closed, problems } = await verifyReader(warehouse, role, [
      warehouse.opsSchema,
      queueSchema(warehouse),
    ])
    const ok = problems.length === 0
    session.print(
      { ok, role, schema: warehouse.schema, relations, closed, statements, problems },
      [
        ...statements.map((statement) => `${statement};`),
        '',
        ...problems.map((problem) => `✗ ${problem}`),
        ok
          ? `Checked: ${role} reads all ${relations} tables and views of ${warehouse.schema}, and those that are made there later; ` +
            `it can write nothing, and ${closed.join(' and ')} ${closed.length === 1 ? 'is' : 'are'} closed to it.`
          : 'The statements were run, but the role may do more or less than it should: mend what is marked ✗ and run the command again.',
      ].join('\n'),
    )
    return ok ? 0 : 1
  } finally {
    await database.close()
  }
}
