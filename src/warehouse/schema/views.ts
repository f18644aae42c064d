import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { escapeLiteral, type PoolClient } from 'pg'
import type { Config, ReportConfig } from '../../core/config/load.ts'
import { codeOf, messageOf } from '../../core/errors.ts'
import { quote } from '../../core/identifier.ts'
import { packageFile } from '../../core/package-files.ts'
import { BI_VIEWS, type BiView, type Dimension, type ReportSubject } from '../../core/vocabulary.ts'
import type { Warehouse } from '../connect.ts'
import type { Ops } from '../database.ts'
import { VIEWS } from './view-notes.ts'

export interface ViewResult {
  made: BiView[]
  /** Views that were not made or not renewed, and why. */
  left: { name: BiView; reason: string }[]
}

interface Database {
  client: PoolClient
  ops: Ops
}

/**
 * Makes the views for BI from sql/views, those whose report is configured. A view is replaced, never dropped, and only
 * when its text changed: what people built on top of it stays, and nobody waits for a lock on every run.
 */
export async function applyViews(database: Database, warehouse: Warehouse, config: Config): Promise<ViewResult> {
  const there = await relationsIn(database.client, warehouse.schema)
  const fingerprints = await readFingerprints(database.ops)
  const result: ViewResult = { made: [], left: [] }
  for (const name of BI_VIEWS) {
    const { needs, of = 'brands' } = VIEWS[name]
    const report = reportBy(config.reports, needs, of)
    if (report === undefined && needs.length > 0) {
      const subject = of === 'brands' ? '' : ` of ${of}`
      const reason = `needs an unfiltered report${subject} by ${needs.join(', ')}, and none is configured`
      result.left.push({ name, reason })
      continue
    }
    if (there.has(name) && !fingerprints.has(name)) {
      result.left.push({ name, reason: 'has a name that another table or view of this schema took first' })
      continue
    }
    const text = fillIn(readSql(`views/${name}`), warehouse, report?.name)
    if (there.has(name) && fingerprints.get(name) === fingerprintOf(text)) continue
    const problem = await replace(database.client, text)
    if (problem !== undefined) {
      result.left.push({ name, reason: problem })
      continue
    }
    await saveFingerprint(database.ops, name, text)
    result.made.push(name)
  }
  return result
}

/** Runs a text that makes something which views need, if it differs from the last one; true if it did. */
export async function applyText({ client, ops }: Database, name: string, text: string): Promise<boolean> {
  if ((await readFingerprints(ops)).get(name) === fingerprintOf(text)) return false
  await client.query(text)
  await saveFingerprint(ops, name, text)
  return true
}

async function relationsIn(client: PoolClient, schema: string): Promise<Set<string>> {
  const { rows } = await client.query<{ name: string }>(
    'select c.relname as name from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1',
    [schema],
  )
  return new Set(rows.map(({ name }) => name))
}

/** The report that has these dimensions and no filter. */
export function reportBy(
  reports: readonly ReportConfig[],
  needs: readonly Dimension[],
  subject: ReportSubject = 'brands',
): ReportConfig | undefined {
  const wanted = [...needs].sort().join()
  return reports.find(
    ({ dimensions, filters, of = 'brands' }) =>
      of === subject && filters.length === 0 && [...dimensions].sort().join() === wanted,
  )
}

export function readSql(path: string): string {
  return readFileSync(packageFile(`sql/${path}.sql`), 'utf8')
}

/** Fills in the names of schemas and of the report, and the parts that several views share. */
export function fillIn(text: string, warehouse: Warehouse, report = ''): string {
  return text
    .replaceAll(/\{part (\w+)\}/g, (_, part: string) => readSql(`views/parts/${part}`).trimEnd())
    .replaceAll('{schema}', quote(warehouse.schema))
    .replaceAll('{ops}', quote(warehouse.opsSchema))
    .replaceAll('{stream}', escapeLiteral(report))
    .replaceAll(/\{report [\w ]+\}/g, quote(warehouse.schema, report))
}

function fingerprintOf(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}

async function readFingerprints(ops: Ops): Promise<Map<string, string>> {
  const made = await ops.selectFrom('views').select(['name', 'fingerprint']).execute()
  return new Map(made.map(({ name, fingerprint }) => [name, fingerprint]))
}

async function saveFingerprint(ops: Ops, name: string, text: string): Promise<void> {
  const fingerprint = fingerprintOf(text)
  await ops
    .insertInto('views')
    .values({ name, fingerprint })
    .onConflict((conflict) => conflict.column('name').doUpdateSet({ fingerprint }))
    .execute()
}

/** Undefined if it worked. Somebody's own view may stand on a column whose type would change: then the old one stays. */
async function replace(client: PoolClient, text: string): Promise<string | undefined> {
  await client.query('savepoint view')
  try {
    await client.query(text)
    await client.query('release savepoint view')
    return undefined
  } catch (error) {
    await client.query('rollback to savepoint view')
    // Columns cannot be renamed or retyped in place, or the object belongs to somebody else.
    if (!['42P16', '42501', '42809'].includes(codeOf(error) ?? '')) throw error
    return `could not be replaced, so it stays as it is (${messageOf(error)})`
  }
}
