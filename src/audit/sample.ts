import { addDays, type Day, type Range } from '../core/day.ts'
import { type DayStream, type Row, RowList } from '../streams/stream.ts'
import { readWindow } from '../sync/read/read-window.ts'
import { type AuditContext, UNKNOWN } from './audit-context.ts'

const SAMPLE_DAYS = 3

/** The rows of a few days; of the last one alone, if they are too many for a page. */
export async function readSample(
  context: AuditContext,
  stream: DayStream,
  range: Range,
): Promise<{ rows: Row[]; range: Range }> {
  const { services, project } = context
  const answer = await readWindow(
    { ...services, limit: context.limit, answers: context.answers },
    { caller: project.caller, stream, range, known: UNKNOWN },
    context.call,
    () => new RowList(),
  )
  if (answer.kind === 'rows') return { rows: answer.sifted.rows.values, range }
  return readSample(context, stream, { from: range.to, to: range.to })
}

/** A few days next to each other from the middle, old enough to change no more. */
export function sampleRange(days: ReadonlySet<Day>): Range {
  const sorted = [...days].sort()
  const to = sorted[Math.floor((sorted.length - 1) / 2)]!
  const from = addDays(to, 1 - SAMPLE_DAYS)
  return { from: sorted[0]! > from ? sorted[0]! : from, to }
}
