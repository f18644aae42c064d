import { countDays, type Day, type Range, showRange } from '../../core/day.ts'
import type { Dimension, ProjectStream } from '../../core/vocabulary.ts'
import { controlOf, notAdditive } from '../../ledger/control-totals.ts'
import { type BegunRead, beginRead } from '../../ledger/coverage.ts'
import { saveDrift } from '../../ledger/drift.ts'
import type { DriftNote } from '../../rows/drift-notes.ts'
import { PackedRows } from '../../rows/packed-rows.ts'
import { type FoundDays, refuseBadPage, type Sifted } from '../../rows/sift.ts'
import type { CallContext } from '../../source/client.ts'
import type { DayStream } from '../../streams/stream.ts'
import { tableName } from '../../warehouse/connect.ts'
import { withRetries } from '../../warehouse/retry.ts'
import { inTransaction, runBatch } from '../../warehouse/transaction.ts'
import { readWindow } from '../read/read-window.ts'
import { type Control, compareWindow, needsProof, type WindowComparison } from '../reconcile/compare-window.ts'
import { refuseIgnoredDimensions } from '../reconcile/ignored-dimensions.ts'
import { proveNotAdditive } from '../reconcile/prove-not-additive.ts'
import { readControl } from '../reconcile/read-control.ts'
import { loadWindow } from './load-window.ts'
import type { ItemResult, Run, SyncedProject } from './run.ts'

// A day that does not add up is read again so often, each time after its control total. The service may write it just then.
const ROUNDS = 3

/** A window to be read: of which project and stream, and which days. */
export interface Window {
  project: SyncedProject
  stream: DayStream
  range: Range
}

/**
 * One window: read, sift, compare with the control totals, and load with its ledger entry, its quarantine and its drift in
 * one transaction. A window with days that do not add up is not loaded: these days are read alone.
 */
export async function syncWindow(run: Run, window: Window, context: CallContext): Promise<ItemResult> {
  const { project, stream, range } = window
  const projectStream = { projectId: project.id, stream: stream.name }
  const { read, control } = await beginWindow(run, window)
  const first = await readAndCompare(run, { ...window, read, control }, context)
  const { answer, changedControl } = await settle(run, { ...window, read, control }, first, context)
  switch (answer.kind) {
    case 'too-long':
    case 'split':
      await saveNotes(run, projectStream, answer.notes)
      return answer.kind === 'split' ? { kind: 'split', pageLimit: run.limit.current } : { kind: 'shorten' }
    case 'disagreed':
      return answer
  }
  const loaded = await loadWindow(run, { projectStream, stream, range, read, ...answer })
  return { ...loaded, changedControl }
}

/** A window whose read has begun. */
interface BegunWindow extends Window {
  read: BegunRead
  control: Control
}

/** Takes the fencing token before the request is sent: the later request wins, because its number is higher. */
async function beginWindow(
  { warehouse, runId, signal }: Run,
  { project, stream, range }: Window,
): Promise<{ read: BegunRead; control: Control }> {
  const projectStream = { projectId: project.id, stream: stream.name }
  const [read, totals, ignored] = await withRetries(warehouse, signal, () =>
    runBatch(
      warehouse.pool,
      beginRead(warehouse, projectStream, range),
      controlOf(warehouse, { projectId: project.id, filters: stream.filters ?? [] }, range, runId),
      notAdditive(warehouse, projectStream),
    ),
  )
  return { read, control: { totals, ignored } }
}

type Answer =
  | { kind: 'rows'; sifted: Sifted<PackedRows>; comparison: WindowComparison }
  | { kind: 'split' | 'too-long'; notes: DriftNote[] }

async function readAndCompare(run: Run, window: BegunWindow, context: CallContext): Promise<Answer> {
  const { project, stream, range, read, control } = window
  const about = `${stream.name} ${showRange(range)}`
  const compare = (found: Omit<FoundDays, 'absent'>) => compareWindow(stream, range, found, control)
  const known = {
    rowsByDay: read.rowsBeforeByDay,
    provisionalFrom: run.provisionalFrom,
    valuesOf: (dimension: Dimension) => knownPrompts(run, project.id, dimension),
    validate: ({ absent }: FoundDays) =>
      refuseIgnoredDimensions(run, { projectId: project.id, about, dimensions: absent }),
    needsProof: (found: FoundDays) =>
      needsProof(compare(found), { stream, range, rowsBefore: read.rowsBeforeByDay }, found, control.ignored),
  }
  const pack = () => new PackedRows(stream.columns, project.id, run.templates.segments)
  const answer = await readWindow(run, { caller: project.caller, stream, range, known }, context, pack)
  if (answer.kind !== 'rows') return answer
  const { sifted } = answer
  refuseBadPage(about, sifted, run.config.max_bad_share)
  return { kind: 'rows', sifted, comparison: compare(sifted) }
}

/** The prompts of a project, for services whose filters have no "all but these". Values of other dimensions are not stored. */
async function knownPrompts({ warehouse, signal }: Run, projectId: string, dimension: Dimension): Promise<string[]> {
  if (dimension !== 'prompt_id') return []
  const query = `select prompt_id from ${tableName(warehouse, 'prompts')} where project_id = $1`
  const { rows } = await withRetries(warehouse, signal, () =>
    warehouse.pool.query<{ prompt_id: string }>(query, [projectId]),
  )
  return rows.map(({ prompt_id }) => prompt_id)
}

interface Settled {
  answer: Answer | { kind: 'disagreed'; days: Day[] }
  changedControl: Day[]
}

/** Decides what becomes of an answer with days that do not add up. */
async function settle(run: Run, window: BegunWindow, first: Answer, context: CallContext): Promise<Settled> {
  const { project, stream, range, control } = window
  let answer = first
  const disagrees = () => answer.kind === 'rows' && answer.comparison.differences.length > 0
  if (!disagrees()) return { answer, changedControl: [] }
  if (countDays(range) > 1) {
    const { differences } = (answer as Extract<Answer, { kind: 'rows' }>).comparison
    const measure = await proveNotAdditive(run, { project, stream, differences }, context)
    if (measure === undefined)
      return { answer: { kind: 'disagreed', days: differences.map(({ day }) => day) }, changedControl: [] }
    const ignored = new Set([...control.ignored, measure])
    answer = await readAndCompare(run, { ...window, control: { ...control, ignored } }, context)
    return settle(run, { ...window, control: { ...control, ignored } }, answer, context)
  }
  const changedControl: Day[] = []
  for (let round = 0; round < ROUNDS && disagrees(); round++) {
    const again = await readControl(run, { project, filters: stream.filters ?? [], range }, context)
    changedControl.push(...again.changed)
    answer = await readAndCompare(run, { ...window, control: { ...control, totals: again.totals } }, context)
  }
  return { answer, changedControl: [...new Set(changedControl)] }
}

async function saveNotes(run: Run, projectStream: ProjectStream, notes: DriftNote[]): Promise<void> {
  if (notes.length === 0) return
  const save = () => inTransaction(run.warehouse, (tx) => saveDrift(tx, projectStream, notes, run.runId))
  await withRetries(run.warehouse, run.signal, save)
}
