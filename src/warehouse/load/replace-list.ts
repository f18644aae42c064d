import { quote } from '../../core/identifier.ts'
import type { Dimension } from '../../core/vocabulary.ts'
import { PackedRows } from '../../rows/packed-rows.ts'
import type { ListStream, Row } from '../../streams/stream.ts'
import { tableName, type Warehouse } from '../connect.ts'
import { literal, type Statement, type Transaction } from '../transaction.ts'
import { RowHashes, readSnapshot, type Snapshot, type SnapshotRow, snapshotSql } from './row-digest.ts'
import { type Stage, stageRows } from './stage.ts'
import type { Effect } from './window-effect.ts'

export interface ListEffect extends Omit<Effect, 'byDay' | 'rowsByDay' | 'movedFrom' | 'robbed'> {
  /** How many rows the list has afterwards. */
  rows: number
  held: { present: number; vanishing: number } | undefined
  /** Dimensions by which prompts are in other groups now. */
  regrouped: Dimension[]
}

type Child = NonNullable<ListStream['children']>[number]

interface ListLoad {
  projectId: string
  stream: ListStream
  rows: PackedRows
  /** The rows of child tables, by table. */
  children: ReadonlyMap<string, Row[]>
  mayDelete: boolean
  acceptDeletes: boolean
}

/**
 * Makes a project's list equal to the answer. Vanished rows are marked with `removed_at`, and unmarked when they come back. A
 * list that has the rows of the answer already is not staged: that would cost more than all else of a run without changes.
 */
