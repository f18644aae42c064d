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
 * True if a page that is not full has all rows of its window. It is believed, unless it has fewer rows than the service
 * says there are, fewer than there were, or a size that looks like a cap: then it is proven.
 */
export async function isPageComplete(
  prover: Prover,
  request: WindowRequest,
  { count: rows, total }: Page,
  context: CallContext,
): Promise<boolean> {
  const { client, answers } = prover
  const { caller, stream, range, known } = request
  const window = { task: known.task, operation: stream.operation, range }
  const mayBeCapped = answers.mayBeCapped(window, rows)
  answers.addWindow(window, rows)
  const isShort = total !== undefined && total > rows
  const hasFewerRows = rows < known.rows
  if (!isShort && !hasFewerRows && !mayBeCapped) return true

  const prove = async () => {
    const isProven = await hasNoRowAfter(
      (page) => stream.read(client, caller, { range, page, filters: [] }, context),
      rows,
    )
    if (isProven) answers.markChecked(stream.operation, rows)
    return isProven
  }
  const checked = hasFewerRows ? await answers.checkShrunk(prove) : undefined
  if (checked !== undefined) return checked
  const askForMore = async () => {
    const longer = longerRange(range, known.maxDays)
    return longer === undefined ? 0 : rowsIn(prover, { caller, stream, range: longer }, context)
  }
  return (!isShort && (await answers.streamGaveMoreThan(stream, rows, askForMore))) || prove()
}

/** Twice as many days, or as many as a window may have: where the service shows whether it gives more rows. */
function longerRange(range: Range, maxDays: number): Range | undefined {
  const days = Math.min(countDays(range), maxDays - countDays(range))
  return days > 0 ? { from: addDays(range.from, -days), to: range.to } : undefined
}
