import { countDays, type Day, daysIn, type Range, showRange } from '../../core/day.ts'
import { BadPageError, codeOf } from '../../core/errors.ts'
import type { Dimension } from '../../core/vocabulary.ts'
import {
  type ControlDays,
  type ControlRow,
  type ControlVersions,
  controlOf,
  controlRows,
  controlVersions,
  type StoredControlDay,
  type VersionRow,
  versionOf,
} from '../../ledger/control-totals.ts'
import {
  type BegunRead,
  beginRead,
  begunRead,
  type DayEntryToWrite,
  daysReadAfter,
  markMoved,
  type PriorDayRow,
  type PriorDays,
  priorDayRows,
  priorDays,
  putDays,
} from '../../ledger/days.ts'
import { type IdentifiedRejects, resolveWindowRejects, saveRejects } from '../../ledger/quarantine.ts'
import { saveRestatements } from '../../ledger/restatement-report.ts'
import { saveDrift } from '../../ledger/service-notes.ts'
import { answersOf } from '../../rows/day-totals.ts'
import type { DriftNote } from '../../rows/drift-notes.ts'
import { PackedRows } from '../../rows/packed-rows.ts'
import type { FoundDays, Reject, Sifted } from '../../rows/sift.ts'
import type { CallContext } from '../../source/client.ts'
import { type DayStream, isCompared, isControl, type Row } from '../../streams/stream.ts'
import { type RowsOfAll, together } from '../../warehouse/database.ts'
import { replaceWindow, windowSnapshot } from '../../warehouse/load/replace-window.ts'
import { readSnapshot, type SnapshotRow } from '../../warehouse/load/row-digest.ts'
import type { DayLoss, Effect } from '../../warehouse/load/window-effect.ts'
import { ensureMonths } from '../../warehouse/schema/partitions.ts'
import { noteChangedDays } from '../../warehouse/schema/summaries.ts'
import { inTransaction, type Transaction } from '../../warehouse/transaction.ts'
import { readWindow } from '../read/read-window.ts'
import { findForeignDays, findOmissions, isIgnored, readValues } from '../reconcile/answer-facts.ts'
import { compareAnswer, type Difference, differenceText, withoutOmitted } from '../reconcile/compare-days.ts'
import { type Comparison, judgeDay, type Verdict } from '../reconcile/judge-day.ts'
import { acceptControl, controlDays, readControl } from '../reconcile/read-control.ts'
import { type LoadableAnswer, loadAnswer, refuseBadAnswer } from './load-answer.ts'
import type { ItemResult, Loaded, Run, SyncedProject } from './run.ts'

/** A day that does not add up is read so often, each time with its control totals: the service may write it just then. */
export const READINGS = 3

interface Window {
  project: SyncedProject
  stream: DayStream
  range: Range
}

/** An answer that was compared with the control totals. */
interface Answer {
  kind: 'rows'
  sifted: Sifted<PackedRows>
  control: ControlDays
  differences: Difference[]
  /** Days on which the service leaves rows out, and how they differ. */
  omitted: Difference[]
  /** Days whose rows are those of another project. */
  foreign: ReadonlySet<Day>
}

type Reading = Answer | { kind: 'split' | 'too-long'; notes: DriftNote[] }

/**
 * One window: read, sift, compare with the control totals, judge each day, and load with the ledger in one transaction. If days
 * of a longer window do not add up, nothing is loaded: these days are read alone.
 */