export async function replaceList(
  tx: Transaction,
  load: ListLoad,
  before: readonly Snapshot[] = [],
): Promise<ListEffect> {
  const { client } = tx
  const { projectId, stream } = load
  if (isAsAnswered(before, load)) {
    const { length } = load.rows
    return { inserted: 0, updated: 0, deleted: 0, unchanged: length, rows: length, held: undefined, regrouped: [] }
  }
  const sql = await stageRows(client, tx, stream, load.rows)
  const statements = listStatements(sql, stream)
  const { rows } = await client.query<{ present: number; inserted: number; vanishing: number; updated: number }>(
    statements.compare,
    [projectId],
  )
  const { present, inserted, vanishing, updated } = rows[0]!
  const held = vanishing * 2 > present && !load.acceptDeletes ? { present, vanishing } : undefined
  // A held list is left exactly as it was.
  if (held !== undefined)
    return { inserted: 0, updated: 0, deleted: 0, unchanged: 0, rows: present, held, regrouped: [] }
  const deleted = load.mayDelete ? vanishing : 0
  if (deleted > 0) await client.query(statements.remove, [projectId])
  // Windows that load meanwhile may add rows to a shared table: those are updated like rows that were there before.
  const added = inserted > 0 ? await insertListed(tx, sql, stream, projectId) : 0
  if (updated > 0 || added < inserted) await client.query(statements.update, [projectId])
  let changes = inserted + updated
  for (const child of stream.children ?? []) {
    changes += await replaceChildren(tx, load, { child, parents: sql.stage })
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

function listStatements(sql: Stage, stream: ListStream) {
  // Rows that the list never showed, of what reports mention, are not missing from it.
  const listed = isListed(stream)
  const { hasUnlistedRows } = stream
  const changed = `(t.removed_at is not null ${hasUnlistedRows ? 'or t.listed_at is null' : ''} or ${sql.valuesDiffer})`
  const sets = [sql.assignments, 'removed_at = null', hasUnlistedRows ? 'listed_at = coalesce(t.listed_at, now())' : '']
  return {
    compare: `select count(t.project_id) filter (where ${listed}) as present,
       count(*) filter (where t.project_id is null) as inserted,
       count(*) filter (where s.project_id is null and ${listed}) as vanishing,
       count(*) filter (where t.project_id is not null and s.project_id is not null and ${changed}) as updated
     from (select * from ${sql.table} where project_id = $1) t full join ${sql.stage} s on ${sql.keysMatch}`,
    remove: `update ${sql.table} t set removed_at = now()
       where t.project_id = $1 and ${listed} and not exists (select from ${sql.stage} s where ${sql.keysMatch})`,
    update: `update ${sql.table} t set ${sets.filter((set) => set !== '').join(', ')} from ${sql.stage} s
       where t.project_id = $1 and ${sql.keysMatch} and ${changed}`,
  }
}

/** Inserts what is new. Returns how many rows that were. */
async function insertListed(
  { client }: Transaction,
  sql: Stage,
  stream: ListStream,
  projectId: string,
): Promise<number> {
  const names = sql.names.join(', ')
  const { rowCount } = await client.query(
    `insert into ${sql.table} (${names}${stream.hasUnlistedRows ? ', listed_at' : ''})
     select ${names}${stream.hasUnlistedRows ? ', now()' : ''} from ${sql.stage} s
     where not exists (select from ${sql.table} t where t.project_id = $1 and ${sql.keysMatch})
     order by ${['project_id', ...stream.key].map((name) => quote(name)).join(', ')}
     ${stream.hasUnlistedRows ? 'on conflict do nothing' : ''}`,
    [projectId],
  )
  return rowCount ?? 0
}

/** The children of every listed parent become those of the answer; those of removed parents stay as they were last seen. Returns how many changed. */
async function replaceChildren(
  tx: Transaction,
  load: ListLoad,
  { child, parents }: { child: Child; parents: string },
): Promise<number> {
  const target = { table: child.table, columns: child.columns, key: child.columns.map(({ name }) => name) }
  const rows = childRows(load, child)
  const { client } = tx
  const sql = await stageRows(client, tx, target, rows)
  const { rowCount: deleted } = await client.query(
    `delete from ${sql.table} t using ${parents} p
     where t.project_id = $1 and p.${child.parent} = t.${child.parent} and not exists (select from ${sql.stage} s where ${sql.keysMatch})`,
    [load.projectId],
  )
  const { rowCount: inserted } = await client.query(
    `insert into ${sql.table} (${sql.names.join(', ')}) select ${sql.names.join(', ')} from ${sql.stage} s
     where not exists (select from ${sql.table} t where t.project_id = $1 and ${sql.keysMatch})`,
    [load.projectId],
  )
  return (deleted ?? 0) + (inserted ?? 0)
}

/**
 * Keeps what each prompt of a project was, in the transaction that changed it. Prompts that did not change are only
 * compared. One that is no longer listed keeps its open row: it still means what it meant. Returns by which dimensions prompts changed.
 */
async function savePromptHistory({ client, schema }: Transaction, projectId: string): Promise<Dimension[]> {
  const table = (name: string) => quote(schema, name)
  const now = `(
    select p.project_id, p.prompt_id, p.text, p.topic_id, p.country_code, array(
      select t.tag_id from ${table('prompt_tags')} t where t.project_id = p.project_id and t.prompt_id = p.prompt_id order by 1
    ) as tags
    from ${table('prompts')} p where p.project_id = $1
  ) n`
  const open = 'h.project_id = $1 and h.prompt_id = n.prompt_id and h.valid_to is null'
  const { rows: changed } = await client.query<Partial<Record<Dimension, boolean>>>(
    // The time at which it is seen: transactions that began earlier may come later.
    `update ${table('prompt_history')} h set valid_to = greatest(clock_timestamp(), h.valid_from + interval '1 microsecond')
     from ${now} where ${open}
       and (h.text, h.topic_id, h.tags, h.country_code) is distinct from (n.text, n.topic_id, n.tags, n.country_code)
     returning h.topic_id is distinct from n.topic_id as topic_id, h.tags <> n.tags as tag_id,
       h.country_code is distinct from n.country_code as country_code`,
    [projectId],
  )
  await client.query(
    `insert into ${table('prompt_history')} (project_id, prompt_id, text, topic_id, tags, country_code, valid_from)
     select n.project_id, n.prompt_id, n.text, n.topic_id, n.tags, n.country_code, coalesce(
       (select max(h.valid_to) from ${table('prompt_history')} h where h.project_id = $1 and h.prompt_id = n.prompt_id),
       clock_timestamp())
     from ${now} where not exists (select from ${table('prompt_history')} h where ${open})`,
    [projectId],
  )
  return (['topic_id', 'tag_id', 'country_code'] as const).filter((name) => changed.some((prompt) => prompt[name]))
}

function childRows({ projectId, children }: ListLoad, { table, columns }: Child): PackedRows {
  return PackedRows.of(columns, projectId, children.get(table) ?? [])
}

/** The rows of a list and of its child tables, as they are. */
export function listSnapshots(warehouse: Warehouse, projectId: string, stream: ListStream): Statement<Snapshot[]> {
  const rowsOf = (table: string) => `${tableName(warehouse, table)} t where t.project_id = ${literal(projectId)} and`
  const listed = `${rowsOf(stream.table)} ${isListed(stream)}`
  const ofChildren = (stream.children ?? []).map(({ table, columns, parent }) =>
    snapshotSql(columns, `${rowsOf(table)} t.${parent} in (select t.${parent} from ${listed})`),
  )
  const sql = [snapshotSql(stream.columns, listed), ...ofChildren].join('\nunion all ')
  return { sql, read: (rows: SnapshotRow[]) => rows.map(readSnapshot) }
}

/** True if the list and its child tables have the rows of the answer, each with the same values. */
function isAsAnswered(before: readonly Snapshot[], load: ListLoad): boolean {
  const answered = [load.rows, ...(load.stream.children ?? []).map((child) => childRows(load, child))]
  const isSame = ({ count, digest }: Snapshot, rows: PackedRows) =>
    count === rows.length && digest === new RowHashes(rows).digest()
  return before.length === answered.length && before.every((snapshot, at) => isSame(snapshot, answered[at]!))
}

/** Rows of the table (t) that are on the list: not removed and, where reports mention others, shown by it. */
function isListed({ hasUnlistedRows }: Pick<ListStream, 'hasUnlistedRows'>): string {
  return hasUnlistedRows ? 't.removed_at is null and t.listed_at is not null' : 't.removed_at is null'
}
