import { randomUUID } from 'node:crypto'
import { describe, expect, test } from '@jest/globals'
import { runAudit } from '../src/audit/run-audit.ts'
import { addDays, countDays, type Day } from '../src/core/day.ts'
import type { Dimension } from '../src/core/vocabulary.ts'
import { openQueue } from '../src/queue/boss.ts'
import { openQueueExecutor } from '../src/queue/queue-executor.ts'
import { QueueWorker } from '../src/queue/worker.ts'
import { brandReport } from '../src/reference/aggregate.ts'
import type { RunReport } from '../src/sync/run/report.ts'
import { runSync } from '../src/sync/run/run-sync.ts'
import { runCli } from './support/cli.ts'
import { startRewriter } from './support/proxy.ts'
import { FOUR_GRAINS, type Setup, type SetupOptions, setUp } from './support/setup.ts'
import { expectExact, expectReport } from './support/truth.ts'

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
const isExact = async (reports = FOUR_GRAINS) =>
  expectExact(setup.database, { world: setup.service.world, range: RANGE, reports }).then(
    () => true,
    () => false,
  )

/** A request for rows, whatever its method. */
interface Asked {
  path: string
  project: string | undefined
  from: Day
  to: Day
  offset: number
  limit: number
  dimensions: string[]
}
type Row = Record<string, unknown> & { date?: Day }
/** Changes the rows of an answer, or the whole of it. */
type Lie = (rows: Row[], asked: Asked, answers: number) => Row[] | Record<string, unknown>

/** Runs work while the service answers through a proxy that lies. */
async function lying<T>(lie: Lie, work: () => Promise<T>): Promise<T> {
  let answers = 0
  const proxy = await startRewriter(setup.service.url, (text, { url }, body) => {
    const { pathname, searchParams } = new URL(url!, 'http://localhost')
    const sent = { ...Object.fromEntries(searchParams), ...(body === '' ? {} : JSON.parse(body)) }
    const answer = JSON.parse(text) as { data?: Row[] }
    if (answer.data === undefined || sent.start_date === undefined) return text
    const asked: Asked = {
      path: pathname.replace(/^.*\/v1\//, ''),
      project: sent.project_id,
      from: sent.start_date,
      to: sent.end_date,
      offset: Number(sent.offset ?? 0),
      limit: Number(sent.limit),
      dimensions: sent.dimensions ?? [],
    }
    const changed = lie(answer.data, asked, ++answers)
    return JSON.stringify(Array.isArray(changed) ? { ...answer, data: changed } : changed)
  })
  return setup.through(proxy.url, work, { maxAttempts: 2, patienceMs: 1000 })
}

const isReport = ({ path }: Asked) => path === 'reports/brands'
const isFine = (asked: Asked) => isReport(asked) && asked.dimensions.length > 1

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
    const totals = new Map<string, Row>()
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

/** Streams with days that are settled though they do not add up, because the service leaves rows out. */
async function settledWithDifference(): Promise<string[]> {
  const rows = await setup.database.rows<{ stream: string }>(
    "select distinct stream from visibility_ops.coverage where state = 'read' and reconciled_at is not null and difference is not null",
  )
  return rows.map(({ stream }) => stream).sort()
}

/** Has the windows of a run done by a worker, in this process. */
async function syncWithWorker(): Promise<RunReport> {
  const { services, projects } = setup
  const queue = await openQueue(services.warehouse, 'windows_test', services.log)
  const self = { id: randomUUID(), version: '', concurrency: 2, source: '', queue: queue.name }
  const worker = new QueueWorker(services, queue, self, projects)
  await worker.start()
  const { execute, close } = openQueueExecutor(services.warehouse, queue.name, services.log)
  const request = { command: 'sync', projects, streams: services.streams.named() }
  try {
    return await runSync(services, request, {}, execute)
  } finally {
    await close()
    await worker.stop()
    await queue.close()
  }
}

const READS = [
  ...Object.keys(LIES).map((name) => [name, 'one process', () => setup.sync()] as const),
  ['leaves rows without mentions out of long answers', 'a queue', syncWithWorker] as const,
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
    if (!isControl || asked.from > day || asked.to < day || asked.limit === 1) return rows
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
    const isLacking = (row: Row) => row.date === day && (row.brand as { id: string }).id === brand
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
    (isCut: (asked: Asked) => boolean, keep: (row: Row, asked: Asked, index: number) => boolean): Lie =>
    (rows, asked) => {
      if (!isCut(asked)) return rows
      return asked.offset > 0 ? [] : rows.filter((row, index) => keep(row, asked, index))
    }
  const hasDays = (asked: Asked) => isReport(asked) || asked.path === 'chats'

  test('and leaves out the middle of long ranges is read in shorter windows', async () => {
    await start()
    const isMiddle = ({ date }: Row, { from, to }: Asked) => date! > addDays(from, 4) && date! < addDays(to, -4)
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
    expect(await settledWithDifference()).toEqual([])
  })
})

