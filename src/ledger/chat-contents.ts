import type { Config } from '../core/config/load.ts'
import type { Day, Range } from '../core/day.ts'
import { quote } from '../core/identifier.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import type { Transaction } from '../warehouse/transaction.ts'

/* Which chats are still to be read, and how much of the day's budget is left. */

type Settings = NonNullable<Config['chat_contents']>

export const CONTENTS = 'chat_contents'
/** The status of a chat whose content is in quarantine. */
export const QUARANTINED = 200

/**
 * Chats of the days of interest that are asked for and were not read yet, the newest first, and how many there are in all. A share is taken by a hash of the id: the same chats
 * in every run, and more of them when the share grows.
 */
export async function dueChats(
  { pool, schema, opsSchema }: Warehouse,
  { share, prompts }: Settings,
  { projectId, range: { from, to }, limit }: { projectId: string; range: Range; limit: number },
): Promise<{ ids: string[]; count: number }> {
  const { rows } = await pool.query<{ chat_id: string; whole: number }>(
    `select c.chat_id, count(*) over ()::integer as whole from ${quote(schema, 'chats')} c
     where c.project_id = $1 and c.date between $2 and $3 and ('x' || substr(md5(c.chat_id), 1, 8))::bit(32)::bigint < $5::double precision * 4294967296
       and ($6::text[] is null or c.prompt_id = any($6))
       and not exists (select from ${quote(schema, CONTENTS)} t where t.project_id = c.project_id and t.chat_id = c.chat_id)
       and not exists (select from ${quote(opsSchema, 'unread_chats')} u where u.project_id = c.project_id and u.chat_id = c.chat_id)
     order by c.date desc, c.chat_id limit $4`,
    [projectId, from, to, limit, share ?? 1, prompts ?? null],
  )
  return { ids: rows.map(({ chat_id }) => chat_id), count: rows[0]?.whole ?? 0 }
}

/** A chat whose content was read, to find out whether contents are still offered. */
export async function readChat({ pool, schema }: Warehouse, projectId: string): Promise<string | undefined> {
  const { rows } = await pool.query<{ chat_id: string }>(
    `select chat_id from ${quote(schema, CONTENTS)} where project_id = $1 order by first_seen_at desc limit 1`,
    [projectId],
  )
  return rows[0]?.chat_id
}

export async function usedRequests({ ops }: Warehouse, projectId: string, day: Day): Promise<number> {
  const found = await ops
    .selectFrom('daily_requests')
    .select('requests')
    .where((eb) => eb.and({ project_id: projectId, stream: CONTENTS, day }))
    .executeTakeFirst()
  return found?.requests ?? 0
}

/**
 * Takes requests from the day's budget: as many as wanted, or as there are. They are counted before they are sent, so that
 * neither a crash nor another run makes it more than the budget.
 */
export async function takeRequests(
  { pool, opsSchema }: Warehouse,
  { projectId, day }: { projectId: string; day: Day },
  { wanted, budget }: { wanted: number; budget: number },
): Promise<number> {
  const table = quote(opsSchema, 'daily_requests')
  await pool.query(
    `insert into ${table} (project_id, stream, day, requests) values ($1, $2, $3, 0) on conflict do nothing`,
    [projectId, CONTENTS, day],
  )
  const { rows } = await pool.query<{ taken: number }>(
    `update ${table} t set requests = t.requests + least($4::integer, $5::integer - t.requests)
     from (select requests from ${table} where project_id = $1 and stream = $2 and day = $3 for update) before
     where t.project_id = $1 and t.stream = $2 and t.day = $3 and before.requests < $5
     returning t.requests - before.requests as taken`,
    [projectId, CONTENTS, day, wanted, budget],
  )
  return rows[0]?.taken ?? 0
}

/** Chats that are not asked for again. */
export async function saveUnread(
  { ops }: Transaction,
  projectId: string,
  chats: readonly { id: string; status: number }[],
): Promise<void> {
  if (chats.length === 0) return
  await ops
    .insertInto('unread_chats')
    .values(chats.map(({ id, status }) => ({ project_id: projectId, chat_id: id, status })))
    .onConflict((conflict) => conflict.doNothing())
    .execute()
}