export async function syncWindow(run: Run, window: Window, context: CallContext): Promise<ItemResult> {
  const { project, stream, range } = window
  const { warehouse, runId } = run
  const projectStream = { projectId: project.id, stream: stream.name }
  const filters = stream.filters ?? []
  // The fencing token is taken before the request is sent: the later request wins, because its number is higher.
  const begin = together(
    beginRead(warehouse, projectStream, range),
    controlRows({ projectId: project.id, filters }, range, runId),
  )
  const [[begun], stored] = (await run.retry(() => begin.execute(warehouse.db))).rows[0]!.rows
  const [read, control] = [begunRead(begun!), controlOf(stored)]
  let answer = await readAndCompare(run, { ...window, read, control }, context)
  const rowCounts = new Set<number>()
  if (countDays(range) > 1) {
    if (answer.kind === 'rows' && differingDays(answer).length > 0)
      return { kind: 'disagreed', days: differingDays(answer) }
  } else {
    for (let reading = 1; answer.kind === 'rows' && differingDays(answer).length > 0; reading++) {
      rowCounts.add(answer.sifted.rows.length)
      if (reading === READINGS) break
      const again = await readControl(run, { project, filters, range }, context)
      answer = await readAndCompare(run, { ...window, read, control: again }, context)
    }
  }
  if (answer.kind === 'rows') {
    const isAgreed = stream.control === 'answers' && rowCounts.size === 1 && range.from < run.provisionalFrom
    return loadWindow(run, { projectStream, stream, range, read, isAgreed, ...answer })
  }
  const { notes } = answer
  if (notes.length > 0)
    await run.retry(() => inTransaction(warehouse, (tx) => saveDrift(tx, projectStream, notes, runId)))
  return answer.kind === 'split' ? { kind: 'split', pageLimit: run.limit.current } : { kind: 'shorten' }
}

function differingDays({ differences, foreign }: Answer): Day[] {
  return [...new Set([...differences.map(({ day }) => day), ...foreign])].sort()
}

async function readAndCompare(
  run: Run,
  { project, stream, range, read, control }: Window & { read: BegunRead; control: ControlDays },
  context: CallContext,
): Promise<Reading> {
  const about = `${stream.name} ${showRange(range)}`
  const comparable = new Map([...control].filter(([, { isInReview }]) => !isInReview))
  const compare = (found: FoundDays, dismissed?: ReadonlySet<Reject>) =>
    isCompared(stream) ? compareAnswer(stream, range, found, comparable, dismissed) : []
  const known = {
    rowsByDay: read.rowsBeforeByDay,
    provisionalFrom: run.provisionalFrom,
    acceptDeletes: run.acceptDeletes,
    valuesOf: (dimension: Dimension) => readValues(run, project.id, dimension),
    validate: async ({ absent }: FoundDays) => {
      for (const dimension of absent)
        if (await isIgnored(run, project.id, range, dimension))
          throw new BadPageError(`${about}: the service ignored the dimension ${dimension}`)
    },
    needsProof: (found: FoundDays) => compare(found).length > 0 || isUnproven({ stream, range, read, control }, found),
  }
  const pack = () => new PackedRows(stream.columns, project.id)
  const page = await readWindow(run, { caller: project.caller, stream, range, known }, context, pack)
  if (page.kind !== 'rows') return page
  const { sifted } = page
  const { rows } = sifted
  const projectStream = { projectId: project.id, stream: stream.name }
  const dismissed = await refuseBadAnswer(run, about, projectStream, sifted)
  const all = compare(sifted, dismissed)
  const isOfBrands = stream.control === 'brand totals'
  const omissions =
    isOfBrands && all.length > 0
      ? await findOmissions(run, { projectId: project.id, stream, range, rows })
      : { groups: false, rowsWithoutMentions: false }
  let differences = withoutOmitted(all, omissions)
  let omitted = all.filter(({ day }) => !differences.some((other) => other.day === day))
  if (omitted.length > 0 && !(await isSameAlone(run, { project, stream, range }, { omitted, sifted }, context))) {
    differences = all
    omitted = []
  }
  const foreign = !isCompared(stream)
    ? new Set<Day>()
    : await findForeignDays(run, { projectId: project.id, stream, range, rows })
  return { kind: 'rows', sifted, control, differences, omitted, foreign }
}

/**
 * True if nothing shows that a page is whole: a day that cannot be compared, or of which a total is not known, has another number of
 * rows than before.
 */
function isUnproven(
  { stream, range, read, control }: Pick<Window, 'stream' | 'range'> & { read: BegunRead; control: ControlDays },
  { rowsByDay }: FoundDays,
): boolean {
  const days = daysIn(range).filter((day) => (rowsByDay.get(day) ?? 0) !== read.rowsBeforeByDay.get(day))
  if (isCompared(stream) && stream.control !== 'brand limits')
    return days.some((day) => control.get(day)?.isWhole === false)
  return days.length > 0
}