describe('reports that do not add up', () => {
  /** Leaves rows out as a service does that has no such groups: there is no row after those that are left. */
  const without =
    (dimension: string, isLeftOut: (row: Row) => boolean): Lie =>
    (rows, asked) => {
      if (!asked.dimensions.includes(dimension)) return rows
      return asked.offset > 0 ? [] : rows.filter((row) => !isLeftOut(row))
    }
  const withoutNullTopics = without('topic_id', ({ topic }) => topic == null)

  test('a report without the null group is settled, and read again once it adds up', async () => {
    await start({ world: { projects: 1, prompts: 8, models: 2, brands: 3 }, config: { lookback_days: 3 } })
    project().prompts.forEach((prompt, index) => {
      if (index % 4 === 0) prompt.topicId = null
    })
    const first = await lying(withoutNullTopics, () => setup.sync())
    expect([first.outcome, await settledWithDifference()]).toEqual(['complete', ['by_topic']])
    const again = await lying(withoutNullTopics, () => setup.sync())
    expect(again.outcome).toBe('complete')
    expect(again.streams.find(({ stream }) => stream === 'by_topic')).toMatchObject({ inserted: 0, deleted: 0 })
    expect((await setup.sync({ command: 'backfill', range: RANGE })).outcome).toBe('complete')
    expect([await settledWithDifference(), await isExact()]).toEqual([[], true])
  })

  test('rows without mentions that a service never sent may be missing, and are loaded once it sends them', async () => {
    await start()
    const withoutAbsence = without('prompt_id', ({ visibility_count }) => visibility_count === 0)
    const first = await lying(withoutAbsence, () => setup.sync())
    expect([first.outcome, await settledWithDifference()]).toEqual(['complete', ['by_prompt']])
    expect((await setup.sync({ command: 'backfill', range: RANGE })).outcome).toBe('complete')
    expect([await settledWithDifference(), await isExact()]).toEqual([[], true])
  })

  test('a service that begins to leave out rows without mentions is not believed, unless the report is ignored', async () => {
    await start({ config: { lookback_days: 5 } })
    const upTo = async (day: Day, run: () => Promise<RunReport>) => {
      setup.services.config.end_date = day
      return (await run()).outcome
    }
    const withoutAbsence = without('prompt_id', ({ visibility_count }) => visibility_count === 0)
    const lie = () => lying(withoutAbsence, () => setup.sync())
    expect(await upTo('2026-02-24', () => setup.sync())).toBe('complete')
    const stored = () =>
      setup.database.rows("select * from visibility.by_prompt where date <= '2026-02-24' order by 1, 2, 3, 4")
    const before = await stored()
    expect([await upTo('2026-02-28', lie), await stored()]).toEqual(['partial', before])
  })

  test.each<[string, () => Lie]>([
    [
      'the chats of a model',
      () => {
        const [model] = setup.service.world.models
        const modelOf = (row: Row) => (row.model as { id: string }).id
        return (rows, { path }) => (path === 'chats' ? rows.filter((row) => modelOf(row) !== model) : rows)
      },
    ],
    ['all rows of a day', () => (rows) => rows.filter(({ date }) => date !== '2026-02-23')],
  ])('after days that added up, a service that leaves out %s deletes nothing', async (_, lieOf) => {
    await start()
    await setup.sync()
    const lie = lieOf()
    const report = await lying(lie, () => setup.sync({ command: 'backfill', range: RANGE }))
    expect([report.outcome, await settledWithDifference(), await isExact()]).toEqual(['partial', [], true])
    await setup.sync()
    expect([(await setup.sync()).outcome, await isExact()]).toEqual(['complete', true])
  })

  test('a topic that is left out is no null group if prompts without a topic are in the report', async () => {
    await start({ world: { projects: 1, prompts: 8, models: 2, brands: 3 } })
    const { prompts, topics } = project()
    prompts.forEach((prompt, index) => {
      prompt.topicId = index === 0 ? null : topics[index % 2]!.id
    })
    const withoutTopic = without('topic_id', ({ topic }) => (topic as { id: string } | null)?.id === topics[0]!.id)
    const report = await lying(withoutTopic, () => setup.sync())
    expect([report.outcome, await settledWithDifference()]).toEqual(['partial', []])
    await setup.sync()
    expect([(await setup.sync()).outcome, await isExact()]).toEqual(['complete', true])
  })

  test('chats of prompts that the project does not have are not accepted', async () => {
    await start()
    const foreign: Lie = (rows, { path, offset }) => {
      if (path !== 'chats') return rows
      const promptOf = (row: Row) => (row.prompt as { id: string }).id
      const some = offset > 0 ? [] : rows.filter((row) => promptOf(row) !== project().prompts[0]!.id)
      return some.map((row) => ({ ...row, id: `${row.id}_other`, prompt: { id: `${promptOf(row)}_other` } }))
    }
    const report = await lying(foreign, () => setup.sync())
    expect([report.outcome, await settledWithDifference()]).toEqual(['partial', []])
    expect([(await setup.sync()).outcome, await isExact()]).toEqual(['complete', true])
  })

  test('answers of which every fifth row is missing are never taken for a report that does not add up', async () => {
    await start()
    const lie: Lie = (rows, asked) => {
      if (!isFine(asked) || !asked.dimensions.includes('prompt_id')) return rows
      return asked.offset > 0 ? [] : rows.filter((_, index) => index % 5 !== 4)
    }
    const report = await lying(lie, () => setup.sync())
    expect(report.outcome).toBe('partial')
    expect(await settledWithDifference()).toEqual([])
    const unreconciled = report.streams.flatMap((stream) => stream.unreconciled)
    expect(unreconciled.length).toBeGreaterThan(0)
    await setup.sync()
    await setup.sync()
    expect(await isExact()).toBe(true)
  })
})

