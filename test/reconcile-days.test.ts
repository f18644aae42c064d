import { describe, expect, test } from '@jest/globals'
import { runAudit } from '../src/audit/run-audit.ts'
import { countDays, type Day } from '../src/core/day.ts'
import type { Dimension } from '../src/core/vocabulary.ts'
import { brandReport } from '../src/reference/aggregate.ts'
import type { DayStream } from '../src/streams/stream.ts'
import { readControl } from '../src/sync/reconcile/read-control.ts'
import type { RunReport } from '../src/sync/run/report.ts'
import { makeRun, newRunMemory } from '../src/sync/run/run.ts'
import { syncWindow } from '../src/sync/run/sync-window.ts'
import { runCli } from './support/cli.ts'
import {
  type Asked,
  isFine,
  type Lie,
  type LiedRow,
  lyingTo,
  redirecting,
  settledWithDifference,
} from './support/lies.ts'
import { openClient, startRewriter } from './support/proxy.ts'
import { FOUR_GRAINS, type Setup, type SetupOptions, setUp } from './support/setup.ts'
import { expectExact, expectReport } from './support/truth.ts'

/* Days that add up or differ, by their rows: groups and rows that a service leaves out, rejects, tags, filters and other projects. */

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
const later = (hours: number) => {
  const { clock } = setup.services
  setup.services.clock = () => new Date(clock().getTime() + hours * 3_600_000)
}
const isExact = async (reports = FOUR_GRAINS, range = RANGE) =>
  expectExact(setup.database, { world: setup.service.world, range, reports }).then(
    () => true,
    () => false,
  )

describe('reports that do not add up', () => {
  /** Leaves rows out as a service does that has no such groups: there is no row after those that are left. */
  const without =
    (dimension: string, isLeftOut: (row: LiedRow) => boolean): Lie =>
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
    expect([first.outcome, await settledWithDifference(setup)]).toEqual(['complete', ['by_topic']])
    const again = await lying(withoutNullTopics, () => setup.sync())
    expect(again.outcome).toBe('complete')
    expect(again.streams.find(({ stream }) => stream === 'by_topic')).toMatchObject({ inserted: 0, deleted: 0 })
    expect((await setup.sync({ command: 'backfill', range: RANGE })).outcome).toBe('complete')
    expect([await settledWithDifference(setup), await isExact()]).toEqual([[], true])
  })

  test('rows without mentions that a service never sent may be missing, and are loaded once it sends them', async () => {
    await start()
    const withoutAbsence = without('prompt_id', ({ visibility_count }) => visibility_count === 0)
    const first = await lying(withoutAbsence, () => setup.sync())
    expect([first.outcome, await settledWithDifference(setup)]).toEqual(['complete', ['by_prompt']])
    expect((await setup.sync({ command: 'backfill', range: RANGE })).outcome).toBe('complete')
    expect([await settledWithDifference(setup), await isExact()]).toEqual([[], true])
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
        const modelOf = (row: LiedRow) => (row.model as { id: string }).id
        return (rows, { path }) => (path === 'chats' ? rows.filter((row) => modelOf(row) !== model) : rows)
      },
    ],
    ['all rows of a day', () => (rows) => rows.filter(({ date }) => date !== '2026-02-23')],
  ])('after days that added up, a service that leaves out %s deletes nothing', async (_, lieOf) => {
    await start()
    await setup.sync()
    const lie = lieOf()
    const report = await lying(lie, () => setup.sync({ command: 'backfill', range: RANGE }))
    expect([report.outcome, await settledWithDifference(setup), await isExact()]).toEqual(['partial', [], true])
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
    expect([report.outcome, await settledWithDifference(setup)]).toEqual(['partial', []])
    await setup.sync()
    expect([(await setup.sync()).outcome, await isExact()]).toEqual(['complete', true])
  })

  test('chats of prompts that the project does not have are not accepted', async () => {
    await start()
    const foreign: Lie = (rows, { path, offset }) => {
      if (path !== 'chats') return rows
      const promptOf = (row: LiedRow) => (row.prompt as { id: string }).id
      const some = offset > 0 ? [] : rows.filter((row) => promptOf(row) !== project().prompts[0]!.id)
      return some.map((row) => ({ ...row, id: `${row.id}_other`, prompt: { id: `${promptOf(row)}_other` } }))
    }
    const report = await lying(foreign, () => setup.sync())
    expect([report.outcome, await settledWithDifference(setup)]).toEqual(['partial', []])
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
    expect(await settledWithDifference(setup)).toEqual([])
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
    const open = /days that do not add up yet, and that the next sync reads again: by_prompt 2026-03-31; the/
    expect(report.notes).toEqual(day === today ? [expect.stringMatching(open)] : [])
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
      (row: LiedRow) => ({ ...row, brand: { id: `${(row.brand as { id: string }).id}_other`, name: 'Other' } }),
      (row: LiedRow) => ({ ...row, mention_count: 5000 }),
      (row: LiedRow) => ({ ...row, visibility_total: 5000 }),
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
    const ofDay: (change: (row: LiedRow) => LiedRow[]) => Lie = (change) => (rows, asked) =>
      isOfTags(asked) ? rows.flatMap((row) => (row.date === '2026-02-24' ? change(row) : [row])) : rows
    for (const change of [(row: LiedRow) => [{ ...row, mention_count: 5000 }], () => []])
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
    return offset > 0 ? [] : (brandReport(setup.service.world, project(), query) as LiedRow[])
  }
  const report = await lying(rowsOfFirst, () => setup.sync())
  expect(JSON.stringify(report.streams)).toContain('the service gave another project the same rows')
})