/** True if the newest day on which rows seem to be left out has as many rows when it is read alone. Long answers may be truncated. */
async function isSameAlone(
  run: Run,
  { project, stream, range }: Window,
  { omitted, sifted }: Pick<Answer, 'omitted' | 'sifted'>,
  context: CallContext,
): Promise<boolean> {
  if (countDays(range) === 1) return true
  const { day } = omitted.at(-1)!
  const ask = { range: { from: day, to: day }, page: { limit: run.limit.current, offset: 0 }, filters: [] }
  const { items } = await stream.read(run.client, project.caller, ask, context)
  const rejected = sifted.rejects.filter(({ date }) => date === day).length
  return items.length === (sifted.rowsByDay.get(day) ?? 0) + rejected
}

function rowsOf(rows: PackedRows): Row[] {
  return Array.from({ length: rows.length }, (_, at) => rows.get(at))
}

const NO_PARTITION = '23514'

interface LoadableWindow extends LoadableAnswer<DayStream>, Answer {
  range: Range
  /** True if each reading of a day of chats had the same number of rows. */
  isAgreed: boolean
}

interface Judged extends Verdict, DayLoss {
  difference: string | undefined
}

type LoadRows = [PriorDayRow, SnapshotRow, VersionRow, ControlRow]

async function loadWindow(run: Run, load: LoadableWindow): Promise<Loaded> {
  const { warehouse, config } = run
  const { projectStream, stream, range, sifted, read } = load
  const { projectId } = projectStream
  // The setting `disabled` switches ways to save work off, to find out whether one of them is at fault.
  const withDigest = !config.disabled.includes('window-digest')
  const key = { projectId, filters: stream.filters ?? [] }
  const queries = together<LoadRows>(
    priorDayRows(projectStream, range),
    windowSnapshot({ projectId, stream, range }, withDigest),
    isCompared(stream) ? controlVersions(key, range) : undefined,
    isControl(stream) ? controlRows(key, range) : undefined,
  )
  const write = async (tx: Transaction, found: RowsOfAll<LoadRows>, rejects: IdentifiedRejects) => {
    const [days, [snapshot], versionRows, storedControl] = found
    const prior = priorDays(days, stream.name, read.fencingToken)
    const versions = new Map(versionRows.map(({ date, version }) => [date, version]))
    const control = isControl(stream) ? await saveOwnControl(run, tx, load, controlOf(storedControl)) : load.control
    const judged = new Map<Day, Judged>()
    const actionOf = (loss: DayLoss) => {
      const isMarked = prior.changed.has(loss.date) && !read.changedBefore.has(loss.date)
      const verdict = judge(run, { ...load, control }, { loss, rejects, versions, isMarked })
      judged.set(loss.date, verdict)
      return verdict.action
    }
    for (const date of daysIn(range)) actionOf({ date, present: 0, vanishing: 0 })
    const newerDays = daysReadAfter(projectStream, read.fencingToken)
    const window = { projectId, stream, range, rows: sifted.rows, rowsByDay: sifted.rowsByDay }
    const effect = await replaceWindow(tx, readSnapshot(snapshot!), { ...window, actionOf, newerDays })
    const changed = [...effect.byDay.keys(), ...effect.movedFrom.keys()]
    tx.atCommit.push(...noteChangedDays(config, { projectId, table: stream.table, days: changed }))
    await saveLedger(run, tx, load, { prior, effect, rejects, judged })
    const isStored = [...judged.values()].some(({ action }) => action !== 'keep')
    const { held, difference } = summaryOf([...judged.values()])
    return { effect: { ...effect, held }, difference, isStored }
  }
  const loadOnce = () => loadAnswer(run, load, queries, write)
  return run.retry(() =>
    loadOnce().catch(async (error: unknown) => {
      if (codeOf(error) !== NO_PARTITION) throw error
      await ensureMonths(warehouse, stream.table, sifted.rowsByDay.keys())
      return loadOnce()
    }),
  )
}

/** The control totals that the report by date alone gives with its own rows. */
function saveOwnControl(run: Run, tx: Transaction, load: LoadableWindow, before: ControlDays): Promise<ControlDays> {
  const { projectStream, stream, range, sifted } = load
  const found = controlDays(stream, range, { ...sifted, rows: rowsOf(sifted.rows) })
  const key = { projectId: projectStream.projectId, filters: stream.filters ?? [] }
  return acceptControl(run, tx, { key, found, before, loaded: stream.name })
}

