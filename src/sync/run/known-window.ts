import type { Range } from '../../core/day.ts'
import { quote } from '../../core/identifier.ts'
import type { ProjectStream } from '../../core/stream-key.ts'
import type { BegunRead } from '../../ledger/coverage.ts'
import type { DayStream } from '../../streams/stream.ts'
import { tableName } from '../../warehouse/connect.ts'
import { withRetries } from '../../warehouse/retry.ts'
import type { KnownWindow } from '../read/window-request.ts'
import type { Run } from './run-types.ts'

// Prompts change from month to month: what a day long ago had says little.
const NEAR_DAYS = 31

/** What the warehouse knows of a window before it is read. */
export function knownWindow(
  { warehouse, provisionalFrom, signal }: Run,
  { projectId, stream: name }: ProjectStream,
  { stream, range, before }: { stream: DayStream; range: Range; before: BegunRead },
): Omit<KnownWindow, 'needsProof'> {
  const query = async <R extends object>(sql: string, values: unknown[]): Promise<R[]> => {
    const { rows } = await withRetries(warehouse, signal, () => warehouse.pool.query<R>(sql, values))
    return rows
  }
  return {
    rows: before.rowsBefore,
    rowsByDay: before.rowsBeforeByDay,
    provisionalFrom,

    async valuesOf(dimension) {
      if (dimension !== 'prompt_id') return []
      const prompts = tableName(warehouse, 'prompts')
      const rows = await query<{ value: string }>(`select prompt_id as value from ${prompts} where project_id = $1`, [
        projectId,
      ])
      return rows.map(({ value }) => value)
    },

    async sizesOf(dimension, atLeast) {
      const rows = await query<{ value: string; rows: number }>(
        `select ${quote(dimension)} as value, count(*) as rows from ${tableName(warehouse, stream.table)}
         where project_id = $1 and ${quote(dimension)} is not null and date = (
           select date from (
             select date, rows from ${quote(warehouse.opsSchema, 'coverage')}
             where project_id = $1 and stream = $2 and (rows > 0 or date = $3)
               and date between $3::date - ${NEAR_DAYS} and $3::date + ${NEAR_DAYS}
             order by abs(date - $3::date), date limit 1) nearest
           where rows >= $4)
         group by 1`,
        [projectId, name, range.from, atLeast],
      )
      return new Map(rows.map(({ value, rows: count }) => [value, count]))
    },
  }
}
