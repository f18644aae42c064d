import { beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import { projectNames } from '../src/cli/project-names.ts'
import { type RunContext, renderRun } from '../src/cli/render-run.ts'
import { withoutStyles } from '../src/cli/table.ts'
import { REPORTED_CODES, type ReportedCode } from '../src/core/failure-code.ts'
import { readDay } from '../src/ledger/calendar.ts'
import { runReason } from '../src/ledger/run-reason.ts'
import { readStatus } from '../src/ledger/status.ts'
import { streamKinds } from '../src/streams/registry.ts'
import { emptyReport, outcomeOf, type RunReport, type StreamReport } from '../src/sync/run/report.ts'
import type { RunOutcome } from '../src/warehouse/database.ts'
import { runCli } from './support/cli.ts'
import { NO_LIMIT, type Setup, setUp } from './support/setup.ts'

/* What is said of a run is true, and what is said to be next helps. */

const PROJECT = 'or_1f0c0000-0000-4000-a000-000000009ab2'
const context: RunContext = {
  warehouse: { described: 'postgres://h/d', embedded: false },
  names: projectNames([PROJECT], new Map([[PROJECT, 'Northwind']])),
  width: 80,
  held: [],
  command: (words) => `npx visibility-sync ${words ?? 'AGAIN'}`,
}
const ACCEPT = `npx visibility-sync backfill --from 2026-03-01 --to 2026-03-02 --stream chats --project ${PROJECT} --accept-deletes`
const HELD = {
  project_id: PROJECT,
  stream: 'chats',
  from: '2026-03-01',
  to: '2026-03-02',
  since: new Date(),
  accept: ACCEPT,
}

const chats = (some: Partial<StreamReport> = {}): StreamReport => ({ ...emptyReport(PROJECT, 'chats'), ...some })
const failed = (code: ReportedCode, error = `some ${code} error`) => ({
  range: '2026-03-01..2026-03-07',
  error,
  code,
})
const loaded = { windows: 1, days: 7, rows_read: 100, unchanged: 100, requests: 1 }
const held = [{ range: '2026-03-01..2026-03-02', rows_present: 10, rows_vanishing: 9 }]

function reportOf(streams: StreamReport[], more: Partial<RunReport> = {}): RunReport {
  const outcome = more.outcome ?? outcomeOf(streams, false)
  return {
    run_id: 7,
    command: 'sync',
    outcome,
    source: 'https://a.example/v1',
    seconds: 1.25,
    streams,
    notes: [],
    ...more,
  }
}
const shown = (report: RunReport, more: Partial<RunContext> = {}) =>
  withoutStyles(renderRun(report, { ...context, ...more }))
const one = (text: string) => text.replaceAll(/\s+/g, ' ')
const next = (text: string) => one(text.slice(text.indexOf('Next:'))).trim()

test('an interrupted run is neither complete nor failed, and one that loaded nothing has failed', () => {
  const bad = { ...emptyReport('p', 'chats'), failed: [failed('transient')] }
  const good = { ...emptyReport('p', 'chats'), ...loaded }
  expect([outcomeOf([good], true), outcomeOf([bad], true)]).toEqual(['interrupted', 'interrupted'])
  expect([outcomeOf([good], false), outcomeOf([good, bad], false), outcomeOf([bad], false)]).toEqual([
    ...['complete', 'partial', 'failed'],
  ])
})

describe('the sentence on what a run did', () => {
  const cases: [string, RunReport, string][] = [
    ['nothing due', reportOf([chats()]), 'Run 7: complete, nothing was due (0 requests, 1.3 s).'],
    [
      'nothing there',
      reportOf([chats({ ...loaded, rows_read: 0, unchanged: 0 })]),
      'Run 7: complete, the service has no rows for what was read (1 request',
    ],
    ['nothing new', reportOf([chats(loaded)]), 'complete, nothing to change: all 100 rows read are as they were'],
    [
      'all new',
      reportOf([chats({ ...loaded, inserted: 100, unchanged: 0 })]),
      'Run 7: complete, 100 rows changed (1 request',
    ],
    [
      'some new',
      reportOf([chats({ ...loaded, inserted: 5, deleted: 1, unchanged: 95 })]),
      'complete, 6 rows changed, 95 untouched (',
    ],
    [
      'rows in quarantine and nothing else new',
      reportOf([chats({ ...loaded, rows_read: 320, quarantined: 220 })]),
      'partial, no row changed: 100 of 320 rows read are as they were (',
    ],
    ['all failed', reportOf([chats({ failed: [failed('transient')] })]), 'Run 7: failed, nothing was loaded ('],
    [
      'stopped on the way',
      reportOf([chats({ ...loaded, inserted: 10, unchanged: 90 })], { outcome: 'interrupted' }),
      'interrupted, 10 rows changed, 90 untouched; what was loaded is kept (',
    ],
    ['no stream at all', reportOf([], { outcome: 'failed', error: 'no', code: 'error' }), 'failed, nothing was loaded'],
  ]
  test.each(cases)('%s', (_, report, expected) => {
    expect(one(shown(report))).toContain(expected)
  })

  test('never reports an incomplete run as unchanged, or as having nothing due', () => {
    for (const outcome of ['partial', 'failed', 'interrupted'] as const) {
      for (const some of [{}, loaded, { ...loaded, quarantined: 3 }, { ...loaded, held }]) {
        expect(one(shown(reportOf([chats(some)], { outcome })))).not.toMatch(/nothing to change|nothing was due|all \d/)
      }
    }
  })
})

describe('the table of a run', () => {
  const other = { ...emptyReport('or_2', 'chats'), ...loaded, days: 91 }

  test('does not add up the days of projects', () => {
    const text = one(shown(reportOf([chats({ ...loaded, days: 91 }), other])))
    expect(text).toMatch(/chats 91 200 [0 ]+ 2 0\.0/)
    expect(text).toMatch(/total 91 200 /)
  })

  test('explains requests for what the service does not offer', () => {
    const missing = (stream: string) => ({ ...emptyReport('or_2', stream), requests: 2, not_offered: 404 })
    const text = one(shown(reportOf([missing('tags'), missing('brands'), chats(loaded), missing('tags')])))
    expect(text).toMatch(
      /chats 7 .*not offered – [0 ]+ 6 0\.0 asked for, but the service has no tags, brands; asked again later/,
    )
  })
})

describe('the next step', () => {
  const cases: [ReportedCode, string, RegExp][] = [
    ['key', 'npx visibility-sync check', /VISIBILITY_API_KEY/],
    ['project', 'npx visibility-sync check', /check the id of Northwind in VISIBILITY_PROJECTS/],
    ['refused', 'npx visibility-sync AGAIN', /correct chats in the configuration or leave it out/],
    ['incomplete', 'npx visibility-sync AGAIN', /source\.page_limit/],
    ['bad-page', 'npx visibility-sync AGAIN', /max_bad_share/],
    ['transient', 'npx visibility-sync AGAIN', /read again what failed temporarily/],
    ['dead', 'npx visibility-sync AGAIN', /was given up/],
    ['worker-died', 'npx visibility-sync AGAIN', /why workers die/],
    ['error', 'npx visibility-sync check', /privileges/],
    ['superseded', 'npx visibility-sync status', /missing/],
    ['interrupted', 'npx visibility-sync AGAIN', /where this run stopped/],
  ]
  test('exists for every code', () => {
    expect(cases.map(([code]) => code).sort()).toEqual([...REPORTED_CODES].sort())
  })
  test.each(cases)('after %s', (code, command, words) => {
    const text = shown(reportOf([chats({ failed: [failed(code)] })]))
    expect(next(text)).toMatch(words)
    expect(text.trimEnd().split('\n').at(-1)!.trim()).toBe(command)
  })

  test('after quarantined rows, and after held days', () => {
    const bad = chats({ ...loaded, quarantined: 220 })
    expect(next(shown(reportOf([bad])))).toBe(
      'Next: look at the rows that failed validation: npx visibility-sync quarantine list',
    )
    const withHeld = reportOf([chats({ ...loaded, held })])
    expect(next(shown(withHeld, { held: [HELD] }))).toBe(`Next: if the rows are really gone, let it through: ${ACCEPT}`)
  })

  test('after a complete run, and after a wrong key that stopped everything', () => {
    expect(next(shown(reportOf([chats(loaded)])))).toBe('Next: see freshness and coverage: npx visibility-sync status')
    const wrong = reportOf([chats({ failed: [failed('key'), failed('key')] })], { error: 'HTTP 401', code: 'key' })
    expect(one(shown(wrong))).toContain('✗ HTTP 401 2 windows not read')
    expect(next(shown(wrong))).not.toContain('AGAIN')
  })
})

describe('the reason in one sentence', () => {
  const reason = (outcome: RunOutcome | null, streams: unknown, error: string | null = null) =>
    runReason({ outcome, error, summary: streams })

  test('names what went wrong, where and how often', () => {
    expect(reason('partial', [chats({ quarantined: 220 })])).toBe('220 rows of chats were quarantined.')
    expect(reason('partial', [chats({ quarantined: 1, failed: [failed('transient', 'HTTP 503')] })])).toBe(
      '1 window of chats could not be read or loaded: HTTP 503; 1 row of chats was quarantined.',
    )
    expect(reason('partial', [chats({ held })])).toBe('1 window of chats is held: 9 of 10 rows would have vanished.')
    const few = [{ ...held[0]!, rows_vanishing: 0 }]
    expect(reason('partial', [chats({ held: few })])).toBe(
      '1 window of chats is held: the answers of the control totals fell below half.',
    )
    expect(reason('failed', [chats({ failed: [failed('key', 'HTTP 401')] })], 'GET prompts: HTTP 401')).toBe(
      'GET prompts: HTTP 401.',
    )
    expect(reason('interrupted', [])).toBe('It was asked to stop.')
    expect(reason('interrupted', [chats({ failed: [failed('interrupted', 'not read: the run was stopped')] })])).toBe(
      '1 window of chats was not read, because the run was stopped.',
    )
    expect(reason('partial', [{ project_id: 'p', stream: 'chats', differing: ['2026-03-01'] }])).toBe(
      'The audit found 1 day of a stream that differs from the service.',
    )
  })
})

describe('real runs', () => {
  let setup: Setup
  beforeAll(async () => {
    setup = await setUp({ world: { projects: 2, prompts: 7, models: 2, brands: 3 } })
  })
  const cli = (args: string[], env: Record<string, string> = {}) =>
    runCli(args, {
      env: { ...setup.env, ...env },
      config: { ...setup.fileConfig, source: { max_attempts: 1, requests_per_minute: 100_000, patience_seconds: 1 } },
    })
  const codes = (report: RunReport) => [
    ...new Set(report.streams.flatMap(({ failed: entries }) => entries.map(({ code }) => code))),
  ]

  test('a wrong key has its code and the key as next step, and status and the log show the reason', async () => {
    const wrong = { VISIBILITY_API_KEY: 'wrong' }
    const asJson = (await cli(['sync', '--json'], wrong)).json() as RunReport
    expect([asJson.outcome, asJson.code, codes(asJson)]).toEqual(['failed', 'key', ['key']])
    const result = await cli(['sync'], { ...wrong, LOG_FORMAT: 'json' })
    expect(result.code).toBe(1)
    expect(one(result.stdout)).toContain('failed, nothing was loaded')
    expect(next(result.stdout)).toMatch(/VISIBILITY_API_KEY .*npx visibility-sync check$/m)
    expect(result.stdout).not.toContain('npx visibility-sync sync')
    const ended = JSON.parse(result.stderr.split('\n').find((line) => line.includes('run ended'))!)
    expect(ended.reason).toMatch(/HTTP 401/)
    expect(ended).not.toHaveProperty('error')
    expect(one(result.stdout).match(/HTTP 401/g)).toHaveLength(1)
    expect(result.stdout).not.toMatch(/^(stream|prompts|total) /m)
    const status = await cli(['status'])
    expect(one(status.stdout)).toMatch(/failed .*HTTP 401.* \(check VISIBILITY_API_KEY\)\./)
  })

  test('quarantined rows and nothing new: partial, and not "as they were"', async () => {
    expect((await cli(['sync'])).code).toBe(0)
    setup.service.setFaults({ ...NO_LIMIT, malformed: 0.02 })
    const args = ['backfill', '--from', '2026-03-01', '--to', '2026-03-31', '--stream', 'by_prompt']
    const result = await cli(args)
    setup.service.setFaults(NO_LIMIT)
    expect(result.code).toBe(1)
    expect(one(result.stdout)).toMatch(/partial, .*! \d+ rows of by_prompt were quarantined/)
    expect(one(result.stdout)).not.toContain('all')
    expect(next(result.stdout)).toContain('npx visibility-sync quarantine list')
    expect(one((await cli(['status'])).stdout)).toMatch(/backfill .* partial \d+ rows of by_prompt were quarantined\./)
    expect((await cli(args)).code).toBe(0)
  })

  test('held rows: the printed command accepts exactly those rows', async () => {
    await cli(['sync'])
    setup.service.setFaults({ ...NO_LIMIT, empty: true })
    const [first] = setup.service.world.projects
    const args = ['backfill', '--from', '2026-03-01', '--to', '2026-03-02', '--stream', 'chats', '--project', first!.id]
    const result = await cli(args)
    expect(one(result.stdout)).toContain('partial, the service has no rows for what was read')
    const check = await cli(['check'])
    expect([check.code, one(check.stdout)]).toEqual([0, expect.stringContaining('! 1 stream held (chats): ')])
    expect(one(check.stdout)).toContain('Ready, but see the warnings above. Next: ')
    const command = /npx visibility-sync (backfill .*--accept-deletes)/.exec(result.stdout)![1]!
    const accepted = await cli(command.split(' '))
    setup.service.setFaults(NO_LIMIT)
    expect([accepted.code, one(accepted.stdout)]).toEqual([0, expect.stringMatching(/complete, \d+ rows changed/)])
    expect((await cli(args)).code).toBe(0)
  })

  test('check does not end "All well" under a warning', async () => {
    const check = (labels: object) =>
      runCli(['check'], { env: setup.env, config: { ...setup.fileConfig, labels } }).then(({ stdout }) => one(stdout))
    expect((await cli(['sync'])).code).toBe(0)
    const wrong = await check({ brands: { kw_nowhere: { name: 'Nobody' } } })
    expect(wrong).toContain('! labels.brands.kw_nowhere: no row has this id')
    expect(wrong).toContain('Ready, but see the warnings above. Next: ')
    expect(wrong).not.toContain('All well')
  })
})

describe('held days', () => {
  let setup: Setup
  beforeEach(async () => {
    setup = await setUp({ world: { projects: 2, prompts: 7, models: 2, brands: 3 } })
  })
  const cli = (args: string[]) => runCli(args, { env: setup.env, config: setup.fileConfig })

  test('of several streams: one command lets all of them through', async () => {
    expect((await cli(['sync'])).code).toBe(0)
    const [first] = setup.service.world.projects
    setup.service.setFaults({ ...NO_LIMIT, empty: true })
    const args = ['backfill', '--from', '2026-03-03', '--to', '2026-03-04', '--project', first!.id]
    const result = await cli(args)
    const commands = result.stdout.match(/npx visibility-sync backfill .*/g)
    expect(commands).toEqual([
      expect.stringMatching(/--from 2026-03-03 --to 2026-03-04 --project \S+ --accept-deletes$/),
    ])
    const accept = commands![0]!.replace('npx ', '')
    const status = await cli(['status'])
    expect(status.stdout.match(/visibility-sync backfill .*/g)).toEqual([accept, accept])
    const { attention } = (await cli(['status', '--json'])).json()
    expect(attention).toEqual([
      { reasons: ['5 ranges held, to be let through only if the rows are really gone'], command: commands![0] },
    ])
    expect(one(status.stdout)).toContain('brand_daily, by_model, by_prompt, by_topic, chats of')
    expect((await cli(accept.split(' ').slice(1))).code).toBe(0)
    expect((await cli(['status', '--json'])).json().held).toEqual([])
  })

  test('a stream that is added meanwhile gets the rows of the day, since it has none to lose', async () => {
    expect((await cli(['sync'])).code).toBe(0)
    const { world } = setup.service
    const [first] = world.projects
    const chatsOf = world.chatsOf.bind(world)
    world.chatsOf = (of, day) =>
      chatsOf(of, day).filter((_, at) => of.id !== first!.id || day !== '2026-03-05' || at % 3 === 0)
    const day = ['--from', '2026-03-05', '--to', '2026-03-05']
    expect((await cli(['backfill', ...day])).code).toBe(1)
    const by_country = { name: 'by_country', dimensions: ['date', 'country_code'] }
    const config = { ...setup.fileConfig, reports: [...(setup.fileConfig.reports as object[]), by_country] }
    const added = await runCli(['backfill', ...day, '--stream', 'by_country', '--json'], { env: setup.env, config })
    expect(added.json().streams.flatMap(({ held }: any) => held)).toEqual([])
    const count = 'select count(*)::int as n from visibility.by_country where project_id = $1'
    expect((await setup.database.rows<{ n: number }>(count, [first!.id]))[0]!.n).toBeGreaterThan(0)
    world.chatsOf = chatsOf
    expect((await runCli(['sync'], { env: setup.env, config })).code).toBe(0)
  })

  test('say for each project what would vanish, and are cut to as many as are asked for', async () => {
    expect((await cli(['sync'])).code).toBe(0)
    const { world } = setup.service
    const chatsOf = world.chatsOf.bind(world)
    const [first] = world.projects
    // Of the other project half as much is left.
    world.chatsOf = (of, day) =>
      chatsOf(of, day).filter((_, at) => day !== '2026-03-05' || at % (of.id === first!.id ? 3 : 6) === 0)
    expect((await cli(['backfill', '--from', '2026-03-05', '--to', '2026-03-05', '--stream', 'chats'])).code).toBe(1)
    const { warehouse } = setup.database
    const lost = []
    for (const { id } of world.projects) {
      const { streams } = await readDay(warehouse, id, ['chats'], '2026-03-05')
      lost.push(streams[0]!.held_because!.rows_vanishing)
    }
    expect(lost[0]).toBeLessThan(lost[1]!)
    const ids = world.projects.map(({ id }) => id)
    const { config, streams } = setup.services
    const all = { config, today: '2026-03-31', projects: ids, streams: streamKinds(config), runs: 1 }
    expect(streams.all.length).toBeGreaterThan(0)
    const cut = await readStatus(warehouse, { ...all, most: 1 })
    expect([cut!.held.length, cut!.totals.held]).toEqual([1, 2])
  })

  test('that differ by stream: one command for each range names its streams', async () => {
    expect((await cli(['sync'])).code).toBe(0)
    const [first] = setup.service.world.projects
    const hold = (stream: string, day: string) =>
      setup.database.rows(
        "update visibility_ops.coverage set state = 'held', held_since = now() where project_id = $1 and stream = $2 and date = $3",
        [first!.id, stream, day],
      )
    await hold('chats', '2026-03-05')
    await hold('by_model', '2026-03-05')
    await hold('by_topic', '2026-03-08')
    const { stdout } = await cli(['status'])
    const commands = stdout.match(/visibility-sync backfill .*/g)!.map((command) => command.replace(/ --project.*/, ''))
    // The first one is also above the table.
    expect(commands.slice(1)).toEqual([
      'visibility-sync backfill --from 2026-03-05 --to 2026-03-05 --stream by_model --stream chats',
      'visibility-sync backfill --from 2026-03-08 --to 2026-03-08 --stream by_topic',
    ])
  })
})