test('a day that does not add up loses no row, also if deletions are accepted', async () => {
  const today = '2026-03-31'
  await start({ config: { start_date: '2026-03-20', end_date: today } })
  await setup.sync()
  const lie: Lie = (rows, { dimensions, offset }) => {
    if (!dimensions.includes('prompt_id')) return rows
    return offset > 0 ? [] : rows.filter((_, index) => index % 3 === 0)
  }
  const stored = async () =>
    (await setup.database.rows<{ n: number }>('select count(*)::int as n from visibility.by_prompt'))[0]!.n
  const before = await stored()
  for (const [day, outcome] of [
    // The service may still write today.
    [today, 'complete'],
    ['2026-03-25', 'partial'],
  ] as const) {
    const range = { from: day, to: day }
    const report = await lying(lie, () => setup.sync({ command: 'backfill', range, acceptDeletes: true }))
    expect([report.outcome, await stored()]).toEqual([outcome, before])
  }
})

test('one row without a day does not allow a wrong answer to replace right rows', async () => {
  await start()
  await setup.sync()
  const lie: Lie = (rows, asked) => {
    if (!asked.dimensions.includes('prompt_id') || asked.offset > 0) return rows
    const wrong = rows.map((row) => ({ ...row, mention_count: (row.mention_count as number) + 1 }))
    return [...wrong, { ...rows[0]!, date: 'yesterday' as Day }]
  }
  const report = await lying(lie, () => setup.sync({ command: 'backfill', range: RANGE }))
  expect([report.outcome, await isExact()]).toEqual(['partial', true])
  expect(report.streams.flatMap(({ unreconciled }) => unreconciled).length).toBeGreaterThan(5)
})

