import { describe, expect, test } from '@jest/globals'
import { IncompleteError, RefusedError } from '../src/core/errors.ts'
import type { Dimension, Filter } from '../src/core/vocabulary.ts'
import { brandReport } from '../src/streams/brand-report.ts'
import { chats } from '../src/streams/chats.ts'
import { type DayStream, RowList } from '../src/streams/stream.ts'
import { PageLimit } from '../src/sync/plan/density.ts'
import { readLargeDay } from '../src/sync/read/split-day.ts'

const DAY = '2026-03-01'
const LIMIT = 10
const by_prompt = brandReport({ name: 'by_prompt', dimensions: ['date', 'prompt_id', 'model_id'], filters: [] })

interface Answer {
  prompt: string | null
  model: string
  brand: string
}

/** So many rows of each prompt, of two models in turn. */
function answersOf(counts: Record<string, number>, prompt?: null): Answer[] {
  return Object.entries(counts).flatMap(([name, count]) =>
    Array.from({ length: count }, (_, at) => ({
      prompt: prompt === null ? null : name,
      model: `m${at % 2}`,
      brand: `kw_${name}_${at}`,
    })),
  )
}

interface Service {
  /** Refuses these filters. */
  refuses?: (filter: Filter) => boolean
  ignoresFilters?: boolean
  /** Values of prompts that are known from elsewhere. */
  known?: string[]
  stream?: DayStream
}

/** Reads a day of a service with these answers. Gives the brands that were read, and what was asked for. */
async function read(
  answers: readonly Answer[],
  { refuses, ignoresFilters, known = [], stream = by_prompt }: Service = {},
) {
  const asked: string[] = []
  const valueOf = ({ prompt, model }: Answer, dimension: Dimension) => (dimension === 'model_id' ? model : prompt)
  const itemOf = ({ prompt, model, brand }: Answer) =>
    stream === chats
      ? { id: brand, prompt: { id: prompt }, model: { id: model }, date: DAY }
      : {
          ...{ date: DAY, brand: { id: brand, name: brand }, mention_count: 1, visibility: 1 },
          ...{ visibility_count: 1, visibility_total: 1, model: { id: model } },
          prompt: prompt === null ? null : { id: prompt },
        }
  const ask =
    (_: DayStream, filters: Filter[]) =>
    async ({ limit, offset }: { limit: number; offset: number }) => {
      asked.push(
        filters.map(({ operator, values }) => `${operator} ${values.join()}`).join(' and ') || `from ${offset}`,
      )
      if (filters.some((filter) => refuses?.(filter))) throw new RefusedError('the filter is refused', { status: 400 })
      const isSelected = (answer: Answer) =>
        ignoresFilters ||
        filters.every(({ field, operator, values }) => {
          const value = valueOf(answer, field as Dimension)
          return values.includes(value ?? '') === (operator === 'in')
        })
      const items = answers
        .filter(isSelected)
        .slice(offset, offset + limit)
        .map(itemOf)
      return { items, count: items.length, total: undefined, needsTextCheck: false, unknownFields: [] }
    }
  const seen = new Set(
    answers.slice(0, LIMIT).flatMap(({ prompt, model }) => (stream === chats ? model : (prompt ?? []))),
  )
  const { rows, rejects } = await readLargeDay(
    {
      ...{ stream, range: { from: DAY, to: DAY }, limit: new PageLimit(LIMIT), about: 'the day', ask, seen },
      valuesOf: async (dimension) => (dimension === 'model_id' ? ['m0', 'm1'] : known),
    },
    () => new RowList(),
  )
  expect(rejects).toEqual([])
  const keyAt = stream === chats ? 0 : 1
  return { brands: rows.values.map((row) => row[keyAt] as string).sort(), asked }
}

const brandsOf = (answers: readonly Answer[]) => answers.map(({ brand }) => brand).sort()

