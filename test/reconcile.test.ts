import { describe, expect, test } from '@jest/globals'
import { addDays, countDays } from '../src/core/day.ts'
import { type Asked, isFine, isReport, type Lie, type LiedRow, lyingTo, settledWithDifference } from './support/lies.ts'
import { FOUR_GRAINS, type Setup, type SetupOptions, setUp } from './support/setup.ts'
import { expectExact } from './support/truth.ts'
import { withWorker } from './support/worker.ts'

/* A service that answers wrongly but in a valid form. No run may be complete while the warehouse differs from the service. */

let setup: Setup

const RANGE = { from: '2026-02-19', to: '2026-03-02' }
const start = async (options: SetupOptions = {}) => {
  setup = await setUp({
    world: { projects: 1, prompts: 6, models: 2, brands: 3 },
    ...options,
    config: { start_date: RANGE.from, end_date: RANGE.to, ...options.config },
  })
}
const project = (index = 0) => setup.service.world.projects[index]!
const lying = <T>(lie: Lie, work: () => Promise<T>) => lyingTo(setup, lie, work)
const isExact = async (reports = FOUR_GRAINS) =>
  expectExact(setup.database, { world: setup.service.world, range: RANGE, reports }).then(
    () => true,
    () => false,
  )

const LIES: Record<string, () => Lie> = {
  'answers reports with success: false': () => (rows, asked) =>
    isReport(asked) ? { success: false, data: [], errors: [{ message: 'the warehouse sleeps' }] } : rows,
  'marks its answers as partial': () => (rows, asked) =>
    isReport(asked) ? { data: rows.slice(0, Math.ceil(rows.length * 0.8)), partial: true, warnings: ['slow'] } : rows,
  'cuts every answer at 12 kB': () => (rows) => {
    let bytes = 0
    return rows.filter((row) => {
      bytes += JSON.stringify(row).length
      return bytes <= 12_000
    })
  },
  'ignores the dimension topic_id': () => (rows, asked) => {
    if (!asked.dimensions.includes('topic_id')) return rows
    const totals = new Map<string, LiedRow>()
    for (const { topic: _, ...row } of rows) {
      const key = `${row.date} ${(row.brand as { id: string }).id}`
      const sum = totals.get(key)
      if (sum === undefined) totals.set(key, row)
      else
        for (const name of ['mention_count', 'visibility_count', 'visibility_total'])
          sum[name] = (sum[name] as number) + (row[name] as number)
    }
    return [...totals.values()]
  },
  'answers with three times as many prompts': () => (rows, asked) =>
    asked.dimensions.includes('prompt_id')
      ? rows.flatMap((row) => {
          const { id } = row.prompt as { id: string }
          return ['', '_b', '_c'].map((tail) => ({ ...row, prompt: { id: `${id}${tail}` } }))
        })
      : rows,
  'leaves a fifth of the rows out of every third answer': () => (rows, _, answers) =>
    answers % 3 === 0 ? rows.filter((_row, index) => index % 5 !== 0) : rows,
  'leaves rows without mentions out of long answers': () => (rows, asked) =>
    isFine(asked) && asked.from !== asked.to ? rows.filter(({ mention_count }) => mention_count !== 0) : rows,
}

const READS = [
  ...Object.keys(LIES).map((name) => [name, 'one process', () => setup.sync()] as const),
  [
    'leaves rows without mentions out of long answers',
    'a queue',
    () => withWorker(setup, (execute) => setup.sync({}, {}, execute)),
  ] as const,
]

test.each(READS)(
  'a service that %s, read by %s, is not believed, and the warehouse is exact once it recovers',
  async (name, _, sync) => {
    await start()
    const report = await lying(LIES[name]!(), sync)
    if (report.outcome === 'complete') expect(await isExact()).toBe(true)
    await sync()
    expect([(await sync()).outcome, await isExact()]).toEqual(['complete', true])
  },
  120_000,
)

test('a control report that is truncated again after a correction is not believed', async () => {
  await start()
  const day = '2026-02-20'
  let answers = 0
  const lie: Lie = (rows, asked) => {
    const isControl = isReport(asked) && asked.dimensions.every((name) => name === 'date')
    if (!isControl || asked.from > day || asked.to < day) return rows
    // Nothing is behind the last row.
    if (asked.limit === 1) return []
    // Only the second answer is whole: it corrects the totals that the finer reports are compared with.
    if (++answers === 2) return rows
    const cut = rows.findIndex(({ date }) => date === day)
    return rows.filter((_, index) => index !== cut)
  }
  const { outcome, streams } = await lying(lie, setup.sync)
  expect(outcome).toBe('partial')
  expect(streams.flatMap(({ unreconciled }) => unreconciled.map(({ date }) => date))).toContain(day)
  await setup.sync()
  await setup.sync()
  expect(await isExact()).toBe(true)
})