describe('rows by tag overlap, so they do not add up, but', () => {
  const reports = [...FOUR_GRAINS, { name: 'by_tag', dimensions: ['date', 'tag_id'] }]
  const isOfTags = ({ dimensions }: Asked) => dimensions.includes('tag_id')

  test('brands without a total, and more mentions or answers than the total, are not believed, and later replaced', async () => {
    await start({ config: { reports } })
    const larger = [
      (row: Row) => ({ ...row, brand: { id: `${(row.brand as { id: string }).id}_other`, name: 'Other' } }),
      (row: Row) => ({ ...row, mention_count: 5000 }),
      (row: Row) => ({ ...row, visibility_total: 5000 }),
    ]
    const lie: Lie = (rows, asked) =>
      isOfTags(asked) ? rows.map((row) => larger[Number(row.date!.slice(-2)) % larger.length]!(row)) : rows
    const report = await lying(lie, () => setup.sync())
    expect(report.outcome).toBe('partial')
    const { unreconciled } = report.streams.find(({ stream }) => stream === 'by_tag')!
    expect(new Set(unreconciled.map(({ date }) => date)).size).toBe(countDays(RANGE))
    expect((await setup.sync()).outcome).toBe('complete')
    const truth = { world: setup.service.world, range: RANGE, reports }
    await expectReport(setup.database, truth, project(), reports.at(-1)!)
  })

  test('a day that comes empty is held, also after a day that was too high', async () => {
    await start({ config: { reports } })
    await setup.sync()
    const countRows = () => setup.database.rows('select date, count(*) from visibility.by_tag group by 1 order by 1')
    const before = await countRows()
    const again = { command: 'backfill' as const, range: RANGE }
    const ofDay: (change: (row: Row) => Row[]) => Lie = (change) => (rows, asked) =>
      isOfTags(asked) ? rows.flatMap((row) => (row.date === '2026-02-24' ? change(row) : [row])) : rows
    for (const change of [(row: Row) => [{ ...row, mention_count: 5000 }], () => []])
      expect((await lying(ofDay(change), () => setup.sync(again))).outcome).toBe('partial')
    expect(await countRows()).toEqual(before)
    expect((await setup.sync()).outcome).toBe('complete')
  })
})

test('days on which no prompt had a topic are read, once their chats show it', async () => {
  await start({ config: { start_date: '2026-02-26' } })
  const { world } = setup.service
  const { prompts } = project()
  prompts[0]!.topicId = null
  const chatsOf = world.chatsOf.bind(world)
  world.chatsOf = (of, day) =>
    chatsOf(of, day).filter(({ prompt }) => day > '2026-02-27' || prompt.id === prompts[0]!.id)
  const early = { command: 'backfill' as const, range: { from: '2026-02-26', to: '2026-02-27' } }
  await setup.sync(early)
  expect((await setup.sync(early)).outcome).toBe('complete')
  expect((await setup.sync()).outcome).toBe('complete')
})

test('a report with filters is compared with totals under the same filters', async () => {
  await start()
  const filters = [{ field: 'prompt_id', operator: 'in', values: [project().prompts[0]!.id] }]
  const reports = [...FOUR_GRAINS, { name: 'of_one_prompt', dimensions: ['date', 'model_id'], filters }]
  await start({ config: { reports } })
  const dropDay: Lie = (rows, { dimensions, from, to }) =>
    dimensions.length === 2 && from !== to ? rows.filter(({ date }) => date !== '2026-02-25') : rows
  expect((await lying(dropDay, () => setup.sync())).outcome).toBe('complete')
  const keys = await setup.database.rows('select distinct filters from visibility_ops.control_totals order by 1')
  expect(keys).toEqual([{ filters: '' }, { filters: JSON.stringify(filters) }])
  const [{ days }] = (await setup.database.rows<{ days: number }>(
    'select count(distinct date)::int as days from visibility.of_one_prompt',
  )) as [{ days: number }]
  expect(days).toBe(countDays(RANGE))
})

test('rows that the filters of a report do not select are not loaded', async () => {
  await start()
  const [id, other] = setup.service.world.models as [string, string]
  const filters = [{ field: 'model_id', operator: 'in', values: [id] }]
  await start({
    config: { reports: [...FOUR_GRAINS, { name: 'of_one_model', dimensions: ['date', 'model_id'], filters }] },
  })
  const unfiltered: Lie = (rows, { dimensions }) =>
    dimensions.join() === 'date,model_id' ? rows.flatMap((row) => [row, { ...row, model: { id: other } }]) : rows
  const streams = setup.services.streams.named(['of_one_model'])
  expect((await lying(unfiltered, () => setup.sync({ streams }))).outcome).toBe('failed')
  expect(await setup.database.rows('select * from visibility.of_one_model')).toEqual([])
})

