import { daysOfInterest } from '../../core/config/load.ts'
import { type Day, dayOf, daysIn, type Range } from '../../core/day.ts'
import {
  type ControlDays,
  controlOf,
  filtersText,
  historyCheckedAt,
  saveHistoryCheck,
} from '../../ledger/control-totals.ts'
import { hasCoverage } from '../../ledger/coverage.ts'
import type { CallContext } from '../../source/client.ts'
import type { DayStream } from '../../streams/stream.ts'
import { withRetries } from '../../warehouse/retry.ts'
import { inTransaction, runBatch } from '../../warehouse/transaction.ts'
import { readableRange } from '../plan/due-days.ts'
import type { Run, SyncedProject } from '../run/run.ts'
import { compareTable, markDiffering, markReconciled, uncomparedDays } from './compare-tables.ts'
import { type ControlReader, readControl } from './read-control.ts'

/**
 * Once in `reconcile.history_hours`, reads the control totals of all configured days. Days whose totals changed, or that no
 * longer add up to them, become due. The first run of a project reads everything anyway. Gives whether days were compared.
 */
export async function checkHistory(run: Run, project: SyncedProject, context: CallContext): Promise<boolean> {
  const { warehouse, config, clock, signal } = run
  const now = clock()
  const checkedAt = await withRetries(warehouse, signal, () => historyCheckedAt(warehouse, project.id))
  const isDue =
    checkedAt === undefined || now.getTime() - checkedAt.getTime() >= config.reconcile.history_hours * 3_600_000
  if (!isDue) return false
  const isChecked = await withRetries(warehouse, signal, () => hasCoverage(warehouse, project.id))
  if (isChecked) {
    const today = dayOf(now)
    await checkRange(run, project, readableRange(daysOfInterest(config, today), today), context)
  }
  await withRetries(warehouse, signal, () => saveHistoryCheck(warehouse, project.id, now))
  return isChecked
}

async function checkRange(run: Run, project: SyncedProject, range: Range, context: CallContext): Promise<void> {
  const { warehouse, signal, streams } = run
  const controls = await readControls(run, project, range, context)
  for (const stream of streams.byDay) {
    const days = await withRetries(warehouse, signal, () =>
      uncomparedDays(warehouse, { projectId: project.id, stream }, range),
    )
    if (days.length === 0) continue
    const control = controlOfStream(controls, stream)
    const compared = { projectId: project.id, stream, days }
    await withRetries(warehouse, signal, async () => {
      const differing = control === undefined ? [] : await compareTable(warehouse, compared, control.totals)
      const differs = new Set(differing.map(({ day }) => day))
      await markReconciled(warehouse, { ...compared, days: days.filter((day) => !differs.has(day)) })
    })
  }
  const compared = streams.byDay.filter(({ control }) => control !== undefined)
  await withRetries(warehouse, signal, () =>
    inTransaction(warehouse, (tx) =>
      markDiffering(tx, warehouse, { projectId: project.id, streams: compared, days: daysIn(range) }),
    ),
  )
}

/** Control totals of a range, by the filters under which they were read. */
export type Controls = Map<string, ControlDays>

/** Reads the control totals that the configured streams are compared with. */
export async function readControls(
  reader: ControlReader,
  project: SyncedProject,
  range: Range,
  context: CallContext,
): Promise<Controls> {
  const controls: Controls = new Map()
  for (const stream of reader.streams.byDay) {
    const { filters = [] } = stream
    if (stream.control === undefined || controls.has(filtersText(filters))) continue
    controls.set(filtersText(filters), await readControl(reader, { project, filters, range }, context))
  }
  return controls
}

export function controlOfStream(controls: Controls, { control, filters }: DayStream): ControlDays | undefined {
  return control === undefined ? undefined : controls.get(filtersText(filters))
}

/** Reads the control totals of days that are due in streams which are compared, as far as the run has not read them yet. */
export async function readDueControls(
  run: Run,
  project: SyncedProject,
  due: ReadonlyMap<DayStream, readonly Day[]>,
  context: CallContext,
): Promise<void> {
  const wanted = new Map<string, { filters: DayStream['filters']; days: Day[] }>()
  for (const [{ filters, control }, days] of due) {
    if (control === undefined) continue
    const entry = wanted.get(filtersText(filters)) ?? { filters, days: [] }
    entry.days.push(...days)
    wanted.set(filtersText(filters), entry)
  }
  for (const { filters = [], days } of wanted.values()) {
    const missing = await daysWithoutControl(run, project, filters, days)
    if (missing.length === 0) continue
    const range = { from: missing[0]!, to: missing.at(-1)! }
    await readControl(run, { project, filters, range }, context)
  }
}

async function daysWithoutControl(
  { warehouse, runId, signal }: Run,
  project: SyncedProject,
  filters: NonNullable<DayStream['filters']>,
  days: readonly Day[],
): Promise<Day[]> {
  const sorted = [...new Set(days)].sort()
  if (sorted.length === 0) return []
  const range = { from: sorted[0]!, to: sorted.at(-1)! }
  const [known] = await withRetries(warehouse, signal, () =>
    runBatch(warehouse.pool, controlOf(warehouse, { projectId: project.id, filters }, range, runId)),
  )
  return sorted.filter((day) => !known.has(day))
}
