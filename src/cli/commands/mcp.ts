import { openWarehouse, requireDatabase } from '../../app/open-services.ts'
import { untilStopped } from '../../core/waiting.ts'
import type { Session } from '../session.ts'

export async function mcp(session: Session): Promise<number> {
  const [{ answerOnStdio }, database] = await Promise.all([import('../../mcp/server.ts'), openMcpDatabase(session)])
  try {
    await answerOnStdio(session, database.warehouse, session, untilStopped(session.signal))
    return 0
  } finally {
    await database.close()
  }
}

/** The database, with the role for assistants if one is configured. If it is away, each question ends with an error that says so. */
export function openMcpDatabase({ config, log, signal }: Session) {
  const url = config.mcp.database_url ?? config.warehouse.url
  const chosen = { ...config, warehouse: { ...config.warehouse, ...(url !== undefined && { url }) } }
  requireDatabase(chosen)
  return openWarehouse(chosen, log, { unchecked: true, signal })
}
