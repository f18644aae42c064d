import type { Day, Range } from '../core/day.ts'
import { quote } from '../core/identifier.ts'
import type { DayStream } from '../streams/stream.ts'
import { slowQuery, tableName, type Warehouse } from '../warehouse/connect.ts'
import type { Transaction } from '../warehouse/transaction.ts'
import { filtersText } from './control-totals.ts'

/* Which days were compared with the control totals, and which have to be compared or read again. */

/** Days that were read and never compared, as in a warehouse that an older version filled. */
export async function uncomparedDays(
  { pool, opsSchema }: Warehouse,
  { projectId, stream }: { projectId: string; stream: DayStream },
  { from, to }: Range,
): Promise<Day[]> {
  const { rows } = await pool.query<{ date: Day }>(
    `select date from ${quote(opsSchema, 'coverage')}
     where project_id = $1 and stream = $2 and date between $3 and $4 and state = 'read' and reconciled_at is null`,
    [projectId, stream.name, from, to],
  )
  return rows.map(({ date }) => date)
}

/** Writes down that these days add up to the stored control totals, if the stream can be compared with any. */
export async function markReconciled(
  { pool, opsSchema }: Warehouse,
  { projectId, stream, days }: { projectId: string; stream: DayStream; days: readonly Day[] },
): Promise<void> {
  await pool.query(
    `update ${quote(opsSchema, 'coverage')} c
     set reconciled_at = now(), counts_digest = t.counts_digest, answers_digest = t.answers_digest
     from unnest($3::date[]) d(date) left join ${quote(opsSchema, 'control_totals')} t
       on t.project_id = $1 and t.filters = $4 and t.date = d.date
     where c.project_id = $1 and c.stream = $2 and c.date = d.date and c.state = 'read' and c.reconciled_at is null`,
    [projectId, stream.name, days, filtersText(stream.filters)],
  )
}

interface Differing {
  projectId: string
  streams: readonly DayStream[]
  days: readonly Day[]
}

/**
 * Marks the days of streams that no longer add up to the stored control totals as stale, so that they are read again. Reports
 * that cannot be compared are marked on all of these days.
 */
export async function markDiffering(tx: Transaction, { projectId, streams, days }: Differing): Promise<void> {
  if (days.length === 0) return
  for (const stream of streams) {
    await tx.client.query(
      `update ${quote(tx.opsSchema, 'coverage')} c set state = 'stale'
       where c.project_id = $1 and c.stream = $2 and c.date = any($3::date[]) and c.state = 'read'
         and $4::text is not null and ${stream.control === undefined ? 'true' : differs(tx, stream)}`,
      [projectId, stream.name, days, filtersText(stream.filters)],
    )
  }
}

/**
 * Finds final days that a run read, or showed to be stale, and that differ from the control totals at its end: these changed after
 * the days were compared. Nothing shows which totals were right, so the days are marked as unreconciled.
 */
export async function markOvertaken(
  { pool, opsSchema }: Warehouse,
  { projectId, stream, runId, before }: { projectId: string; stream: DayStream; runId: number; before: Day },
): Promise<{ date: Day; difference: string }[]> {
  const { rows } = await pool.query<{ date: Day; difference: string }>(
    `update ${quote(opsSchema, 'coverage')} c set state = 'unreconciled', reconciled_at = null, difference = case c.state
       when 'stale' then 'the totals of the service changed, and the day was not read again'
       else 'the service answered with other totals after the day was compared' end
     where c.project_id = $1 and c.stream = $2 and c.date < $3 and ${differs({ opsSchema }, stream)}
       and (c.state = 'read' and c.run_id = $5 or c.state = 'stale')
       and exists (select from ${quote(opsSchema, 'control_totals')} r
         where r.project_id = c.project_id and r.filters = $4 and r.date = c.date and r.run_id = $5)
     returning date, difference`,
    [projectId, stream.name, before, filtersText(stream.filters), runId],
  )
  return rows
}

/** Days that a run loaded though they do not add up, because the service may still write them. */
export async function differingProvisionalDays(
  { pool, opsSchema }: Warehouse,
  { projectIds, streams, runId, from }: { projectIds: string[]; streams: string[]; runId: number; from: Day },
): Promise<{ stream: string; date: Day; difference: string }[]> {
  const { rows } = await pool.query<{ stream: string; date: Day; difference: string }>(
    `select stream, date, difference from ${quote(opsSchema, 'coverage')}
     where project_id = any($1) and stream = any($2) and date >= $4 and run_id = $3 and state = 'read'
       and difference is not null order by date, stream`,
    [projectIds, streams, runId, from],
  )
  return rows
}

/**
 * True in SQL if the coverage `c` of a day differs from the control totals of its project under the filters $4. A day of chats
 * with rejected rows has fewer rows than the totals say, so it differs only if the totals changed since it was compared.
 */
function differs({ opsSchema }: Pick<Warehouse, 'opsSchema'>, { control, name }: DayStream): string {
  const isAdditive = (measure: string) =>
    `not exists (select from ${quote(opsSchema, 'not_additive')} n
       where n.project_id = c.project_id and n.stream = '${name}' and n.measure in ('counts', '${measure}'))`
  const condition =
    control === 'answers'
      ? `c.rows <> t.answers and c.answers_digest is distinct from t.answers_digest and ${isAdditive('answers')}`
      : `(c.counts_digest is distinct from t.counts_digest and ${isAdditive('counts')}
          or c.answers_digest is distinct from t.answers_digest and ${isAdditive('answers')})`
  return `exists (select from ${quote(opsSchema, 'control_totals')} t
    where t.project_id = c.project_id and t.filters = $4 and t.date = c.date and t.counts_digest is not null and ${condition})`
}

/** The days on which a prompt has another number of chats than a report by prompt has answers. */
export async function daysWithOtherPrompts(
  warehouse: Warehouse,
  of: { projectId: string; chats: DayStream; report: DayStream; days: readonly Day[] },
): Promise<Day[]> {
  const group = ['date', ...of.report.dimensions!].map((name) => quote(name)).join(', ')
  const query = `with answers as (
      select date, coalesce(prompt_id, '') as prompt_id, sum(answers) as answers from (
        select ${group}, max(visibility_total) as answers from ${tableName(warehouse, of.report.table)}
        where project_id = $1 and date = any($2::date[]) group by ${group}
      ) g group by 1, 2
    ), chats as (
      select date, coalesce(prompt_id, '') as prompt_id, count(*) as chats from ${tableName(warehouse, of.chats.table)}
      where project_id = $1 and date = any($2::date[]) group by 1, 2
    )
    select date from answers a full join chats c using (date, prompt_id)
    group by date having bool_or(coalesce(a.answers, 0) <> coalesce(c.chats, 0))`
  const { rows } = await warehouse.pool.query<{ date: Day }>(slowQuery(query, [of.projectId, of.days]))
  return rows.map(({ date }) => date)
}
