import { addDays, countDays, type Day, type Range } from '../../core/day.ts'
import type { CallContext, Client, Page } from '../../source/client.ts'
import type { AnswerSizes } from '../plan/answer-sizes.ts'
import type { PageLimit } from '../plan/page-limit.ts'
import { countRows, rowsIn } from './count-rows.ts'
import { hasNoRowAfter } from './read-pages.ts'
import type { WindowRequest } from './window-request.ts'

interface PageSize {
  /** How many different rows it has. */
  rows: number
  /** How many there are, if the service says so. */
  total: Page['total']
  /** The rows of each day; undefined if some rows were rejected, so that their days are not known. */
  rowsByDay: ReadonlyMap<Day, number> | undefined
}

interface Prover {
  client: Client
  limit: PageLimit
  answers: AnswerSizes
}

/**
 * Says whether a page that is not full has all rows of its window. It is believed, unless it has fewer rows than the service
 * says there are, fewer than there were, or a size that looks like a cap: then the service is asked for more.
 */
export async function provePage(
  prover: Prover,
  request: WindowRequest,
  { rows, total, rowsByDay }: PageSize,
  context: CallContext,
): Promise<boolean> {
  const { client, answers } = prover
  const { caller, stream, range, known } = request
  const window = { task: known.task, operation: stream.operation, range }
  const looksCapped = answers.looksCapped(window, rows)
  answers.addWindow(window, rows)
  const isShortOfTotal = total !== undefined && total > rows
  // By day, too, because today gains rows while another day may lose some.
  const isPoorer = ([day, before]: [Day, number]) => rowsByDay !== undefined && before > (rowsByDay.get(day) ?? 0)
  const hasShrunk = rows < known.rows || [...known.rowsByDay].some(isPoorer)
  if (!isShortOfTotal && !hasShrunk && !looksCapped) return true

  const askForNextRow = async () => {
    const read = (page: { limit: number; offset: number }) =>
      stream.read(client, caller, { range, page, filters: [] }, context)
    const isComplete = await hasNoRowAfter(read, rows)
    if (isComplete) answers.markChecked(stream.operation, rows)
    return isComplete
  }
  const askForLongerRange = async () => {
    const longer = longerRange(range, known.maxDays)
    return longer === undefined ? 0 : rowsIn(prover, { caller, stream, range: longer }, context)
  }
  if (hasShrunk) {
    const isComplete = await answers.checkShrunk(askForNextRow)
    if (isComplete !== undefined) return isComplete
  }
  // A larger answer to the stream proves that it has no cap, not that the service counts wrongly.
  if (isShortOfTotal) return askForNextRow()
  if (await answers.findLargerAnswer(stream, rows, askForLongerRange)) return true
  if (!(await askForNextRow())) return false
  // A service may cut what it finds before it pages: offsets do not show that, but shorter ranges do.
  return countDays(range) === 1 || (await countRows(prover, { caller, stream, range }, context)) <= rows
}

/**
 * Twice as many days, or as many as a window may have: there the service shows whether it gives more rows. It may be asked for
 * before anything is known of the days around, unlike the ranges of `WindowFeed.longerThan`.
 */
function longerRange(range: Range, maxDays: number): Range | undefined {
  const days = Math.min(countDays(range), maxDays - countDays(range))
  return days > 0 ? { from: addDays(range.from, -days), to: range.to } : undefined
}
