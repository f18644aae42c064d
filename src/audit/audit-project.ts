import { sql } from 'kysely'
import { type Day, dayOf, type Range } from '../core/day.ts'
import { daysWithOtherPrompts, type ReadControlDay } from '../ledger/control-totals.ts'
import { type KnownDay, readDays } from '../ledger/days.ts'
import { readRejects } from '../ledger/quarantine.ts'
import { digestText, TOTALLED } from '../rows/day-totals.ts'
import type { CallContext } from '../source/client.ts'
import { type DayStream, datePosition, isControl, type Row, type Value } from '../streams/stream.ts'
import { compareTable } from '../sync/reconcile/compare-table.ts'
import {
  type ControlReader,
  type Controls,
  controlDays,
  controlOfStream,
  readControls,
} from '../sync/reconcile/read-control.ts'
import type { SyncedProject } from '../sync/run/run.ts'
import type { Warehouse } from '../warehouse/connect.ts'
import { dataTable } from '../warehouse/database.ts'

export interface AuditedStream {
  project_id: string
  stream: string
  /** The columns whose sums were compared. */
  columns: string[]
  days_compared: number
  differing: Day[]
  /** Those of them on which rows of the service are malformed. */
  malformed?: Day[]
  /** Why it was left out, if it was. */
  left_out?: string
}

const EVERYTHING = { from: '0001-01-01', to: '9999-12-31' }

/** Compares the tables of one project with the control totals of the service, as a run compares what it loads. */
export async function auditProject(
  reader: ControlReader,
  { project, range = EVERYTHING }: { project: SyncedProject; range?: Range | undefined },
  context: CallContext,
): Promise<AuditedStream[]> {
  const { streams, warehouse, clock } = reader
  const today = dayOf(clock())
  const daysOf = new Map<DayStream, KnownDay[]>()
  for (const stream of streams.byDay) {
    const known = await readDays(warehouse, { projectId: project.id, stream: stream.name }, range)
    // A day that is not over changes while it is compared, and is read again anyway. Rejected rows are missing from the sums.
    daysOf.set(
      stream,
      known.filter(({ state, date }) => state !== 'rejects' && date < today),
    )
  }
  const all = [...daysOf.values()].flatMap((days) => days.map(({ date }) => date)).sort()
  const nothing = { columns: [], days_compared: 0, differing: [] }
  if (all.length === 0) return streams.byDay.map(({ name }) => ({ project_id: project.id, stream: name, ...nothing }))
  const controls = await readControls(reader, project, { from: all[0]!, to: all.at(-1)! }, context)
  const audited: AuditedStream[] = []
  for (const [stream, days] of daysOf) audited.push(await auditStream(reader, { project, stream, days }, controls))
  await comparePrompts(reader, project, { daysOf, audited })
  return audited
}

async function auditStream(
  reader: ControlReader,
  { project, stream, days: known }: { project: SyncedProject; stream: DayStream; days: KnownDay[] },
  controls: Controls,
): Promise<AuditedStream> {
  const base = { project_id: project.id, stream: stream.name, columns: [], days_compared: 0, differing: [] }
  if (stream.control === undefined) return { ...base, left_out: 'the service has no totals for it' }
  if (stream.control === 'brand limits')
    return { ...base, left_out: 'a prompt may have several tags, so its rows need not add up to totals' }
  const control = controlOfStream(controls, stream)
  const compared = { ...base, days_compared: known.length }
  const days = known.map(({ date }) => date)
  const inReview = days.filter((day) => control.get(day)?.isInReview)
  if (isControl(stream)) {
    const stored = await tableControl(reader.warehouse, project.id, stream)
    const isOther = (day: Day) => (stored.get(day)?.rowsDigest ?? EMPTY_DAY) !== control.get(day)?.rowsDigest
    const differing = days.filter((day) => inReview.includes(day) || isOther(day))
    const malformed = differing.filter((day) => control.get(day)?.isWhole === false)
    return { ...compared, columns: stream.columns.slice(2).map(({ name }) => name), differing, malformed }
  }
  const differences = await compareTable(reader, { projectId: project.id, stream, days: known }, control)
  const differing = [...new Set([...inReview, ...differences.map(({ day }) => day)])].sort()
  return { ...compared, columns: stream.control === 'answers' ? ['number of chats'] : [...TOTALLED], differing }
}

const EMPTY_DAY = digestText([])

/** The table of the report by date alone, to be compared in all its columns. */
async function tableControl(
  warehouse: Warehouse,
  projectId: string,
  stream: DayStream,
): Promise<ReadonlyMap<Day, ReadControlDay>> {
  const names = stream.columns.map(({ name }) => name)
  const { rows: found } = await sql<Record<string, Value>>`
    select ${sql.join(names.map((name) => sql.id(name)))} from ${dataTable(stream.table)}
    where project_id = ${projectId} order by date`.execute(warehouse.slowDb)
  const rows: Row[] = found.map((row) => names.map((name) => row[name]!))
  if (rows.length === 0) return new Map()
  const at = datePosition(stream)
  const range = { from: rows[0]![at] as Day, to: rows.at(-1)![at] as Day }
  return controlDays(stream, range, { totals: undefined, rejects: [], rows })
}

/**
 * Added and deleted chats can cancel out in the totals. If a report has the answers of each prompt, the chats of each
 * prompt are compared with it, on days on which both add up without a row in quarantine.
 */
async function comparePrompts(
  { streams, warehouse }: ControlReader,
  project: SyncedProject,
  { daysOf, audited }: { daysOf: ReadonlyMap<DayStream, readonly KnownDay[]>; audited: AuditedStream[] },
): Promise<void> {
  const chats = streams.byDay.find(({ control }) => control === 'answers')
  const report = streams.byDay.find(
    ({ control, dimensions = [], filters = [] }) =>
      control === 'brand totals' && dimensions.includes('prompt_id') && filters.length === 0,
  )
  const ofChats = audited.find(({ stream }) => stream === chats?.name)
  const ofReport = audited.find(({ stream }) => stream === report?.name)
  if (chats === undefined || report === undefined || ofChats?.columns.length !== 1) return
  if (ofReport === undefined || ofReport.columns.length === 0) return
  const read = new Set(daysOf.get(report)!.map(({ date }) => date))
  const wrong = new Set([...ofChats.differing, ...ofReport.differing])
  const common = daysOf.get(chats)!.flatMap(({ date }) => (read.has(date) && !wrong.has(date) ? [date] : []))
  if (common.length === 0) return
  const range = { from: common[0]!, to: common.at(-1)! }
  const rejectsOf = (stream: DayStream) =>
    readRejects(warehouse, { projectId: project.id, stream: stream.name }, range, 'all')
  const rejects = [...(await rejectsOf(chats)), ...(await rejectsOf(report))]
  const days = common.filter((day) => !rejects.some(({ date }) => date === undefined || date === day))
  const differing = await daysWithOtherPrompts(warehouse, { projectId: project.id, chats, report, days })
  ofChats.columns.push('number of chats by prompt')
  ofChats.differing = [...ofChats.differing, ...differing].sort()
}
