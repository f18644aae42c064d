import { addDays, countDays, type Range } from '../../core/day.ts'
import type { CallContext, Client, Page } from '../../source/client.ts'
import type { AnswerSizes } from '../plan/answer-sizes.ts'
import type { PageLimit } from '../plan/page-limit.ts'
import { rowsIn } from './count-rows.ts'
import { hasNoRowAfter } from './read-pages.ts'
import type { WindowRequest } from './window-request.ts'

interface Prover {
  client: Client
  limit: PageLimit
  answers: AnswerSizes
}

/**
 * Says whether a page that is not full, of so many different rows, has all rows of its window. It is believed, unless it has fewer rows than the service
 * says there are, fewer than there were, or a size that looks like a cap: then the service is asked for more.
 */
export async function provePage(
  prover: Prover,
  request: WindowRequest,
  { rows, total }: { rows: number; total: Page['total'] },
  context: CallContext,
): Promise<boolean> {
  const { client, answers } = prover
  const { caller, stream, range, known } = request
  const window = { task: known.task, operation: stream.operation, range }
  const looksCapped = answers.looksCapped(window, rows)
  answers.addWindow(window, rows)
  const isShortOfTotal = total !== undefined && total > rows
  const hasShrunk = rows < known.rows
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
  return (await answers.findLargerAnswer(stream, rows, askForLongerRange)) || askForNextRow()
}

/**
 * Twice as many days, or as many as a window may have: there the service shows whether it gives more rows. It may be asked for
 * before anything is known of the days around, unlike the ranges of `WindowFeed.longerThan`.
 */
function longerRange(range: Range, maxDays: number): Range | undefined {
  const days = Math.min(countDays(range), maxDays - countDays(range))
  return days > 0 ? { from: addDays(range.from, -days), to: range.to } : undefined
}
