import { countDays, type Day, type Range, showRange } from '../../core/day.ts'
import { BadPageError, codeOf } from '../../core/errors.ts'
import { type Dimension, streamKey } from '../../core/vocabulary.ts'
import { controlEntry, controlOf, markDiffering, notAdditive } from '../../ledger/control-totals.ts'
import {
  adjustRows,
  type BegunRead,
  beginRead,
  coverageEntry,
  coverageUnlessSuperseded,
  markStale,
  type PriorCoverage,
} from '../../ledger/coverage.ts'
import { type IdentifiedRejects, resolveWindowRejects, saveRejects } from '../../ledger/quarantine.ts'
import { saveRestatements } from '../../ledger/restatement-report.ts'
import { saveDrift } from '../../ledger/service-notes.ts'
import type { DriftNote } from '../../rows/drift-notes.ts'
import { PackedRows } from '../../rows/packed-rows.ts'
import { type FoundDays, refuseBadPage, type Sifted } from '../../rows/sift.ts'
import type { CallContext } from '../../source/client.ts'
import { type DayStream, isControl, type Row } from '../../streams/stream.ts'
import { tableName } from '../../warehouse/connect.ts'
import { replaceWindow, windowSnapshot } from '../../warehouse/load/replace-window.ts'
import type { Snapshot } from '../../warehouse/load/row-digest.ts'
import { type Effect, effectOf, type WindowLoad } from '../../warehouse/load/window-effect.ts'
import { ensureMonths } from '../../warehouse/schema/partitions.ts'
import { noteChangedDays } from '../../warehouse/schema/summaries.ts'
import { inTransaction, runBatch, type Statements, type Transaction } from '../../warehouse/transaction.ts'
import { readWindow } from '../read/read-window.ts'
import { type Control, compareWindow, needsProof, type WindowComparison } from '../reconcile/compare-window.ts'
import { proveNotAdditive } from '../reconcile/prove-not-additive.ts'
import { controlDays, readControl } from '../reconcile/read-control.ts'
import { type LoadableAnswer, loadAnswer } from './load-answer.ts'
import type { ItemResult, Loaded, Run, SyncedProject } from './run.ts'

// A day that does not add up is read again so often, each time after its control total. The service may write it just then.
const ROUNDS = 3

/** A window to be read: of which project and stream, and which days. */
interface Window {
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
  const { warehouse, runId } = run
  const projectStream = { projectId: project.id, stream: stream.name }
  const filters = stream.filters ?? []
  // The fencing token is taken before the request is sent: the later request wins, because its number is higher.
  const [read, known, ignored] = await run.retry(() =>
    runBatch(
      warehouse.pool,
      beginRead(warehouse, projectStream, range),
      controlOf(warehouse, { projectId: project.id, filters }, range, runId),
      notAdditive(warehouse, projectStream),
    ),
  )
  let control: Control = { totals: known, ignored }
  let answer = await readAndCompare(run, { ...window, read, control }, context)
  const changedControl = new Set<Day>()
  for (let round = 0; answer.kind === 'rows' && answer.comparison.differences.length > 0; round++) {
    const { comparison, sifted } = answer
    const { differences } = comparison
    if (countDays(range) > 1) {
      const rows = () => rowsOf(sifted.rows)
      const measure = await proveNotAdditive(run, { project, stream, differences, rows }, context)
      if (measure === undefined) return { kind: 'disagreed', days: differences.map(({ day }) => day) }
      control = { ...control, ignored: new Set([...control.ignored, measure]) }
    } else {
      if (round === ROUNDS) break
      const { totals, changed } = await readControl(run, { project, filters, range }, context)
      for (const day of changed) changedControl.add(day)
      control = { totals, ignored: control.ignored }
    }
    answer = await readAndCompare(run, { ...window, read, control }, context)
  }
  if (answer.kind === 'rows')
    return loadWindow(run, { projectStream, stream, range, read, ...answer, changedControl: [...changedControl] })
  const { notes } = answer
  if (notes.length > 0)
    await run.retry(() => inTransaction(warehouse, (tx) => saveDrift(tx, projectStream, notes, runId)))
  return answer.kind === 'split' ? { kind: 'split', pageLimit: run.limit.current } : { kind: 'shorten' }
}

