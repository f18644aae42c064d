import { expect, test } from '@jest/globals'
import { runAudit } from '../src/audit/run-audit.ts'
import { addDays, daysIn, type Range } from '../src/core/day.ts'
import { readDiffering } from '../src/ledger/days.ts'
import { readHeld } from '../src/ledger/status.ts'
import type { Executor } from '../src/sync/run/execute.ts'
import { isFine, isReport, type Lie, lyingTo } from './support/lies.ts'
import { sized } from './support/long.ts'
import { type Dice, diceOf, mutate, randomFaults } from './support/schedules.ts'
import { FOUR_GRAINS, NO_LIMIT, type Setup, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'
import { withWorker } from './support/worker.ts'

/*
 * Random schedules of faults, lies, changes and interrupted runs, in this process; every other one with a queue and a worker. Each
 * ends in tables that equal the service, with what an operator would do: sync, accept what is held, audit --repair.
 *
 * A schedule is its seed. SCHEDULES says how many to run, SCHEDULE_SEEDS=17,23 replays those.
 */

const SCHEDULES = Number(process.env.SCHEDULES ?? sized(2, 100))
const seeds = process.env.SCHEDULE_SEEDS?.split(',').map(Number) ?? Array.from({ length: SCHEDULES }, (_, at) => at + 1)

const LIES: readonly ((dice: Dice) => Lie)[] = [
  () => (rows) => rows,
  (dice) => (rows, asked) => (isFine(asked) && dice.chance(0.5) ? rows.filter((_, at) => at % 5 !== 0) : rows),
  (dice) => (rows, asked) => (isReport(asked) && dice.chance(0.3) ? rows.slice(0, -1) : rows),
  () => (rows, asked) => (isFine(asked) ? rows.filter(({ mention_count }) => mention_count !== 0) : rows),
  (dice) => (rows, asked) =>
    isFine(asked) && dice.chance(0.5)
      ? rows.map((row) => ({ ...row, mention_count: Number(row.mention_count) + 1 }))
      : rows,
  () => (rows, asked) =>
    isReport(asked) ? rows.filter((row) => (row.brand as { id: string }).id.length % 2 === 0) : rows,
  (dice) =>
    (rows, { path }) =>
      path === 'chats' && dice.chance(0.5) ? rows.slice(1) : rows,
]

/** Faults that cost no time. */
function quickFaults(dice: Dice) {
  const faults = randomFaults(dice)
  return {
    ...faults,
    rate_limit: null,
    latency_ms: 0,
    hang: 0,
    reset: Number(faults.reset) / 3,
    server_error: Number(faults.server_error) / 3,
  }
}

async function step(setup: Setup, dice: Dice, range: Range, execute: Executor | undefined): Promise<string> {
  setup.service.setFaults(quickFaults(dice))
  const changes = Array.from({ length: dice.whole(0, 2) }, () =>
    mutate(setup, dice, dice.pick(setup.service.world.projects), range),
  )
  const days = daysIn(range)
  const from = dice.pick(days)
  const part = { from, to: dice.pick(days.filter((day) => day >= from)) }
  const stop = new AbortController()
  let left = dice.chance(0.3) ? dice.whole(1, 6) : Number.POSITIVE_INFINITY
  const advanced = () => {
    if (--left === 0) stop.abort()
  }
  const kind = dice.pick(['sync', 'sync', 'backfill', 'audit'] as const)
  const projects = setup.projects
  const work = async () => {
    if (kind === 'audit')
      return runAudit(setup.services, { projects, repair: true, signal: stop.signal, execute }, { advanced }).then(
        ({ remaining }) => `${remaining} remaining`,
        () => 'failed',
      )
    const request = kind === 'sync' ? {} : { command: 'backfill', range: part }
    return (await setup.sync({ ...request, signal: stop.signal }, { advanced }, execute)).outcome
  }
  const lie = dice.whole(0, LIES.length - 1)
  const result = await lyingTo(setup, LIES[lie]!(dice), work)
  return `${changes.join(', ')}; ${kind} with lie ${lie}, ${left === 0 ? 'stopped' : 'to its end'}: ${result}`
}

/** Days on which the service seemed to leave rows out are settled. Only a person knows that it sends these rows again. */
async function readOmitted(setup: Setup, story: string[]): Promise<void> {
  for (const found of await readDiffering(setup.database.warehouse, 'settled')) {
    const { project_id, stream, first_day: from, last_day: to } = found
    const projects = setup.projects.filter(({ id }) => id === project_id)
    const streams = setup.services.streams.named([stream])
    const { outcome } = await setup.sync({ command: 'backfill', range: { from, to }, projects, streams })
    story.push(`backfill of ${stream} ${from} to ${to}: ${outcome}`)
  }
}

/** What an operator does once the service is well. */
async function recover(setup: Setup, story: string[]): Promise<void> {
  const { warehouse } = setup.database
  setup.service.setFaults(NO_LIMIT)
  for (let round = 0; round < 4; round++) {
    const { outcome } = await setup.sync()
    const { ranges } = await readHeld(warehouse)
    for (const { project_id, stream, from, to } of ranges) {
      const projects = setup.projects.filter(({ id }) => id === project_id)
      const streams = setup.services.streams.named([stream])
      await setup.sync({ command: 'backfill', range: { from, to }, projects, streams, acceptDeletes: true })
    }
    const signal = new AbortController().signal
    const { remaining, repair } = await runAudit(setup.services, { projects: setup.projects, repair: true, signal })
    story.push(`recovery: ${outcome}, ${ranges.length} held, ${remaining} remaining, repair ${repair?.outcome}`)
    if (outcome === 'complete' && ranges.length === 0 && remaining === 0) {
      await readOmitted(setup, story)
      return
    }
  }
  throw new Error('did not settle in four rounds')
}

test.each(seeds)(
  'random schedule %d ends in tables that equal the service',
  async (seed) => {
    const dice = diceOf(seed)
    const from = dice.pick(['2026-03-01', '2026-02-20', '2025-12-20'])
    const range = { from, to: addDays(from, dice.whole(3, 20)) }
    const setup = await setUp({
      world: {
        seed,
        projects: dice.whole(1, 2),
        prompts: dice.whole(3, 6),
        models: dice.whole(1, 2),
        brands: dice.whole(2, 4),
      },
      config: {
        start_date: range.from,
        end_date: range.to,
        lookback_days: dice.whole(0, 7),
        source: { page_limit: dice.pick([25, 60, 300, 10_000]), max_attempts: 3, concurrency: dice.whole(1, 4) },
      },
    })
    const story: string[] = []
    try {
      const steps = async (execute?: Executor) => {
        for (let left = dice.whole(2, 5); left > 0; left--) story.push(await step(setup, dice, range, execute))
      }
      await (seed % 2 === 0 ? withWorker(setup, steps) : steps())
      await recover(setup, story)
      await expectExact(setup.database, { world: setup.service.world, range, reports: FOUR_GRAINS })
      expect(await setup.database.rows('select 1 from visibility_ops.quarantine where resolved_at is null')).toEqual([])
    } catch (error) {
      const failure = error as Error
      failure.message = `SCHEDULE_SEEDS=${seed} replays this schedule:\n${story.join('\n')}\n${failure.message}`
      throw failure
    }
  },
  180_000,
)
