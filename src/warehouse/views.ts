import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { PoolClient } from 'pg'
import type { Config, ReportConfig } from '../core/config/load.ts'
import { codeOf, messageOf } from '../core/errors.ts'
import { quote } from '../core/identifier.ts'
import { BI_VIEWS, type BiView, type Dimension } from '../core/vocabulary.ts'
import type { Warehouse } from './connect.ts'
import type { Ops } from './database.ts'
import { VIEWS } from './view-notes.ts'

export interface ViewResult {
  made: BiView[]
  /** Views that were not made or not renewed, and why. */
  left: { name: BiView; reason: string }[]
}

/**
 * Makes the views for BI from sql/views, those whose report is configured. A view is replaced, never dropped, and only
 * when its text changed: what people built on top of it stays, and nobody waits for a lock on every run.
 */
export async function applyViews(
  { client, ops }: { client: PoolClient; ops: Ops },
  warehouse: Warehouse,
  config: Config,
): Promise<ViewResult> {
  const { rows } = await client.query<{ name: string; kind: string }>(
    `select c.relname as name, c.relkind as kind from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = $1 and c.relname = any($2)`,
    [warehouse.schema, [...BI_VIEWS]],
  )
  const there = new Set(rows.map(({ name }) => name))
  const made = await ops.selectFrom('views').select(['name', 'fingerprint']).execute()
  const fingerprints = new Map(made.map(({ name, fingerprint }) => [name, fingerprint]))
  const result: ViewResult = { made: [], left: [] }
  for (const name of BI_VIEWS) {
    const report = reportBy(config.reports, VIEWS[name].needs)
    if (report === undefined) {
      const reason = `needs an unfiltered report by ${VIEWS[name].needs.join(', ')}, and none is configured`
      result.left.push({ name, reason })
      continue
    }
    if (there.has(name) && !fingerprints.has(name)) {
      result.left.push({ name, reason: 'has a name that another table or view of this schema took first' })
      continue
    }
    const text = viewText(name, warehouse.schema, report.name)
    const fingerprint = createHash('sha256').update(text).digest('hex')
    if (there.has(name) && fingerprints.get(name) === fingerprint) continue
    const problem = await replace(client, text)
    if (problem !== undefined) {
      result.left.push({ name, reason: problem })
      continue
    }
    await ops
      .insertInto('views')
      .values({ name, fingerprint })
      .onConflict((conflict) => conflict.column('name').doUpdateSet({ fingerprint }))
      .execute()
    result.made.push(name)
  }
  return result
}

function reportBy(reports: readonly ReportConfig[], needs: readonly Dimension[]): ReportConfig | undefined {
  const wanted = [...needs].sort().join()
  return reports.find(({ dimensions, filters }) => filters.length === 0 && [...dimensions].sort().join() === wanted)
}

function viewText(name: BiView, schema: string, report: string): string {
  return readFileSync(new URL(`../../sql/views/${name}.sql`, import.meta.url), 'utf8')
    .replaceAll('{schema}', quote(schema))
    .replaceAll(/\{report [\w ]+\}/g, quote(schema, report))
}

/** Undefined where it worked. Somebody's own view may stand on a column whose type would change: then the old one stays. */
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
