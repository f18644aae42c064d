import { beforeAll, describe, expect, test } from '@jest/globals'
import { addDays, type Day, daysIn } from '../src/core/day.ts'
import { type CliResult, runCli } from './support/cli.ts'
import { FOUR_GRAINS, NO_LIMIT, type Setup, setUp } from './support/setup.ts'
import { expectExact, expectReport } from './support/truth.ts'

describe('requests of a run', () => {
  let setup: Setup
  let first: CliResult
  let requestsOfFirst: Setup['service']['requests']
  const range = { from: '2026-01-31', to: '2026-03-31' }

  beforeAll(async () => {
    setup = await setUp({
      world: { projects: 1, prompts: 20, models: 3, brands: 6 },
      config: { start_date: range.from, end_date: range.to },
    })
    first = await runCli(['sync', '--json'], { env: setup.env, config: setup.fileConfig })
    requestsOfFirst = [...setup.service.requests]
  })

  test('60 days at four grains cost close to rows / 10,000 requests, none of them by offset', async () => {
    expect(first.code).toBe(0)
    const { streams } = first.json()
    const pages = streams.reduce(
      (sum: number, stream: { rows_read: number }) => sum + Math.ceil(stream.rows_read / 10_000),
      0,
    )
    const requests = requestsOfFirst
    expect(requests.length).toBeLessThanOrEqual(1.35 * pages + 12)
    // Only one row after the last of a page is asked for by offset.
    const isPage = ({ query, body }: (typeof requests)[number]) => Number(query.limit ?? body.limit) > 1
    const byOffset = requests.filter(({ query, body }) => Number(query.offset ?? body.offset ?? 0) > 0)
    expect(byOffset.filter(isPage)).toEqual([])
    await expectExact(setup.database, { world: setup.service.world, range, reports: FOUR_GRAINS })
  })
})

/* What a report costs in requests, whatever number of rows its days have. */

const LAST = '2026-03-31'
const BY_PROMPT = FOUR_GRAINS.slice(3)

const failures = (report: Awaited<ReturnType<Setup['sync']>>) => report.streams.flatMap(({ failed }) => failed)

interface World {
  prompts: number
  models: number
  brands: number
}

/** One report over so many days; each prompt, model and brand gives a row a day. */
async function withReport(
  world: World,
  { length, limit, cap = null }: { length: number; limit: number; cap?: number | null },
  use: (setup: Setup, days: Day[], dropOne: (day: Day) => void) => Promise<void>,
) {
  const range = { from: addDays(LAST, 1 - length), to: LAST }
  const setup = await setUp({
    world: { projects: 1, ...world },
    faults: { ...NO_LIMIT, silent_cap: cap },
    config: { start_date: range.from, streams: [], reports: BY_PROMPT, source: { page_limit: limit } },
  })
  const { world: synthetic } = setup.service
  const project = synthetic.projects[0]!
  await use(setup, daysIn(range), (day) => synthetic.dropChat(synthetic.chatsOf(project, day)[0]!.id))
  await expectReport(setup.database, { world: synthetic, range, reports: [] }, project, BY_PROMPT[0]!)
}

const SIZES = [
  { perDay: 1, prompts: 1, models: 1, brands: 1, length: 400, limit: 10_000 },
  // Ten days make 250 rows, to which services like to cut their answers.
  { perDay: 25, prompts: 25, models: 1, brands: 1, length: 100, limit: 275 },
]

test.each(SIZES)(
  '$perDay rows a day and $limit a page: at most 1.1 × rows / limit + 3 requests besides the control totals, first, again, and where rows vanished',
  async ({ perDay, length, limit, ...world }) => {
    await withReport(world, { length, limit }, async (setup, days, dropOne) => {
      const cost = async (request: Parameters<Setup['sync']>[0]) => {
        setup.service.requests.length = 0
        const { outcome, streams } = await setup.sync(request)
        expect(outcome).toBe('complete')
        const rows = streams[0]!.rows_read
        const isControl = ({ body }: { body: { dimensions?: string[] } }) => body.dimensions?.length === 1
        const control = setup.service.requests.filter(isControl).length
        // As many pages as it has, and one row after each that changed.
        expect(control).toBeLessThanOrEqual(2 * Math.ceil((days.length * world.brands) / limit) + 3)
        return { rows, requests: setup.service.requests.length - control, most: Math.floor(1.1 * (rows / limit) + 3) }
      }
      const backfill = { command: 'backfill', range: { from: days[0]!, to: LAST }, acceptDeletes: true }
      const costs = [await cost({}), await cost(backfill)]
      // So that each window loses rows, but no more than a few.
      const poorer = days.filter((_, index) => index % Math.ceil(20 / perDay) === 0)
      for (const day of poorer) dropOne(day)
      costs.push(await cost(backfill))
      expect(costs[2]!.rows).toBe(costs[1]!.rows - poorer.length * world.brands)
      expect(costs.filter(({ requests, most }) => requests > most)).toEqual([])
    })
  },
)

describe('days that do not fit a page', () => {
  const world = { prompts: 60, models: 3, brands: 2 }
  const backfill = { command: 'backfill', range: { from: addDays(LAST, -5), to: LAST }, acceptDeletes: true }

  test('a service that now repeats rows, and cuts its answers, is read as if nothing were known', async () => {
    await withReport(world, { length: 6, limit: 300 }, async (setup, days, dropOne) => {
      expect((await setup.sync()).outcome).toBe('complete')
      for (const day of days) dropOne(day)
      setup.service.setFaults({ ...NO_LIMIT, duplicate_rows: 0.3, silent_cap: 140 })
      expect(failures(await setup.sync(backfill))).toEqual([])
    })
  })
})

test('a window with exactly as many rows as the silent limit proves nothing for the others', async () => {
  const world = { prompts: 26, models: 1, brands: 1 }
  await withReport(world, { length: 60, limit: 275, cap: 250 }, async (setup, days, dropOne) => {
    // The newest windows are whole with 250 rows; older ones have some more, and are cut to as many.
    for (const day of days.slice(-30)) dropOne(day)
    expect((await setup.sync()).outcome).toBe('complete')
  })
})
