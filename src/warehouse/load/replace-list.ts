import { type RawBuilder, type SqlBool, sql } from 'kysely'
import type { Range } from '../../core/day.ts'
import type { Dimension } from '../../core/vocabulary.ts'
import { PackedRows } from '../../rows/packed-rows.ts'
import type { ListStream, Row } from '../../streams/stream.ts'
import { dataTable } from '../database.ts'
import type { Transaction } from '../transaction.ts'
import { RowHashes, type Snapshot, type SnapshotRow, snapshotOf } from './row-digest.ts'
import { type Stage, stageRows } from './stage.ts'
import type { Effect } from './window-effect.ts'

export interface ListEffect extends Omit<Effect, 'byDay' | 'rowsByDay' | 'movedFrom' | 'robbed'> {
  rows: number
  held: { present: number; vanishing: number; range?: Range } | undefined
  /** Dimensions by which prompts are in other groups now. */
  regrouped: Dimension[]
}

const NOTHING = { inserted: 0, updated: 0, deleted: 0, unchanged: 0, held: undefined, regrouped: [] }

type Child = NonNullable<ListStream['children']>[number]

interface ListLoad {
  projectId: string
  stream: ListStream
  rows: PackedRows
  children: ReadonlyMap<string, Row[]>
  mayDelete: boolean
  acceptDeletes: boolean
}

/**
 * Vanished rows are marked with `removed_at`, and unmarked when they come back. A list that has the rows of the answer already
 * is not staged: that would cost more than all else of a run without changes.
 */
export async function replaceList(
  tx: Transaction,
  load: ListLoad,
  before: readonly Snapshot[] = [],
): Promise<ListEffect> {
  const { db } = tx
  const { projectId, stream } = load
  if (isAsAnswered(before, load)) {
    const { length } = load.rows
    return { ...NOTHING, unchanged: length, rows: length }
  }
  const staged = await stageRows(tx, stream, load.rows)
  const statements = listStatements(staged, stream, projectId)
  const { rows } = await statements.compare.execute(db)
  const { present, inserted, vanishing, updated } = rows[0]!
  const held = vanishing * 2 > present && !load.acceptDeletes ? { present, vanishing } : undefined
  if (held !== undefined) return { ...NOTHING, rows: present, held }
  const deleted = load.mayDelete ? vanishing : 0
  if (deleted > 0) await statements.remove.execute(db)
  // Windows that load meanwhile may add rows to a shared table: those are updated like rows that were there before.
  const added = inserted > 0 ? await insertListed(tx, staged, stream, projectId) : 0
  if (updated > 0 || added < inserted) await statements.update.execute(db)
  let changes = inserted + updated
  for (const child of stream.children ?? []) {
    changes += await replaceChildren(tx, load, { child, parents: staged.stage })
  }
  const hasHistory = stream.table === 'prompts' && changes > 0
  const regrouped = hasHistory ? await savePromptHistory(tx, projectId) : []
  return {
    inserted: added,
    updated: updated + inserted - added,
    deleted,
    unchanged: load.rows.length - inserted - updated,
    rows: load.rows.length + vanishing - deleted,
    held,
    regrouped,
  }
}

function listStatements({ table, stage, keysMatch, ...staged }: Stage, stream: ListStream, projectId: string) {
  // Rows that the list never showed, of what reports mention, are not missing from it.
  const isOnList = isListed(stream)
  const { hasUnlistedRows } = stream
  const isChanged = sql`(t.removed_at is not null ${hasUnlistedRows ? sql`or t.listed_at is null` : sql``} or ${staged.valuesDiffer})`
  const sets = [...staged.assignments, sql`removed_at = null`]
  if (hasUnlistedRows) sets.push(sql`listed_at = coalesce(t.listed_at, now())`)
  type Counts = { present: number; inserted: number; vanishing: number; updated: number }
  return {
    compare: sql<Counts>`
      select count(t.project_id) filter (where ${isOnList}) as present,
        count(*) filter (where t.project_id is null) as inserted,
        count(*) filter (where s.project_id is null and ${isOnList}) as vanishing,
        count(*) filter (where t.project_id is not null and s.project_id is not null and ${isChanged}) as updated
      from (select * from ${table} where project_id = ${projectId}) t full join ${stage} s on ${keysMatch}`,
    remove: sql`
      update ${table} t set removed_at = now()
      where t.project_id = ${projectId} and ${isOnList} and not exists (select from ${stage} s where ${keysMatch})`,
    update: sql`
      update ${table} t set ${sql.join(sets)} from ${stage} s
      where t.project_id = ${projectId} and ${keysMatch} and ${isChanged}`,
  }
}