type Answer =
  | { kind: 'rows'; sifted: Sifted<PackedRows>; comparison: WindowComparison }
  | { kind: 'split' | 'too-long'; notes: DriftNote[] }

async function readAndCompare(
  run: Run,
  { project, stream, range, read, control }: Window & { read: BegunRead; control: Control },
  context: CallContext,
): Promise<Answer> {
  const about = `${stream.name} ${showRange(range)}`
  const compare = (found: Omit<FoundDays, 'absent'>) => compareWindow(stream, range, found, control)
  const known = {
    rowsByDay: read.rowsBeforeByDay,
    provisionalFrom: run.provisionalFrom,
    acceptDeletes: run.acceptDeletes,
    valuesOf: (dimension: Dimension) => knownValues(run, project.id, dimension),
    validate: async ({ absent }: FoundDays) => {
      for (const dimension of absent)
        if (await isIgnored(run, project.id, range, dimension))
          throw new BadPageError(`${about}: the service ignored the dimension ${dimension}`)
    },
    needsProof: (found: FoundDays) => {
      const isFirst = read.rowsBeforeByDay.size === 0 && found.rejects.length === 0
      if (isFirst && run.comparesControl && isControl(stream) && !stream.filters?.length) return false
      return needsProof(compare(found), { stream, range, rowsBefore: read.rowsBeforeByDay }, found, control.ignored)
    },
  }
  const pack = () => new PackedRows(stream.columns, project.id, run.templates.segments)
  const answer = await readWindow(run, { caller: project.caller, stream, range, known }, context, pack)
  if (answer.kind !== 'rows') return answer
  const { sifted } = answer
  refuseBadPage(about, sifted, run.config.max_bad_share)
  return { kind: 'rows', sifted, comparison: compare(sifted) }
}

const TABLE_OF: Partial<Record<Dimension, string>> = { prompt_id: 'prompts', model_id: 'models' }

/** The prompts or models of a project, for services whose filters have no "all but these". */
async function knownValues({ warehouse, retry }: Run, projectId: string, dimension: Dimension): Promise<string[]> {
  const table = TABLE_OF[dimension]
  if (table === undefined) return []
  const query = `select ${dimension} as value from ${tableName(warehouse, table)} where project_id = $1`
  const { rows } = await retry(() => warehouse.pool.query<{ value: string }>(query, [projectId]))
  return rows.map(({ value }) => value)
}

function rowsOf(rows: PackedRows): Row[] {
  return Array.from({ length: rows.length }, (_, at) => rows.get(at))
}

const NO_PARTITION = '23514'

interface LoadableWindow extends LoadableAnswer<DayStream> {
  range: Range
  comparison: WindowComparison
}