const FOREIGN = 'most rows name prompts that the project does not have'
const IN_REVIEW = 'the control totals of the day are in review'

function judge(
  run: Run,
  load: LoadableWindow,
  {
    loss,
    rejects,
    versions,
    isMarked,
  }: { loss: DayLoss; rejects: IdentifiedRejects; versions: ControlVersions; isMarked: boolean },
): Judged {
  const { stream, control, differences, foreign, isAgreed } = load
  const { date, present, vanishing } = loss
  const isExact = isCompared(stream) && stream.control !== 'brand limits'
  const totals = control.get(date)
  const compare = (): Comparison => {
    // It was marked as changed after it was asked for.
    if (isMarked) return 'unknown'
    if (!isCompared(stream)) return 'none'
    if (totals === undefined || versions.get(date) !== versionOf(totals)) return 'unknown'
    // These are the totals from before.
    if (totals.isInReview) return 'differs'
    // Three readings do not outweigh stored rows that add up.
    if (differences.some(({ day }) => day === date))
      return isAgreed && present !== answersOf(totals.brands) ? 'agreed' : 'differs'
    return isExact && totals.isWhole ? 'adds up' : 'none'
  }
  const verdict = judgeDay({
    comparison: compare(),
    isForeign: foreign.has(date),
    exceedsTotals: stream.control === 'brand limits',
    vanishes:
      (present > 0 && (totals?.isInReview ?? false)) || (!isExact && !isControl(stream) && vanishing * 2 > present),
    acceptsDeletes: run.acceptDeletes,
    isOpen: date >= run.provisionalFrom,
    hasRejects: rejects.isOn(date),
    hasRows: present > 0,
  })
  const isShown = verdict.state === 'settled' || verdict.state === 'open' || verdict.state === 'differs'
  return { ...verdict, ...loss, difference: isShown ? textOf(load, date, totals) : undefined }
}

function textOf(
  { stream, foreign, differences, omitted }: LoadableWindow,
  date: Day,
  totals: StoredControlDay | undefined,
): string | undefined {
  if (foreign.has(date)) return FOREIGN
  const difference = [...differences, ...omitted].find(({ day }) => day === date)
  if (difference !== undefined) return differenceText(difference)
  return isCompared(stream) && totals?.isInReview ? IN_REVIEW : undefined
}

function summaryOf(days: readonly Judged[]) {
  const held = days.filter(({ state }) => state === 'vanishing')
  const sum = (column: 'present' | 'vanishing') => held.reduce((total, day) => total + day[column], 0)
  return {
    held:
      held.length === 0
        ? undefined
        : {
            present: sum('present'),
            vanishing: sum('vanishing'),
            range: { from: held[0]!.date, to: held.at(-1)!.date },
          },
    difference: days.find(({ state }) => state === 'differs')?.difference,
  }
}

interface WindowOutcome {
  prior: PriorDays
  effect: Effect
  rejects: IdentifiedRejects
  judged: ReadonlyMap<Day, Judged>
}

async function saveLedger(
  { runId }: Run,
  tx: Transaction,
  { projectStream, range, sifted, read }: LoadableWindow,
  { prior, effect, rejects, judged }: WindowOutcome,
): Promise<void> {
  const dayOf = (day: Day): DayEntryToWrite => {
    const { state, difference } = judged.get(day)!
    const rows = effect.rowsByDay.get(day) ?? 0
    // Either of two days that have the same row may be wrong.
    return effect.robbed.has(day) && state === 'settled' ? { rows, state: 'changed' } : { rows, state, difference }
  }
  const days = putDays({ projectStream, range, dayOf, runId, ...read })
  // A row whose key has no date may have moved here from another day.
  if (effect.movedFrom.size > 0) await markMoved(tx, projectStream, effect.movedFrom)
  if (!prior.hasRejects && sifted.rejects.length === 0) tx.atCommit.push(days)
  else {
    // Which rejects are resolved depends on it.
    await days.execute(tx.db)
    const kept = new Set([...judged.values()].flatMap(({ action, date }) => (action === 'keep' ? [date] : [])))
    await saveRejects(tx, projectStream, rejects, { range, runId, heldDays: kept })
    await resolveWindowRejects(tx, projectStream, range)
  }
  await saveRestatements(tx, projectStream, effect.byDay, { finalBefore: prior.final, runId })
}