test('control rows that are as wrong as before are detected by streams that add up to other totals', async () => {
  await start({ config: { lookback_days: 3 } })
  await setup.sync()
  const day = '2026-02-20'
  const { rows } = setup.database
  await rows("update visibility_ops.coverage set state = 'unreconciled' where stream = 'brand_daily' and date = $1", [
    day,
  ])
  const [{ brand_id: brand }] = (await rows(
    'delete from visibility.brand_daily where date = $1 and brand_id = (select min(brand_id) from visibility.brand_daily) returning brand_id',
    [day],
  )) as [{ brand_id: string }]
  const lie: Lie = (all, asked) => {
    const isLacking = (row: LiedRow) => row.date === day && (row.brand as { id: string }).id === brand
    if (!isReport(asked) || isFine(asked)) return all
    return asked.offset > 0 ? [] : all.filter((row) => !isLacking(row))
  }
  expect((await lying(lie, () => setup.sync())).outcome).toBe('partial')
  await setup.sync()
  expect([(await setup.sync()).outcome, await isExact()]).toEqual(['complete', true])
})

test('a day that the service changes while a run reads it is read again by the same run', async () => {
  // One request after the other: the first finer report is answered with the old rows, the others with the new ones.
  await start({ config: { source: { concurrency: 1 } } })
  await setup.sync()
  let reports = 0
  const change: Lie = (rows, asked) => {
    if (isFine(asked) && ++reports === 1) setup.service.world.rewriteDays(project(), ['2026-03-02'])
    return rows
  }
  expect((await lying(change, setup.sync)).outcome).toBe('complete')
  expect(await isExact()).toBe(true)
})

test('rows of a service that answered with nothing at first are read by the next run', async () => {
  await start()
  await lying(() => [], setup.sync)
  await setup.sync()
  expect(await isExact()).toBe(true)
})

test('truncated answers in the run after a prompt was deleted delete no other row', async () => {
  await start({ config: { lookback_days: 90 } })
  expect((await setup.sync()).outcome).toBe('complete')
  const [gone] = project().prompts
  setup.service.world.deletePrompt(project(), gone!.id)
  const truth = async () => {
    const rows = await setup.database.rows<{ rows: number }>(
      'select count(*)::int as rows from visibility.by_prompt where prompt_id <> $1',
      [gone!.id],
    )
    return rows[0]!.rows
  }
  const before = await truth()
  const report = await lying(
    (rows, asked, answers) =>
      isReport(asked) && answers % 4 === 0 ? rows.slice(0, Math.floor(rows.length * 0.8)) : rows,
    () => setup.sync(),
  )
  expect(await truth()).toBe(before)
  if (report.outcome === 'complete') expect(await isExact()).toBe(true)
  await setup.sync()
  await setup.sync({ command: 'backfill', range: RANGE })
  expect(await isExact()).toBe(true)
})

describe('a service that truncates results before it pages them', () => {
  const cut =
    (isCut: (asked: Asked) => boolean, keep: (row: LiedRow, asked: Asked, index: number) => boolean): Lie =>
    (rows, asked) => {
      if (!isCut(asked)) return rows
      return asked.offset > 0 ? [] : rows.filter((row, index) => keep(row, asked, index))
    }
  const hasDays = (asked: Asked) => isReport(asked) || asked.path === 'chats'

  test('and leaves out the middle of long ranges is read in shorter windows', async () => {
    await start()
    const isMiddle = ({ date }: LiedRow, { from, to }: Asked) => date! > addDays(from, 4) && date! < addDays(to, -4)
    const lie = cut(hasDays, (row, asked) => countDays(asked) <= 10 || !isMiddle(row, asked))
    const report = await lying(lie, () => setup.sync())
    expect([report.outcome, await isExact()]).toEqual(['complete', true])
  })

  test('and has no totals at the moment deletes no row', async () => {
    await start()
    await setup.sync()
    const withoutFifth = cut(isFine, (_row, _asked, index) => index % 5 !== 0)
    const lie: Lie = (rows, asked, answers) =>
      isReport(asked) && !isFine(asked) ? { error: 'later' } : withoutFifth(rows, asked, answers)
    const report = await lying(lie, () => setup.sync({ command: 'backfill', range: RANGE }))
    expect([report.outcome, await isExact()]).toEqual(['partial', true])
    expect(await settledWithDifference(setup)).toEqual([])
  })
})

test('a run that is killed after any of its commits leaves no day that was not compared', async () => {
  await start({ config: { source: { concurrency: 1 } } })
  const lie = LIES['cuts every answer at 12 kB']!()
  for (const commits of [1, 3, 5]) {
    const stop = new AbortController()
    let left = commits
    const advanced = () => {
      if (--left === 0) stop.abort()
    }
    await lying(lie, () => setup.sync({ signal: stop.signal }, { advanced }))
    const wrong = await setup.database.rows(
      "select 1 from visibility_ops.coverage where state = 'read' and reconciled_at is null and date < '2026-03-30'",
    )
    expect(wrong).toEqual([])
  }
  await setup.sync()
  expect(await isExact()).toBe(true)
})
