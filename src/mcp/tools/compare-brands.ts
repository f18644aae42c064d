import * as z from 'zod'
import { percent, verdictFor, whole } from '../../web/insights/format.ts'
import { headToHeadBy } from '../../web/insights/measure-statements.ts'
import type { Row } from '../../web/insights/read-page.ts'
import { reportName, text } from '../../web/insights/sql.ts'
import { columnOf } from '../dimensions.ts'
import { find } from '../names.ts'
import { quoted, shareWith } from '../phrases.ts'
import { aName, defineTool, ofList, ofPeriod, ofProject, openQuestion } from '../question.ts'

type Lead = Row & { own_answers: number }

export const compareBrands = defineTool({
  name: 'compare_brands',
  title: 'Compare brands',
  description:
    'The own brand against its rivals in the same answers, over a period; or by topic or channel against one rival. Says who is clearly ahead, and where no lead is clear.',
  input: z.object({
    ...ofProject,
    brand: aName('An own brand, by name or id; by default the first.').optional(),
    rival: aName('By default all rivals, and by topic or channel the most visible one.').optional(),
    by: z.enum(['none', 'topic', 'channel']).default('none'),
    ...ofPeriod,
    ...ofList,
  }),
  columns: {
    texts: 'name rival_brand rival_brand_id lead_verdict',
    numbers: `own_visibility own_visibility_low own_visibility_high own_answers rival_visibility rival_visibility_low
rival_visibility_high answers lead own_share_of_both`.replace('\n', ' '),
  },
  about:
    'Shares from 0 to 1 with 95 % intervals. name is the topic or channel; answers is the sample of the rival. lead is given only if lead_verdict is ahead or behind.',
  async answer(desk, { by, limit, offset, ...asked }) {
    const question = await openQuestion(desk, asked)
    const { context, filters, rivals, project, range: period } = question
    const own = question.own(asked.brand)
    const chosen = asked.rival === undefined ? undefined : find('rival', asked.rival, rivals)
    const all = await question.read<Lead>('head-to-head')
    const rival = chosen ?? rivals.find(({ id }) => id === all.rows[0]?.rival_brand_id)
    const column = by === 'none' ? undefined : columnOf(desk, by)
    context.rival = text(rival?.id ?? '')
    if (column !== undefined) filters.rival = rival?.id
    const { rows: found, missing } =
      column === undefined ? all : await question.read<Lead>((of) => headToHeadBy(of, column))
    const rows = found.filter(({ rival_brand_id }) => chosen === undefined || rival_brand_id === chosen.id)
    const { notes } = await question.days(column && reportName(desk.reports, ['date', column]))
    const against = column === undefined ? 'its rivals' : `${quoted(rival?.name ?? '')} by ${by}`
    return {
      ...{ project, period },
      sentences: [
        missing ??
          (rows.length === 0
            ? 'There are no answers in this period.'
            : `${quoted(own.name)} against ${against}, in the same answers.`),
      ],
      rows: rows.slice(offset, offset + limit).map((row) => ({
        row: { ...row, lead: ['ahead', 'behind'].includes(row.lead_verdict) ? row.lead : null },
        line: `${column === undefined ? '' : `${quoted(row.name ?? `(no ${by})`)}: `}${lineOf(row, own.name)}`,
      })),
      ...{ total: rows.length, offset, narrower: 'name one rival' },
      notes: [...notes, 'A lead is clear only if the two 95 % intervals do not overlap.'],
      link: question.link('head-to-head'),
    }
  },
})

function lineOf(row: Lead, own: string): string {
  const mine = shareWith(row.own_visibility, row.own_visibility_low, row.own_visibility_high)
  const theirs = shareWith(row.rival_visibility, row.rival_visibility_low, row.rival_visibility_high)
  const both = row.own_share_of_both === null ? '' : `, with ${percent(row.own_share_of_both)} of the mentions of both`
  return `${quoted(own)} ${mine} of ${whole(row.own_answers)} answers, ${quoted(row.rival_brand)} ${theirs} of ${whole(row.answers)}. ${verdictFor(row.lead_verdict).words}${both}.`
}
