import { sql } from 'kysely'
import { messageOf } from '../core/errors.ts'
import { quote } from '../core/identifier.ts'
import type { Log } from '../core/logger.ts'
import { sleep } from '../core/sleep.ts'
import { type BudgetView, createBudget, type Permit, pauseOf, type RequestBudget } from '../source/budget.ts'
import type { RateHeaders } from '../source/rate-headers.ts'
import { LONGEST_WAIT_MS } from '../source/retry-delay.ts'
import type { Warehouse } from '../warehouse/connect.ts'

// Another process may give something back or learn something meanwhile, so nobody sleeps through a whole period.
const LONGEST_NAP_MS = 1000

/**
 * The request budget of one project, kept in the warehouse and shared by every process that reads the project. All of
 * them learn from the answers that any of them gets. Where the database cannot be asked, the process keeps to a budget
 * of its own until it can.
 */
export function createSharedBudget(
  warehouse: Warehouse,
  projectId: string,
  requestsPerMinute: number,
  log: Log,
): RequestBudget {
  const alone = createBudget(requestsPerMinute)
  const functionName = (name: string) => quote(warehouse.opsSchema, name)
  let shown: Omit<BudgetView, 'waits'> = { limit: requestsPerMinute, remaining: undefined }
  let waits = 0
  let taught = false
  let lastLesson: Promise<unknown> = Promise.resolve()

  function learn(request: number, headers: RateHeaders, refused: boolean): void {
    const { limit, remaining, resetMs } = headers
    const pauseMs = pauseOf(headers, refused)
    // A service that never tells its limits is counted by what was sent; there is nothing to tell the others.
    taught ||= limit !== undefined || remaining !== undefined
    if (!taught && pauseMs === undefined) return
    const whole = (value: number | undefined) => (value === undefined ? null : Math.floor(value))
    lastLesson = warehouse.pool
      .query(`select ${functionName('learn_answer')}($1, $2, $3, $4, $5, $6)`, [
        projectId,
        request,
        whole(limit),
        whole(remaining),
        resetMs === undefined ? null : Math.min(resetMs, LONGEST_WAIT_MS),
        pauseMs ?? null,
      ])
      .catch((error: unknown) => log.debug({ reason: messageOf(error) }, 'the shared budget was not told'))
  }

  return {
    async take(signal): Promise<Permit> {
      for (;;) {
        await lastLesson
        signal?.throwIfAborted()
        const answer = await warehouse.pool
          .query<{ request: number | null; wait_ms: number; per_minute: number; remaining: number | null }>(
            `select * from ${functionName('take_request')}($1, $2)`,
            [projectId, requestsPerMinute],
          )
          .catch((error: unknown) => {
            log.debug({ reason: messageOf(error) }, 'the shared budget cannot be asked; this process keeps to its own')
          })
        const told = answer?.rows[0]
        if (told === undefined) return alone.take(signal)
        shown = { limit: told.per_minute, remaining: shownLeft(told.remaining) }
        const { request } = told
        if (request !== null) {
          return {
            learn: (headers, refused) => learn(request, headers, refused),
            drop: () => learn(request, {}, false),
          }
        }
        waits++
        await sleep(Math.min(told.wait_ms, LONGEST_NAP_MS) + Math.random() * 20, signal)
      }
    },

    view: () => ({ ...shown, waits }),
  }
}

/** How long the next request of a project would have to wait, as far as is known; by the clock of the database. */
export async function budgetWaitMs(warehouse: Warehouse, projectId: string): Promise<number> {
  const ops = (table: string) => quote(warehouse.opsSchema, table)
  const { rows } = await warehouse.pool.query<{ wait_ms: number }>(
    `select 1000 * extract(epoch from greatest(
         case when remaining <= 0 then resets_at end, paused_until, case when remaining is null then full_until end, now()
       ) - now())::float8 as wait_ms
     from ${ops('budgets')} b cross join lateral (
       select case when count(*) >= b.per_minute then min(sent_at) + interval '1 minute' end as full_until
       from ${ops('budget_requests')} r
       where r.project_id = b.project_id and r.sent_at > greatest(b.counted_from, now() - interval '1 minute')
     ) sent
     where b.project_id = $1`,
    [projectId],
  )
  return rows[0]?.wait_ms ?? 0
}

/** What is left for each project, as the service last told any of the processes. */
export async function readBudgets({ ops }: Warehouse): Promise<Map<string, BudgetView>> {
  // By the clock of the database, which wrote down when the period ends.
  const rows = await ops
    .selectFrom('budgets')
    .select(['project_id', 'per_minute', sql<number | null>`case when resets_at > now() then remaining end`.as('left')])
    .execute()
  return new Map(
    rows.map(({ project_id, per_minute, left }) => [
      project_id,
      { limit: per_minute, remaining: shownLeft(left), waits: 0 },
    ]),
  )
}

/** Below zero where requests under way may have been counted already; nobody needs to know how far. */
function shownLeft(remaining: number | null): number | undefined {
  return remaining === null ? undefined : Math.max(0, remaining)
}