test('a report by date that is cut is found though only a report with filters is compared with totals', async () => {
  const filters = [{ field: 'country_code', operator: 'in', values: ['DE'] }]
  const reports = [FOUR_GRAINS[0]!, { name: 'in_one_country', dimensions: ['date', 'model_id'], filters }]
  await start({ config: { reports, streams: ['prompts'] } })
  const cut: Lie = (rows, { dimensions }) => (dimensions.length === 1 ? rows.slice(0, 20) : rows)
  await lying(cut, () => setup.sync())
  expect(await setup.database.rows('select * from visibility.brand_daily')).toHaveLength(36)
})

test('rows of another project in all answers are unreconciled', async () => {
  await start({ world: { projects: 2, prompts: 6, models: 2, brands: 3 } })
  const rowsOfFirst: Lie = (rows, { path, dimensions, from, to, offset }) => {
    const query = { range: { from, to }, dimensions: dimensions as Dimension[], filters: [] }
    if (path !== 'reports/brands') return rows
    return offset > 0 ? [] : (brandReport(setup.service.world, project(), query) as Row[])
  }
  const report = await lying(rowsOfFirst, () => setup.sync())
  expect(JSON.stringify(report.streams)).toContain('the service gave another project the same rows')
})

test('two projects that are exchanged on a first load are unreconciled, and leave no brand once the service recovers', async () => {
  await start({ world: { projects: 2, prompts: 6, models: 2, brands: 3 } })
  const [first, second] = [project().id, project(1).id]
  const exchanged = (text: string) =>
    text.replaceAll(/or_[0-9a-f-]+/g, (id) => (id === first ? second : id === second ? first : id))
  const proxy = await startRewriter(setup.service.url, async (text, { url, method, headers }, body) => {
    if (!/\/(reports|chats)/.test(url!)) return text
    const key = Object.fromEntries(Object.entries(headers).filter(([name]) => /key|auth/.test(name)))
    const answer = await fetch(exchanged(new URL(url!, setup.service.url).href), {
      method: method!,
      headers: { ...(key as Record<string, string>), 'content-type': 'application/json' },
      ...(body === '' ? {} : { body: exchanged(body) }),
    })
    return answer.text()
  })
  const report = await setup.through(proxy.url, () => setup.sync())
  expect(report.outcome).toBe('partial')
  const differing = report.streams.filter(({ unreconciled }) => unreconciled.length > 0)
  expect(new Set(differing.map((stream) => stream.project_id))).toEqual(new Set([first, second]))
  await setup.sync()
  expect([(await setup.sync()).outcome, await isExact()]).toEqual(['complete', true])
  const namesOf = (table: string) =>
    setup.database.rows<{ name: string }>(
      `select distinct project_id || ' ' || brand_id as name from visibility.${table} order by 1`,
    )
  const ofWorld = setup.service.world.projects.flatMap(({ id, brands }) => brands.map((brand) => `${id} ${brand.id}`))
  for (const table of ['brands', 'brand_history'])
    expect((await namesOf(table)).map(({ name }) => name)).toEqual(ofWorld.sort())
})

test('a rejected row that was dismissed explains its own brand alone', async () => {
  await start()
  await setup.sync()
  const brands = await setup.database.rows<{ id: string }>(
    "select brand_id as id from visibility.by_prompt where date = '2026-02-25' group by 1 order by min(mention_count), 1",
  )
  const [P, Q] = brands.map(({ id }) => id) as [string, string]
  const stored = () => setup.database.rows('select * from visibility.by_prompt order by 1, 2, 3, 4, 5, 6')
  const before = await stored()
  const lie: Lie = (rows, { dimensions, offset }): Row[] => {
    if (!dimensions.includes('prompt_id')) return rows
    if (offset > 0) return []
    const isOf = (row: Row, brand: string, isNamed: boolean) =>
      row.date === '2026-02-25' && (row.brand as { id: string }).id === brand && (row.mention_count !== 0) === isNamed
    const malformed = rows.find((row) => isOf(row, P, false))
    return rows
      .filter((row) => !isOf(row, Q, true))
      .map((row) => (row === malformed ? { ...row, sentiment: 'high' } : row))
  }
  const read = () => lying(lie, () => setup.sync({ command: 'backfill', range: RANGE }))
  expect((await read()).outcome).toBe('partial')
  const options = { env: setup.env, config: setup.fileConfig }
  const dismissed = await runCli(['quarantine', 'dismiss', '--stream', 'by_prompt', '--because', 'known'], options)
  expect(dismissed.stdout).toContain('1 row')
  expect([(await read()).outcome, await stored()]).toEqual(['partial', before])
})