test('two projects that are exchanged on a first load are unreconciled, and leave no brand once the service recovers', async () => {
  await start({ world: { projects: 2, prompts: 6, models: 2, brands: 3 } })
  const [first, second] = [project().id, project(1).id]
  const report = await redirecting(setup, { [first]: second, [second]: first }, () => setup.sync())
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
  const lie: Lie = (rows, { dimensions, offset }): LiedRow[] => {
    if (!dimensions.includes('prompt_id')) return rows
    if (offset > 0) return []
    const isOf = (row: LiedRow, brand: string, isNamed: boolean) =>
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
    const sums = new Map<string, LiedRow>()
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

  test.each<[string, () => Promise<unknown>]>([
    [
      'a sync once a day',
      () => {
        const { clock } = setup.services
        setup.services.clock = () => new Date(clock().getTime() + 25 * 3_600_000)
        return setup.sync()
      },
    ],
    [
      'an audit',
      () => runAudit(setup.services, { projects: setup.projects, signal: new AbortController().signal, repair: true }),
    ],
  ])('rows without mentions that a service left out for a while are read by %s', async (_, run) => {
    await start({ config: { lookback_days: 3 } })
    const lie: Lie = (rows, asked) => {
      if (!isFine(asked)) return rows
      return asked.offset > 0 ? [] : rows.filter(({ visibility_count }) => visibility_count !== 0)
    }
    await lying(lie, () => setup.sync())
    expect(await settledWithDifference(setup)).not.toEqual([])
    // These days show that the service sends such rows.
    await setup.sync({ command: 'backfill', range: { from: '2026-02-24', to: '2026-03-02' } })
    expect(await isExact()).toBe(false)
    await run()
    expect([await settledWithDifference(setup), await isExact()]).toEqual([[], true])
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

describe('a lie that ended', () => {
  test('of a project that was redirected to another one heals alone', async () => {
    await start({ world: { projects: 2, prompts: 6, models: 2, brands: 3 } })
    const only = { projects: setup.projects.slice(0, 1) }
    const to = { [project().id]: project(1).id }
    expect((await redirecting(setup, to, () => setup.sync(only))).outcome).toBe('partial')
    await setup.sync(only)
    expect((await setup.sync(only)).outcome).toBe('complete')
    const truth = { world: setup.service.world, range: RANGE, reports: FOUR_GRAINS, projects: [project()] }
    await expectExact(setup.database, truth)
  })

  test('after an honest load changes nothing, and the next honest run is complete', async () => {
    await start({ world: { projects: 2, prompts: 6, models: 2, brands: 3 } })
    await setup.sync()
    const to = { [project().id]: project(1).id }
    const range = { command: 'backfill' as const, range: RANGE, projects: setup.projects.slice(0, 1) }
    expect((await redirecting(setup, to, () => setup.sync(range))).outcome).toBe('partial')
    expect(await isExact()).toBe(true)
    await setup.sync()
    expect([(await setup.sync()).outcome, await isExact()]).toEqual(['complete', true])
  })

  test('of brands whose ids change their case with each request heals alone', async () => {
    await start()
    const lie: Lie = (rows, _, answers) =>
      rows.map((row) => {
        const brand = row.brand as { id: string; name: string } | undefined
        if (brand === undefined) return row
        return { ...row, brand: { ...brand, id: answers % 2 === 0 ? brand.id.toUpperCase() : brand.id } }
      })
    expect((await lying(lie, () => setup.sync())).outcome).toBe('partial')
    await setup.sync()
    expect([(await setup.sync()).outcome, await isExact()]).toEqual(['complete', true])
    const brands = await setup.database.rows<{ brand_id: string }>('select brand_id from visibility.brands order by 1')
    expect(brands.map(({ brand_id }) => brand_id)).toEqual(
      project()
        .brands.map(({ id }) => id)
        .sort(),
    )
  })
})

test('after a run with a difference, the next run compares the whole history, whatever the hour', async () => {
  await start({ config: { lookback_days: 2 } })
  await setup.sync()
  const controls = () =>
    setup.service.requests.filter(
      ({ body }) => body.start_date === RANGE.from && Array.isArray(body.dimensions) && body.dimensions.length === 1,
    ).length
  setup.service.requests.length = 0
  expect([(await setup.sync()).outcome, controls()]).toEqual(['complete', 0])
  const lie: Lie = (rows, asked) => (isFine(asked) ? rows.slice(1) : rows)
  expect((await lying(lie, () => setup.sync())).outcome).toBe('partial')
  setup.service.requests.length = 0
  await setup.sync()
  expect(controls()).toBe(1)
})

test('an old day of which most vanished from the service is put in review by the history check', async () => {
  await start({ config: { lookback_days: 3 } })
  await setup.sync()
  const chats = setup.service.world.chatsOf(project(), '2026-02-20')
  for (const { id } of chats.slice(0, 8)) setup.service.world.dropChat(id)
  later(25)
  const report = await setup.sync()
  const held = await setup.database.rows<{ stream: string }>(
    "select stream from visibility_ops.coverage where date = '2026-02-20' and state = 'held' order by 1",
  )
  const names = ['brand_daily', 'by_model', 'by_prompt', 'by_topic', 'chats']
  expect([report.outcome, held.map(({ stream }) => stream)]).toEqual(['partial', names])
})

test('a day that changed long ago is read again in reports with filters that are not compared', async () => {
  const filters = [{ field: 'country_code', operator: 'in', values: ['DE'] }]
  const reports = [
    ...FOUR_GRAINS,
    { name: 'domains_of_one', of: 'domains', dimensions: ['date'], filters },
    { name: 'ignored', dimensions: ['date', 'model_id'], filters },
  ]
  await start({ extras: 'all', config: { lookback_days: 3, reports, reconcile: { ignore: ['ignored'] } } })
  await setup.sync()
  setup.service.world.rewriteDays(project(), ['2026-02-20'])
  later(25)
  const { run_id } = await setup.sync()
  const read = await setup.database.rows<{ stream: string }>(
    "select stream from visibility_ops.coverage where date = '2026-02-20' and run_id = $1",
    [run_id],
  )
  expect(read.map(({ stream }) => stream)).toEqual(expect.arrayContaining(['domains_of_one', 'ignored', 'by_model']))
})

test('chats of yesterday that lag behind are read by the next run, whatever the lookback', async () => {
  await start({ config: { lookback_days: 1, start_date: '2026-03-25', end_date: '2026-04-01' } })
  const lagging: Lie = (rows, { path, offset }) => {
    if (path !== 'chats') return rows
    return offset > 0 ? [] : rows.filter(({ date }, at) => date !== '2026-03-30' || at % 3 > 0)
  }
  await lying(lagging, () => setup.sync())
  later(25)
  const { outcome } = await setup.sync()
  const chats = await setup.database.rows("select from visibility.chats where date = '2026-03-30'")
  expect([outcome, chats.length]).toEqual(['complete', 12])
})

test('a malformed row does not hide that a long range of a report of domains is shortened', async () => {
  const reports = [{ name: 'domains_daily', of: 'domains', dimensions: ['date'] }]
  await start({ extras: 'all', config: { extras: 'auto', streams: [], reports } })
  const lie: Lie = (rows, { path, from, to, offset }) => {
    if (path !== 'reports/domains' || from === to) return rows
    if (offset > 0) return []
    const kept = [...new Set(rows.map(({ date }) => date!))].sort().slice(-3)
    const short = rows.filter(({ date }) => kept.includes(date!))
    return short.map((row, at) => (at === 0 ? { ...row, retrieved_percentage: 'many' } : row))
  }
  await lying(lie, () => setup.sync())
  await setup.sync()
  const days = await setup.database.rows('select distinct date from visibility.domains_daily')
  expect([(await setup.sync()).outcome, days.length]).toEqual(['complete', countDays(RANGE)])
})

test('days between days that are due stay settled, and are read once', async () => {
  await start({ config: { lookback_days: 3 } })
  const day = '2026-02-26'
  const malformed: Lie = (rows, { dimensions }) => {
    const first = rows.find(({ date }) => date === day)
    return dimensions.includes('topic_id')
      ? rows.map((row) => (row === first ? { ...row, sentiment: 'high' } : row))
      : rows
  }
  await lying(malformed, () => setup.sync())
  setup.service.requests.length = 0
  await lying(malformed, () => setup.sync())
  const asked = setup.service.requests.flatMap(({ body }) =>
    String(body.dimensions) === 'date,topic_id' ? [`${body.start_date} ${body.end_date}`] : [],
  )
  expect(asked).toEqual([`${day} ${RANGE.to}`])
})

describe('a backfill reads a day again that changes meanwhile, also if the day', () => {
  const range = { from: '2026-02-10', to: '2026-02-12' }
  test.each<[string, string]>([
    ['is not configured', '2026-02-19'],
    ['was due before', range.from],
  ])('%s', async (which, start_date) => {
    await start({ config: { source: { concurrency: 1 }, start_date } })
    await setup.sync({ command: 'backfill', range })
    if (which === 'was due before')
      await setup.database.rows(
        "update visibility_ops.coverage set state = 'stale', reconciled_at = null where date = $1",
        [range.to],
      )
    let reports = 0
    const change: Lie = (rows, asked) => {
      if (isFine(asked) && ++reports === 1) setup.service.world.rewriteDays(project(), [range.to])
      return rows
    }
    const report = await lying(change, () => setup.sync({ command: 'backfill', range }))
    const stale = await setup.database.rows("select stream, date from visibility_ops.coverage where state = 'stale'")
    expect([report.outcome, stale]).toEqual(['complete', []])
  })
})

test('an open day that adds up later has no difference', async () => {
  await start({ config: { lookback_days: 1, start_date: '2026-03-25', end_date: '2026-04-01' } })
  await setup.sync()
  const day = '2026-03-30'
  const lie: Lie = (rows, { dimensions, offset }) => {
    if (!dimensions.includes('prompt_id')) return rows
    return offset > 0 ? [] : rows.filter(({ date }, at) => date !== day || at % 3 > 0)
  }
  await lying(lie, () => setup.sync({ command: 'backfill', range: { from: day, to: day } }))
  later(25)
  await setup.sync()
  expect(await settledWithDifference(setup)).toEqual([])
})

test('days before the service recorded channels are loaded', async () => {
  const byChannel = { name: 'by_channel', dimensions: ['date', 'model_channel_id'] }
  await start({ config: { reports: [...FOUR_GRAINS, byChannel], lookback_days: 3, start_date: '2026-02-01' } })
  const isOld = ({ date }: LiedRow) => date! < '2026-02-27'
  const withoutChannel = (row: LiedRow) => (isOld(row) ? { ...row, model_channel: null } : row)
  const lie: Lie = (rows, { path, dimensions, from, to, offset }) => {
    if (path === 'chats') return rows.map(withoutChannel)
    if (!dimensions.includes('model_channel_id')) return rows
    const query = { range: { from, to }, dimensions: ['date'] as Dimension[], filters: [] }
    const whole = brandReport(setup.service.world, project(), query) as LiedRow[]
    const fresh = rows.filter((row) => !isOld(row))
    return offset > 0 ? [] : [...fresh, ...whole.filter(isOld).map(withoutChannel)]
  }
  await lying(lie, () => setup.sync())
  expect((await lying(lie, () => setup.sync())).outcome).toBe('complete')
})

test('a row that is rejected on an open day stays in quarantine', async () => {
  const day = '2026-03-31'
  await start({ config: { start_date: '2026-03-25', end_date: day } })
  const lie: Lie = (rows, { dimensions, offset }) => {
    if (!dimensions.includes('topic_id')) return rows
    const [first, ...others] = rows.filter(({ date }) => date === day)
    const wrong = others.map((row) => ({ ...row, mention_count: (row.mention_count as number) + 1 }))
    const malformed = first === undefined ? [] : [{ ...first, sentiment: 'high' }]
    return offset > 0 ? [] : [...rows.filter(({ date }) => date !== day), ...malformed, ...wrong]
  }
  await lying(lie, () => setup.sync())
  const entries = await setup.database.rows('select resolution from visibility_ops.quarantine')
  expect(entries).toEqual([{ resolution: null }])
})

test('an audit leaves a day due that differs before the start date', async () => {
  await start()
  await setup.sync({ command: 'backfill', range: { from: '2026-02-17', to: '2026-02-18' } })
  await setup.sync()
  await setup.database.rows("delete from visibility.by_model where date = '2026-02-17'")
  const { services, projects } = setup
  const audit = { projects, signal: new AbortController().signal, repair: false }
  expect((await runAudit(services, audit)).remaining).toBe(1)
  await setup.sync()
  expect(await isExact(FOUR_GRAINS, { ...RANGE, from: '2026-02-17' })).toBe(true)
})

test('control totals that change between the comparison and the commit leave no day settled', async () => {
  await start()
  const day = '2026-02-24'
  const { run_id: runId } = await setup.sync()
  const own = { runId, command: 'sync', ...newRunMemory(1000), acceptDeletes: false, lookbackFrom: RANGE.from }
  const { signal } = new AbortController()
  const run = makeRun(setup.services, own, signal)
  const window = { project: setup.projects[0]!, filters: [], range: { from: day, to: day } }
  const isBlocked = async () =>
    (
      await setup.database.rows(
        "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
      )
    ).length > 0
  let marked: Promise<unknown> | undefined
  run.beforeCommit = async () => {
    setup.service.world.rewriteDays(project(), [day])
    let isDone = false
    marked = readControl(run, window, { signal }).finally(() => {
      isDone = true
    })
    while (!isDone && !(await isBlocked()));
  }
  const stream = setup.services.streams.get('by_model') as DayStream
  await syncWindow(run, { ...window, stream }, { signal })
  await marked
  const states = await setup.database.rows(
    "select state from visibility_ops.coverage where stream = 'by_model' and date = $1",
    [day],
  )
  expect(states).toEqual([{ state: 'stale' }])
})

test('a day whose chats are stored under a day that was read later is read again', async () => {
  await start()
  const { run_id: runId } = await setup.sync()
  const [lied, robbed] = ['2026-02-20', '2026-02-23'] as const
  const stolen = setup.service.world.chatsOf(project(), robbed).slice(0, 5)
  const { signal } = new AbortController()
  const stream = setup.services.streams.get('chats') as DayStream
  const read = (url: string, day: Day) => {
    const own = { runId, command: 'sync', ...newRunMemory(1000), acceptDeletes: false, lookbackFrom: RANGE.from }
    const run = makeRun({ ...setup.services, client: openClient(url) }, own, signal)
    return syncWindow(run, { project: setup.projects[0]!, stream, range: { from: day, to: day } }, { signal })
  }
  const liar = await startRewriter(setup.service.url, (text) => {
    const { data, ...answer } = JSON.parse(text)
    return JSON.stringify({ ...answer, data: data?.map((row: LiedRow, at: number) => ({ ...row, ...stolenId(at) })) })
  })
  const stolenId = (at: number) => (stolen[at] === undefined ? {} : { id: stolen[at].id })
  let asked = 0
  const slow = await startRewriter(setup.service.url, async (text) => {
    if (++asked === 1) await read(liar.url, lied)
    return text
  })
  await read(slow.url, robbed)
  expect([(await setup.sync()).outcome, await isExact()]).toEqual(['complete', true])
})

test('a malformed row does not have each day read alone of which the service leaves rows out', async () => {
  const world = { projects: 1, prompts: 8, models: 2, brands: 3 }
  await start({ world, config: { start_date: '2026-01-01', lookback_days: 60 } })
  for (const prompt of project().prompts.slice(0, 2)) prompt.topicId = null
  const lie: Lie = (rows, { dimensions, offset }) => {
    if (!dimensions.includes('topic_id')) return rows
    const kept = offset > 0 ? [] : rows.filter(({ topic }) => topic != null)
    const malformed = kept.find(({ date }) => date === RANGE.to)
    return kept.map((row) => (row === malformed ? { ...row, sentiment: 'high' } : row))
  }
  await lying(lie, () => setup.sync())
  const { streams } = await lying(lie, () => setup.sync())
  expect(streams.find(({ stream }) => stream === 'by_topic')!.requests).toBeLessThan(6)
})

test('old days settle though the service sends rows without mentions from a day on', async () => {
  await start({ config: { lookback_days: 3, end_date: '2026-02-26' } })
  const lie: Lie = (rows, asked) => {
    if (!isFine(asked)) return rows
    return asked.offset > 0
      ? []
      : rows.filter(({ visibility_count, date }) => visibility_count !== 0 || date! > '2026-02-26')
  }
  await lying(lie, () => setup.sync())
  const runs: unknown[][] = []
  setup.services.config.end_date = RANGE.to
  for (let run = 0; run < 3; run++) {
    later(25)
    const { outcome, streams } = await lying(lie, () => setup.sync())
    runs.push([
      outcome,
      streams.reduce((n, s) => n + s.requests, 0),
      streams.reduce((n, s) => n + s.unreconciled.length, 0),
    ])
  }
  expect(runs.map(([outcome]) => outcome)).toEqual(['complete', 'complete', 'complete'])
})

test('a new topic of a prompt is not overwritten by a report that was asked for before', async () => {
  await start({ config: { lookback_days: 3 } })
  await setup.sync()
  let done = false
  const proxy = await startRewriter(setup.service.url, async (text, { url }, body) => {
    if (!done && url!.includes('reports') && body.includes('topic_id')) {
      done = true
      const { prompts, topics } = project()
      prompts[0]!.topicId = topics.find(({ id }) => id !== prompts[0]!.topicId)!.id
      await setup.sync({ streams: setup.services.streams.named(['prompts']) })
    }
    return text
  })
  const streams = setup.services.streams.named(['by_topic'])
  const first = await setup.through(proxy.url, () => setup.sync({ command: 'backfill', range: RANGE, streams }))
  later(25)
  const second = await setup.sync()
  expect([first.outcome, second.outcome, await isExact()]).toEqual(['complete', 'complete', true])
})