/** Replaces a window, with its coverage, its rejects and its restatements. */
async function loadWindow(run: Run, load: LoadableWindow): Promise<Loaded> {
  const { warehouse, config } = run
  const { projectStream, stream, range, sifted, read, comparison } = load
  const { projectId } = projectStream
  // An empty window gets its rows in the order of the index, which is better found before other loads wait for this one.
  if (read.rowsBefore === 0) sifted.rows.reorder()
  // The setting `disabled` switches ways to save work off, to find out whether one of them is at fault.
  const withDigest = !config.disabled.includes('window-digest')
  const questions: Statements<[PriorCoverage, Snapshot]> = [
    coverageUnlessSuperseded(warehouse, projectStream, range, read.fencingToken),
    windowSnapshot(warehouse, { projectId, stream, range }, withDigest),
  ]
  // How a day differs from the control totals, unless the service may still write it. Such a window has one day.
  const difference = comparison.differences.find(({ day }) => day < run.provisionalFrom)?.text
  const write = async (tx: Transaction, [prior, snapshot]: [PriorCoverage, Snapshot], rejects: IdentifiedRejects) => {
    // Rows of a day that does not add up stay as they are. On a first load, the new rows are stored, unless they exceed the
    // totals: right rows that come later would not prove that these were wrong.
    const keepsRows = difference !== undefined && (snapshot.count > 0 || stream.control === 'brand limits')
    const window = windowLoad(run, load, prior, rejects)
    const effect = keepsRows
      ? { ...effectOf(window, new Map()), unchanged: 0, rowsByDay: new Map([[range.from, snapshot.count]]) }
      : await replaceWindow(tx, snapshot, window)
    const days = [...effect.byDay.keys(), ...effect.movedFrom.keys()]
    tx.atCommit.push(...noteChangedDays(warehouse, config, { projectId, table: stream.table, days }))
    await saveWindowLedger(run, tx, load, { prior, effect, rejects, difference })
    const answered = [...sifted.rowsByDay.keys()]
    const isStored = !keepsRows && (answered.length === 0 || answered.some((day) => !effect.held?.days.has(day)))
    return { effect, difference, isStored, movedFrom: [...effect.movedFrom.keys()] }
  }
  const loadOnce = () => loadAnswer(run, load, questions, write)
  const loaded = await run.retry(() =>
    loadOnce().catch(async (error: unknown) => {
      if (codeOf(error) !== NO_PARTITION) throw error
      await ensureMonths(warehouse, stream.table, sifted.rowsByDay.keys())
      return loadOnce()
    }),
  )
  sifted.rows.release()
  return loaded
}

function windowLoad(run: Run, load: LoadableWindow, prior: PriorCoverage, rejects: IdentifiedRejects): WindowLoad {
  const { projectStream, stream, range, sifted, read, comparison } = load
  const { acceptDeletes } = run
  const isWhole = comparison.differences.length + comparison.uncompared.length === 0
  return {
    ...{ projectId: projectStream.projectId, stream, range, rows: sifted.rows, rowsByDay: sifted.rowsByDay },
    // Days that were not compared may lack rows.
    mayDelete: rejects.undismissed === 0 && (acceptDeletes || isWhole),
    acceptDeletes,
    heldBefore: new Set([...prior.states].flatMap(([day, state]) => (state === 'held' ? [day] : []))),
    proven: provenDays(run, load, prior),
    fencingToken: read.fencingToken,
  }
}

/** A prompt can move to another topic or country. An answer stays with its prompt and channel. */
const MOVABLE: readonly string[] = ['topic_id', 'country_code']
const FIXED: readonly string[] = ['prompt_id', 'chat_id', 'model_channel_id']

/**
 * Days whose new rows add up to the totals that the service had before. They lose nothing: either the stored rows did not add up,
 * or prompts moved to other groups. Without the list of prompts, a report whose groups are ignored would look the same.
 */
function provenDays(run: Run, { stream, comparison }: LoadableWindow, { compared }: PriorCoverage): Set<Day> {
  const { dimensions = [], control } = stream
  if (control === 'brand limits') return new Set()
  const isMovable =
    dimensions.some((name) => MOVABLE.includes(name)) && !dimensions.some((name) => FIXED.includes(name))
  const mayMove = isMovable && comparison.comparesAll && run.streams.get('prompts') !== undefined
  const isProven = (day: Day) => {
    const { isReconciled, digest } = comparison.of(day)
    const before = compared.get(day)!
    const isSame = digest?.counts === before.counts && digest.answers === before.answers
    return isReconciled && isSame && (before.differs || mayMove)
  }
  return new Set([...compared.keys()].filter(isProven))
}

interface WindowOutcome {
  prior: PriorCoverage
  effect: Effect
  rejects: IdentifiedRejects
  difference: string | undefined
}

