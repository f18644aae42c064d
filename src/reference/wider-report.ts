import * as z from 'zod'
import { DIMENSIONS, FILTER_FIELDS, FILTER_OPERATORS } from '../core/vocabulary.ts'
import { reportRequest } from '../source/requests.ts'

/* What reports of the live service take besides. How `having` is written is not known: this is one way. */

const COMPARISONS = {
  gt: (value: number, than: number) => value > than,
  gte: (value: number, than: number) => value >= than,
  lt: (value: number, than: number) => value < than,
  lte: (value: number, than: number) => value <= than,
}
const operators = Object.keys(COMPARISONS) as (keyof typeof COMPARISONS)[]

export const widerReportRequest = reportRequest.extend({
  dimensions: z.array(z.enum([...DIMENSIONS, 'week', 'month'])).optional(),
  filters: z
    .array(
      z.strictObject({
        field: z.enum([...FILTER_FIELDS, 'classification']),
        operator: z.enum(FILTER_OPERATORS),
        values: z.array(z.string()).min(1),
      }),
    )
    .optional(),
  having: z
    .array(z.strictObject({ field: z.string().min(1), operator: z.enum(operators), value: z.number() }))
    .optional(),
})
export type WiderReportRequest = z.infer<typeof widerReportRequest>

/** Narrows the rows after the sums are made, so that shares keep their denominators. */
export function applyHaving(
  rows: Record<string, unknown>[],
  having: NonNullable<WiderReportRequest['having']> = [],
): Record<string, unknown>[] {
  return rows.filter((row) =>
    having.every(({ field, operator, value }) => {
      const found = row[field]
      return typeof found === 'number' && COMPARISONS[operator](found, value)
    }),
  )
}
