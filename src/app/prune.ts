import { rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { chosenDatabase, EMBEDDED } from '../core/config/choose-source.ts'
import type { Config } from '../core/config/load.ts'
import type { Clock } from '../core/day.ts'
import { messageOf } from '../core/errors.ts'
import type { Log } from '../core/logger.ts'
import { monotonic } from '../core/waiting.ts'
import { hasLedger } from '../ledger/days.ts'
import { pruneLedger } from '../ledger/retention.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { settingHint } from '../warehouse/database-failure.ts'
import { dataFolder } from './open-services.ts'

// After each run for so long; what is left, the next run removes.
const LIMIT_MS = 2000

/** Keeps the ledger and the logs from growing for ever. It comes after a run and cannot fail it. */
export async function pruneAfterRun(
  { config, log, clock }: { config: Config; log: Log; clock: Clock },
  warehouse: Warehouse,
  signal?: AbortSignal,
): Promise<void> {
  if (signal?.aborted) return
  const now = clock()
  try {
    // A run that was refused before it created any table has nothing to prune.
    if (!(await hasLedger(warehouse))) return
    const pruned = await pruneLedger(warehouse, config.retention, { now, monotonic, limitMs: LIMIT_MS, signal })
    if (Object.keys(pruned).length > 0) log.info(pruned, 'ledger pruned')
    await pruneLogs(config, now)
  } catch (error) {
    // The run was refused for the same reason.
    if (settingHint(error) !== undefined) return
    log.warn({ reason: messageOf(error) }, 'the ledger could not be pruned')
  }
}

/** Logs are cut by their size; of what was cut off, the older part goes by its age. */
async function pruneLogs(config: Config, now: Date): Promise<void> {
  const oldest = now.getTime() - config.retention.logs_days * 86_400_000
  const files = [
    ...(chosenDatabase(config) === EMBEDDED ? [join(dataFolder(config), 'postgres.log.1')] : []),
    ...(config.lineage.file === undefined ? [] : [`${config.lineage.file}.1`]),
  ]
  for (const file of files) {
    const found = await stat(file).catch(() => undefined)
    if (found !== undefined && found.mtimeMs < oldest) await rm(file, { force: true })
  }
}