/** Stores a window in the ledger: coverage, rejects, restatements, and days of other streams to read again. */
async function saveWindowLedger(
  run: Run,
  tx: Transaction,
  load: LoadableWindow,
  { prior, effect, rejects, difference }: WindowOutcome,
): Promise<void> {
  const { warehouse, runId } = run
  const { projectStream, stream, range, sifted, read, comparison } = load
  const heldDays = effect.held?.days
  const stateOf = (day: Day) => {
    if (heldDays?.has(day)) return 'held'
    if (difference !== undefined) return 'unreconciled'
    return rejects.undismissed > 0 ? 'quarantined' : 'read'
  }
  // Only what was stored as it was read can be reconciled.
  const isStored = (day: Day) =>
    stateOf(day) === 'read' && (effect.rowsByDay.get(day) ?? 0) === (sifted.rowsByDay.get(day) ?? 0)
  const comparisonOf = (day: Day) => ({ ...comparison.of(day), ...(!isStored(day) && { isReconciled: false }) })
  const entry = { projectStream, range, rowsByDay: effect.rowsByDay, stateOf, comparisonOf, runId, ...read }
  const coverage = coverageEntry(warehouse, entry)
  if (isControl(stream)) {
    const rows = rowsOf(sifted.rows)
    const key = { projectId: projectStream.projectId, filters: stream.filters ?? [] }
    const control = controlDays(stream, range, { ...sifted, rows })
    const [days] = await runBatch(tx.client, controlEntry(warehouse, key, control, runId))
    await markDiffering(tx, { projectId: projectStream.projectId, streams: run.streams.byDay, days })
  }
  // A row whose key has no date may have moved here from another day.
  const lost = [...effect.movedFrom].map(([day, rows]): [Day, number] => [day, -rows])
  await adjustRows(tx, projectStream, lost, true)
  if (!prior.hasRejects && sifted.rejects.length === 0) tx.atCommit.push(coverage)
  else {
    // Which rejects are resolved depends on it.
    await runBatch(tx.client, coverage)
    await saveRejects(tx, projectStream, rejects, { range, runId, heldDays })
    await resolveWindowRejects(tx, projectStream, range)
  }
  const restated = await saveRestatements(tx, projectStream, effect.byDay, { readBefore: prior.states, runId })
  const isRegrouped = run.regrouped.has(streamKey(projectStream.projectId, stream.name))
  const others = isRegrouped
    ? []
    : run.streams.byDay.map(({ name }) => name).filter((name) => name !== projectStream.stream)
  // Days within the lookback are read again by every run anyway.
  const older = restated.filter((day) => day < run.lookbackFrom)
  await markStale(tx, projectStream.projectId, { streams: others, days: older, runId })
}

/** Every answer belongs to a prompt and a model, so every row of a report by them has one. */
const ALWAYS_SET = new Set(['prompt_id', 'model_id', 'chat_id'])

/** Where the warehouse shows that a project has values of a dimension that not every row needs to have. */
const SHOWN_BY: Record<string, { table: string; condition: string }> = {
  topic_id: { table: 'prompts', condition: 'topic_id is not null and removed_at is null' },
  tag_id: { table: 'prompt_tags', condition: 'true' },
  country_code: { table: 'prompts', condition: 'country_code is not null and removed_at is null' },
  model_channel_id: { table: 'chats', condition: 'model_channel_id is not null' },
}

/**
 * True if no row has a dimension that was asked for, although the project has values for it. If the chats of these days are known,
 * only prompts that they belong to count.
 */
async function isIgnored(
  { warehouse, retry }: Run,
  projectId: string,
  range: Range,
  dimension: string,
): Promise<boolean> {
  if (ALWAYS_SET.has(dimension)) return true
  const shown = SHOWN_BY[dimension]
  if (shown === undefined) return false
  const chats = `select from ${tableName(warehouse, 'chats')} c where c.project_id = $1 and c.date between $2 and $3`
  const query = `select from ${tableName(warehouse, shown.table)} v where project_id = $1 and ${shown.condition}
    and (exists (${chats} and c.prompt_id = v.prompt_id) or not exists (${chats})) limit 1`
  const found = await retry(() => warehouse.pool.query(query, [projectId, range.from, range.to]))
  return found.rows.length > 0
}