async function insertListed(
  { db }: Transaction,
  { table, stage, names, keysMatch }: Stage,
  { key, hasUnlistedRows }: ListStream,
  projectId: string,
): Promise<number> {
  const order = ['project_id', ...key].map((name) => sql.id(name))
  const { numAffectedRows } = await sql`
    insert into ${table} (${names}${hasUnlistedRows ? sql`, listed_at` : sql``})
    select ${names}${hasUnlistedRows ? sql`, now()` : sql``} from ${stage} s
    where not exists (select from ${table} t where t.project_id = ${projectId} and ${keysMatch})
    order by ${sql.join(order)}
    ${hasUnlistedRows ? sql`on conflict do nothing` : sql``}`.execute(db)
  return Number(numAffectedRows ?? 0)
}

/** Those of removed parents stay as they were last seen. Returns how many changed. */
async function replaceChildren(
  tx: Transaction,
  load: ListLoad,
  { child, parents }: { child: Child; parents: Stage['stage'] },
): Promise<number> {
  const { projectId } = load
  const target = { table: child.table, columns: child.columns, key: child.columns.map(({ name }) => name) }
  const { table, stage, names, keysMatch } = await stageRows(tx, target, childRows(load, child))
  const isOfParent = sql`p.${sql.id(child.parent)} = t.${sql.id(child.parent)}`
  const { numAffectedRows: deleted = 0n } = await sql`
    delete from ${table} t using ${parents} p
    where t.project_id = ${projectId} and ${isOfParent}
      and not exists (select from ${stage} s where ${keysMatch})`.execute(tx.db)
  const { numAffectedRows: inserted = 0n } = await sql`
    insert into ${table} (${names}) select ${names} from ${stage} s
    where not exists (select from ${table} t where t.project_id = ${projectId} and ${keysMatch})`.execute(tx.db)
  return Number(deleted + inserted)
}

/** A prompt that is no longer listed keeps its open row: it still means what it meant. Returns by which dimensions prompts changed. */
async function savePromptHistory({ db }: Transaction, projectId: string): Promise<Dimension[]> {
  const now = sql`(
    select p.project_id, p.prompt_id, p.text, p.topic_id, p.country_code, array(
      select t.tag_id from data.prompt_tags t
      where t.project_id = p.project_id and t.prompt_id = p.prompt_id order by 1
    ) as tags
    from data.prompts p where p.project_id = ${projectId}
  ) n`
  const isOpen = sql`h.project_id = ${projectId} and h.prompt_id = n.prompt_id and h.valid_to is null`
  // The time at which it is seen: transactions that began earlier may come later.
  const { rows: changed } = await sql<Partial<Record<Dimension, boolean>>>`
    update data.prompt_history h set valid_to = greatest(clock_timestamp(), h.valid_from + interval '1 microsecond')
    from ${now} where ${isOpen}
      and (h.text, h.topic_id, h.tags, h.country_code) is distinct from (n.text, n.topic_id, n.tags, n.country_code)
    returning h.topic_id is distinct from n.topic_id as topic_id, h.tags <> n.tags as tag_id,
      h.country_code is distinct from n.country_code as country_code`.execute(db)
  await sql`
    insert into data.prompt_history (project_id, prompt_id, text, topic_id, tags, country_code, valid_from)
    select n.project_id, n.prompt_id, n.text, n.topic_id, n.tags, n.country_code, coalesce(
      (select max(h.valid_to) from data.prompt_history h where h.project_id = ${projectId} and h.prompt_id = n.prompt_id),
      clock_timestamp())
    from ${now} where not exists (select from data.prompt_history h where ${isOpen})`.execute(db)
  return (['topic_id', 'tag_id', 'country_code'] as const).filter((name) => changed.some((prompt) => prompt[name]))
}

function childRows({ projectId, children }: ListLoad, { table, columns }: Child): PackedRows {
  return PackedRows.of(columns, projectId, children.get(table) ?? [])
}

export function listSnapshots(projectId: string, stream: ListStream): RawBuilder<SnapshotRow> {
  const rowsOf = (table: string) => sql`${dataTable(table)} t where t.project_id = ${projectId} and`
  const listed = sql`${rowsOf(stream.table)} ${isListed(stream)}`
  const ofChildren = (stream.children ?? []).map(({ table, columns, parent }) => {
    const parentId = sql`t.${sql.id(parent)}`
    return snapshotOf(columns, sql`${rowsOf(table)} ${parentId} in (select ${parentId} from ${listed})`)
  })
  return sql`${sql.join([snapshotOf(stream.columns, listed), ...ofChildren], sql` union all `)}`
}

function isAsAnswered(before: readonly Snapshot[], load: ListLoad): boolean {
  const answered = [load.rows, ...(load.stream.children ?? []).map((child) => childRows(load, child))]
  const isSame = ({ count, digest }: Snapshot, rows: PackedRows) =>
    count === rows.length && digest === new RowHashes(rows).digest()
  return before.length === answered.length && before.every((snapshot, at) => isSame(snapshot, answered[at]!))
}

/** Rows of the table (t) that are on the list: not removed and, where reports mention others, shown by it. */
function isListed({ hasUnlistedRows }: Pick<ListStream, 'hasUnlistedRows'>): RawBuilder<SqlBool> {
  return hasUnlistedRows ? sql`(t.removed_at is null and t.listed_at is not null)` : sql`t.removed_at is null`
}
