import { setTimeout as delay } from 'node:timers/promises'
import { expect, test } from '@jest/globals'
import { addDays, daysIn } from '../src/core/day.ts'
import { type CliResult, type RunningProcess, runCli, startProcess } from './support/cli.ts'
import { sized } from './support/long.ts'
import { startTcpProxy, type TcpProxy } from './support/proxy.ts'
import { type Dice, diceOf, mutate, randomFaults } from './support/schedules.ts'
import { NO_LIMIT, type Setup, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

/*
 * Random schedules of faults, kills, restatements, deletions and lost connections, run through the real command. Each
 * ends with the service well again and must end in tables that equal the service's own truth, using only what an
 * operator would use: sync, audit --repair, and the command that status names for what is held.
 *
 * A schedule is its seed. FAULT_SCHEDULES says how many to run; FAULT_SEEDS=17,23 replays those. The usual run has the first steps of one.
 */

const SCHEDULES = Number(process.env.FAULT_SCHEDULES ?? sized(1, 60))
const seeds =
  process.env.FAULT_SEEDS?.split(',').map(Number) ?? Array.from({ length: SCHEDULES }, (_, index) => index + 1)
const MOST_STEPS = sized(3, 7)

const REPORTS = [
  { name: 'brand_daily', dimensions: ['date'] },
  { name: 'by_model', dimensions: ['date', 'model_id'] },
  { name: 'by_topic_country', dimensions: ['date', 'topic_id', 'country_code'] },
  { name: 'by_prompt', dimensions: ['date', 'prompt_id', 'model_id'] },
]

/** A worker that is killed now and then, and comes back. */
async function keepWorker(setup: Setup, dice: Dice, story: string[]) {
  let wanted = true
  let kills = true
  let running = startProcess(['worker', '--json'], { env: setup.env, config: setup.fileConfig })
  await running.saw('worker_id')
  const kept = (async () => {
    while (wanted) {
      const life = kills ? dice.whole(2000, 9000) : 180_000
      await Promise.race([delay(life, undefined, { ref: false }), running.done])
      if (!wanted) break
      if (!kills && running.child.exitCode === null && running.child.signalCode === null) continue
      const end = dice.pick(['SIGKILL', 'SIGTERM'] as const)
      running.child.kill(end)
      await running.done
      story.push(`  a worker ended (${end})`)
      running = startProcess(['worker', '--json'], { env: setup.env, config: setup.fileConfig })
    }
  })()
  return {
    settle: () => void (kills = false),
    async stop() {
      wanted = false
      running.child.kill('SIGKILL')
      await Promise.all([kept, running.done])
      running.child.kill('SIGKILL')
      await running.done
    },
  }
}

const ENDS = ['run', 'run', 'SIGKILL', 'SIGTERM', 'drop', 'cut', 'stall', 'freeze', 'restart'] as const

const OWN_CONNECTIONS = `select pg_terminate_backend(pid) from pg_stat_activity
  where datname = current_database() and application_name like 'visibility-sync%' and pid <> pg_backend_pid()`

/** What happens to a command while it runs. */
async function disturb(
  { setup, proxy }: { setup: Setup; proxy: TcpProxy },
  dice: Dice,
  end: (typeof ENDS)[number],
  { child }: RunningProcess,
): Promise<void> {
  if (end === 'run') return
  const awayMs = dice.whole(500, 4000)
  await delay(dice.whole(200, 1500))
  if (end === 'SIGKILL' || end === 'SIGTERM') child.kill(end)
  else if (end === 'drop') await setup.database.rows(OWN_CONNECTIONS).catch(() => {})
  else if (end === 'cut' || end === 'stall') proxy[end]()
  else {
    // A server that restarts ends its connections and refuses new ones until it is there again.
    if (end === 'freeze') proxy.freeze()
    else proxy.refuse()
    await delay(awayMs)
    proxy.resume()
  }
}

async function schedule(
  { setup, proxy }: { setup: Setup; proxy: TcpProxy },
  dice: Dice,
  range: { from: string; to: string },
  story: string[],
): Promise<void> {
  const options = { env: setup.env, config: setup.fileConfig }
  const { world } = setup.service
  const steps = Math.min(dice.whole(4, 7), MOST_STEPS)
  for (let step = 0; step < steps; step++) {
    setup.service.setFaults(randomFaults(dice))
    const project = dice.pick(world.projects)
    for (let change = dice.whole(0, 2); change > 0; change--) story.push(mutate(setup, dice, project, range))
    const days = daysIn(range)
    const from = dice.pick(days)
    const to = dice.pick(days.filter((day) => day >= from))
    const args = dice.pick([
      ['sync'],
      ['sync'],
      ['backfill', '--from', from, '--to', to],
      ['backfill', '--from', range.from, '--to', range.to, '--missing'],
      ['audit', '--repair'],
      ['quarantine', 'retry'],
    ])
    const running = startProcess([...args, '--json'], options)
    const end = dice.pick(ENDS)
    story.push(`${args.join(' ')} (${end})`)
    const disturbed = disturb({ setup, proxy }, dice, end, running)
    // A run that hangs would be a defect of its own.
    const limit = setTimeout(() => running.child.kill('SIGTERM'), 25_000)
    const result = await running.done
    clearTimeout(limit)
    // It may come after the end of the command, and must not reach the next one.
    await disturbed
    proxy.dropStalled()
    story.push(`  → ${result.code}`)
    expect(end.startsWith('SIG') ? [0, 1, null] : [0, 1]).toContain(result.code)
    if (result.code === 0 && args[0] === 'sync') expect(result.json().outcome).toBe('complete')
  }
}

/** What an operator does once the service is well: sync, let through what is held, audit. */
async function recover(setup: Setup): Promise<void> {
  const options = { env: setup.env, config: setup.fileConfig }
  const run = async (...args: string[]): Promise<CliResult> => runCli([...args, '--json'], options)
  setup.service.setFaults(NO_LIMIT)
  for (let round = 0; round < 4; round++) {
    const synced = await run('sync')
    const { held } = (await run('status')).json()
    for (const { accept } of held as { accept: string }[]) {
      const allowed = await run(...accept.split(' ').slice(1))
      expect(allowed.code).toBe(0)
    }
    const audited = await run('audit', '--repair')
    if (synced.code === 0 && held.length === 0 && audited.code === 0) return
  }
  throw new Error('did not settle in four rounds')
}

test.each(seeds)(
  'fault schedule %d ends in tables that equal the service',
  async (seed) => {
    const dice = diceOf(seed)
    const mode = seed % 2 === 0 ? 'pg-boss' : 'none'
    const from = dice.pick(['2026-03-01', '2026-02-20', '2024-02-20', '2025-12-20'])
    const range = { from, to: addDays(from, dice.whole(5, 35)) }
    const setup = await setUp({
      world: {
        seed,
        projects: dice.whole(1, 2),
        prompts: dice.whole(3, 9),
        models: dice.whole(1, 3),
        brands: dice.whole(2, 4),
        awkward: dice.chance(0.5),
      },
      config: {
        // Every other schedule shares its windows with a worker, two of four keep their tables in months.
        queue: { mode },
        warehouse: { partition: seed % 4 < 2 ? 'month' : 'none' },
        start_date: range.from,
        end_date: range.to,
        lookback_days: dice.whole(0, 7),
        reports: REPORTS,
        source: {
          page_limit: dice.pick([25, 60, 300, 10_000]),
          max_attempts: dice.whole(2, 5),
          concurrency: dice.whole(1, 6),
          timeout_seconds: 3,
        },
      },
    })
    const story: string[] = []
    const proxy = await startTcpProxy(setup.database.url)
    setup.env.DATABASE_URL = proxy.url
    // Dice of its own: the rest of the schedule is the same with a worker and without.
    const worker = mode === 'none' ? undefined : await keepWorker(setup, diceOf(seed + 10_000), story)
    try {
      await schedule({ setup, proxy }, dice, range, story)
      proxy.resume()
      worker?.settle()
      await recover(setup)
      await expectExact(setup.database, { world: setup.service.world, range, reports: REPORTS })
      expect(await setup.database.rows('select 1 from visibility_ops.quarantine where resolved_at is null')).toEqual([])
    } catch (error) {
      const failure = error as Error
      failure.message = `FAULT_SEEDS=${seed} replays this schedule:\n${story.join('\n')}\n${failure.message}`
      throw failure
    } finally {
      proxy.resume()
      await worker?.stop()
    }
  },
  300_000,
)
