import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { type RunningCli, startCli } from './support/cli.ts'
import { FOUR_GRAINS, type Setup, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'

const RANGE = { from: '2026-03-10', to: '2026-03-31' }

describe('forty projects, four workers, limits and faults', () => {
  let setup: Setup
  const workers: RunningCli[] = []

  beforeAll(async () => {
    setup = await setUp({
      world: { projects: 40, prompts: 4, models: 2, brands: 3 },
      config: { start_date: RANGE.from, end_date: RANGE.to, queue: { mode: 'pg-boss' } },
      faults: {
        rate_limit: 40,
        rate_window_ms: 2000,
        latency_ms: 20,
        server_error: 0.05,
        reset: 0.03,
        truncate: 0.02,
        cut_json: 0.02,
        unstable_order: true,
      },
    })
  })
  afterAll(async () => {
    for (const { child } of workers) child.kill('SIGKILL')
    await Promise.all(workers.map(({ done }) => done))
    await setup.close()
  })

  test('two are killed and one comes back, and every table equals the truth', async () => {
    const options = { env: setup.env, config: { ...setup.fileConfig, source: { max_attempts: 6 } } }
    const start = async () => {
      const worker = startCli(['worker', '--concurrency', '3', '--json'], options)
      workers.push(worker)
      await worker.saw('worker_id')
      return worker
    }
    const [first, second] = await Promise.all([start(), start(), start(), start()])
    const sync = startCli(['sync', '--json'], options)
    await sync.saw('run started')
    await delay(1500)
    first!.child.kill('SIGKILL')
    await delay(1000)
    second!.child.kill('SIGKILL')
    await start()
    const result = await sync.done
    console.log(
      result.stderr
        .split('\n')
        .filter((line) => /warn|error/.test(line))
        .slice(0, 5)
        .join('\n'),
    )
    expect(result.json()).toMatchObject({ outcome: 'complete' })
    expect(result.code).toBe(0)
    await expectExact(setup.database, { world: setup.service.world, range: RANGE, reports: FOUR_GRAINS })
  })
})