describe('a day with more rows than a page', () => {
  const prompts = (count: number, rows: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, at) => [`p${String(at).padStart(2, '0')}`, rows]))

  test('is read in lists of as many values as fit a page, and the rest by leaving these out', async () => {
    const answers = answersOf(prompts(12, 2))
    const { brands, asked } = await read(answers)
    expect(brands).toEqual(brandsOf(answers))
    expect(asked).toEqual([
      'in p00',
      'in p01,p02,p03,p04',
      'not_in p00,p01,p02,p03,p04',
      'in p05,p06,p07,p08',
      'in p09',
      'not_in p00,p01,p02,p03,p04,p05,p06,p07,p08,p09',
      'from 24',
    ])
  })

  test.each([5, 6, 9])('is read value by value if two values of %i rows fill a page', async (rows) => {
    const answers = answersOf({ a: 1, b: 1, c: 1, d: 1, e: rows, f: rows, g: rows, h: rows })
    const { brands, asked } = await read(answers)
    expect(brands).toEqual(brandsOf(answers))
    expect(asked).toContain('in f')
    expect(asked.filter((filter) => filter.startsWith('from '))).toEqual([`from ${answers.length}`])
    expect(asked.length).toBeLessThan(14)
  })

  test('is read by the next dimension where a value alone fills a page, or rows have none', async () => {
    const [one, none] = [answersOf({ a: 12, b: 1 }), answersOf({ none: 14 }, null)]
    const { brands, asked } = await read([...one, ...none])
    expect(brands).toEqual(brandsOf([...one, ...none]))
    for (const filter of ['in a and in m0', 'not_in a,b and in m1']) expect(asked).toContain(filter)
  })

  test('is read in shorter lists if the service refuses long ones, and never in longer ones again', async () => {
    const answers = answersOf(prompts(10, 1)).concat(answersOf({ x: 3, y: 3, z: 4 }))
    const { brands, asked } = await read(answers, {
      refuses: ({ operator, values }) => operator === 'in' && values.length > 1,
    })
    expect(brands).toEqual(brandsOf(answers))
    expect(asked.filter((filter) => /^in .*,/.test(filter))).toHaveLength(1)
  })

  test('is read by the values that are known from elsewhere if the service refuses to leave some out', async () => {
    const answers = answersOf({ a: 6, b: 6, c: 6, d: 6 })
    const { brands, asked } = await read(answers, {
      refuses: ({ operator }) => operator === 'not_in',
      known: ['a', 'b', 'c', 'd', 'e'],
    })
    expect(brands).toEqual(brandsOf(answers))
    expect(asked.filter((filter) => filter === 'in a')).toHaveLength(1)
  })

  test('is not read as whole if values are missing from those: overlapping pages prove it then', async () => {
    const answers = answersOf({ a: 6, b: 6, c: 6, d: 6 })
    const { brands, asked } = await read(answers, { refuses: ({ operator }) => operator === 'not_in', known: ['c'] })
    expect(brands).toEqual(brandsOf(answers))
    expect(asked).toContain('from 9')
  })

  test('is read by overlapping pages if the service refuses each filter', async () => {
    const answers = answersOf({ a: 6, b: 6, c: 6 })
    const { brands, asked } = await read(answers, { refuses: () => true })
    expect(brands).toEqual(brandsOf(answers))
    expect(asked.slice(0, 2)).toEqual(['in a', 'from 0'])
  })

  test('is read by overlapping pages if the service ignores filters', async () => {
    const answers = answersOf({ a: 6, b: 6, c: 6 })
    const { brands, asked } = await read(answers, { ignoresFilters: true })
    expect(brands).toEqual(brandsOf(answers))
    expect(asked.slice(0, 2)).toEqual(['in a', 'from 0'])
  })

  test('fails if nothing proves it, with what was tried', async () => {
    // The same row again and again.
    const answers = [...answersOf({ a: 6, b: 6 }), ...answersOf({ a: 1 })]
    const reading = read(answers, { ignoresFilters: true })
    await expect(reading).rejects.toThrow(IncompleteError)
    await expect(reading).rejects.toThrow('before that: the day: the service ignores a filter on prompt_id')
  })

  test('of chats, whose filters take one value, is read by each value that is known', async () => {
    const answers = answersOf({ a: 11, b: 11, c: 2 })
    const { brands, asked } = await read(answers, { stream: chats, known: ['c', 'd'] })
    expect(brands).toEqual(brandsOf(answers))
    const ofModel = (model: string) => ['a', 'b', 'c', 'd'].map((value) => `${model} and in ${value}`)
    expect(asked).toEqual(['in m0', ...ofModel('in m0'), 'in m1', ...ofModel('in m1'), 'from 24'])
  })
})