test('chats that come with two days make the run partial, and the next honest run is exact', async () => {
  await start({ config: { lookback_days: 3 } })
  await setup.sync()
  const [lied, robbed] = ['2026-02-20', '2026-02-23'] as const
  const stolen = setup.service.world.chatsOf(project(), robbed).slice(0, 5)
  const lie: Lie = (rows, { path, from, to }) =>
    path === 'chats' && from === lied && to === lied
      ? rows.map((row, at) => ({ ...row, id: stolen[at]?.id ?? row.id }))
      : rows
  const again = { command: 'backfill' as const, range: { from: lied, to: lied } }
  const report = await lying(lie, () => setup.sync(again))
  expect(report.outcome).toBe('partial')
  const changed = { date: robbed, difference: 'the service changed the day again after it was read' }
  expect(report.streams.flatMap(({ unreconciled }) => unreconciled)).toEqual([changed])
  expect((await setup.sync()).outcome).toBe('complete')
  expect(await isExact()).toBe(true)
})

test('reports by topic are replaced after all topics are recreated', async () => {
  await start()
  await setup.sync()
  const { prompts, topics } = project()
  topics.forEach((topic) => {
    topic.id = `${topic.id}_new`
  })
  for (const prompt of prompts) prompt.topicId = prompt.topicId === null ? null : `${prompt.topicId}_new`
  expect([(await setup.sync()).outcome, await isExact()]).toEqual(['complete', true])
})

test('answers that are all under one prompt are found by an audit, though their sums are right', async () => {
  await start()
  await setup.sync()
  const { id } = project().prompts[0]!
  const lie: Lie = (rows, asked) => {
    if (!asked.dimensions.includes('prompt_id')) return rows
    const sums = new Map<string, Row>()
    for (const row of rows) {
      const { date, brand, model, country_code } = row
      const key = JSON.stringify([date, brand, model, country_code])
      const sum = sums.get(key)
      if (sum === undefined) sums.set(key, { ...row, prompt: { id } })
      else
        for (const name of ['mention_count', 'visibility_count', 'visibility_total'])
          sum[name] = (sum[name] as number) + (row[name] as number)
    }
    return [...sums.values()]
  }
  await lying(lie, () => setup.sync({ command: 'backfill', range: RANGE }))
  const { services, projects } = setup
  const audit = { projects, signal: new AbortController().signal, repair: true }
  expect((await runAudit(services, audit)).remaining).toBe(0)
  expect(await isExact()).toBe(true)
})

describe('history', () => {
  test('a day that the service changed long ago is read again by a sync once a day', async () => {
    await start({ config: { lookback_days: 3 } })
    await setup.sync()
    setup.service.world.rewriteDays(project(), ['2026-02-20'])
    await setup.sync()
    expect(await isExact()).toBe(false)
    const { clock } = setup.services
    setup.services.clock = () => new Date(clock().getTime() + 25 * 3_600_000)
    const before = setup.service.requests.length
    const { outcome, notes, streams } = await setup.sync()
    expect([outcome, notes, await isExact()]).toEqual(['complete', [], true])
    const requests = streams.reduce((sum, stream) => sum + stream.requests, 0)
    expect(requests).toBe(setup.service.requests.length - before)
  })

  test('changes that leave the sums alone are read again, also if an audit has stored the new totals', async () => {
    const byModel = FOUR_GRAINS.filter(({ name }) => name === 'by_model')
    await start({ config: { lookback_days: 3, reports: byModel } })
    await setup.sync()
    const day = '2026-02-20'
    const changed: Lie = (rows) => rows.map((row) => (row.date === day ? { ...row, sentiment: 11 } : row))
    const { services, projects } = setup
    const audit = { projects, range: RANGE, signal: new AbortController().signal, repair: false }
    await lying(changed, () => runAudit(services, audit))
    expect((await lying(changed, () => setup.sync())).outcome).toBe('complete')
    const sentiments = await setup.database.rows('select distinct sentiment from visibility.by_model where date = $1', [
      day,
    ])
    expect(sentiments).toEqual([{ sentiment: 11 }])
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
