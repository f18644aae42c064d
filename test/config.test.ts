import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from '@jest/globals'
import { daysOfInterest, loadConfig, secretsOf } from '../src/core/config/load.ts'
import { UsageError } from '../src/core/errors.ts'

const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-config-'))
afterAll(() => rmSync(folder, { recursive: true }))
let files = 0

function load(yaml: string, env: Record<string, string> = {}) {
  const file = join(folder, `${files++}.yaml`)
  writeFileSync(file, yaml)
  return loadConfig({ file, env })
}

function failure(yaml: string, env: Record<string, string> = {}): string {
  try {
    load(yaml, env)
  } catch (error) {
    expect(error).toBeInstanceOf(UsageError)
    return (error as Error).message
  }
  throw new Error('was accepted')
}

test('an empty file gives the documented defaults', () => {
  const config = load('')
  expect(config.source).toMatchObject({ page_limit: 10_000, requests_per_minute: 200, compress: true })
  expect(config.warehouse).toEqual({ schema: 'visibility', partition: 'none' })
  expect(config.queue).toEqual({ mode: 'none' })
  expect(config.lookback_days).toBe(7)
  expect(config.streams).toEqual([
    'project_profile',
    'prompts',
    'prompt_suggestions',
    'domain_classifications',
    'chats',
  ])
  expect(config.reports.every(({ dimensions }) => dimensions.includes('date'))).toBe(true)
  expect(config.schedule).toEqual({ cron: '15 * * * *', timezone: 'UTC', audit_cron: '40 3 * * *', jitter_seconds: 0 })
})

test('the days of interest default to the last 90 days', () => {
  expect(daysOfInterest(load(''), '2026-03-31')).toEqual({ from: '2025-12-31', to: '2026-03-31' })
  expect(daysOfInterest(load('start_date: 2026-01-01'), '2026-03-31')).toEqual({ from: '2026-01-01', to: '2026-03-31' })
  expect(daysOfInterest(load('{start_date: 2026-01-01, end_date: 2026-02-01}'), '2026-03-31')).toEqual({
    from: '2026-01-01',
    to: '2026-02-01',
  })
})

test('variables and their defaults are filled in, and the environment wins over the file', () => {
  const yaml = 'source: { base_url: "${HOST:-https://a.example}/v1", api_key: "${KEY}", concurrency: "${N:-3}" }'
  expect(load(yaml, { KEY: 'k' }).source).toMatchObject({
    base_url: 'https://a.example/v1',
    api_key: 'k',
    concurrency: 3,
  })
  expect(load(yaml, { KEY: 'k', HOST: 'https://b.example', N: '5' }).source).toMatchObject({
    base_url: 'https://b.example/v1',
    concurrency: 5,
  })
  expect(
    load(yaml, { KEY: 'k', VISIBILITY_API_URL: 'https://c.example/v1/', VISIBILITY_API_KEY: 'other' }).source,
  ).toMatchObject({ base_url: 'https://c.example/v1', api_key: 'other' })
  expect(load('source: { base_url: "${ADDRESS:-}" }').source.base_url).toBeUndefined()
})

test('a variable cannot change the structure of the file', () => {
  const config = load('labels: { topics: { to_1: "${NAME}" } }', { NAME: 'x" }, tags: { evil: y' })
  expect(config.labels).toEqual({ brands: {}, topics: { to_1: 'x" }, tags: { evil: y' }, tags: {} })
})

test('secrets may come from files', () => {
  const file = join(folder, 'secret')
  writeFileSync(file, 'from-file\n')
  expect(load('', { VISIBILITY_API_KEY_FILE: file }).source.api_key).toBe('from-file')
  expect(failure('', { VISIBILITY_API_KEY_FILE: '/nowhere' })).toContain(
    'VISIBILITY_API_KEY_FILE: /nowhere cannot be read',
  )
  expect(failure('', { VISIBILITY_API_KEY_FILE: file, VISIBILITY_API_KEY: 'x' })).toContain('both set')
})

test('a key written in the file is warned about, one from a variable is not', () => {
  expect(load('source: { api_key: abcdef }').warnings.join()).toContain('source.api_key is written in the file')
  expect(load('source: { api_key: "${KEY}" }', { KEY: 'abcdef' }).warnings).toEqual([])
})

test('projects come from the list or the environment, and keep their own keys', () => {
  const yaml = 'projects: [{ id: or_1 }, { id: or_2, api_key: "${KEY2}" }]'
  expect(load(yaml, { KEY2: 'k2' }).projects).toEqual([{ id: 'or_1' }, { id: 'or_2', api_key: 'k2' }])
  expect(load(yaml, { KEY2: 'k2', VISIBILITY_PROJECTS: 'or_2, or_9' }).projects).toEqual([
    { id: 'or_2', api_key: 'k2' },
    { id: 'or_9' },
  ])
})

test('secretsOf finds every value that must not be printed', () => {
  const config = load('projects: [{ id: or_1, api_key: "${K}" }]', {
    K: 'own-key',
    VISIBILITY_API_KEY: 'main-key',
    DATABASE_URL: 'postgres://u:p%40ss@h/d',
  })
  expect(secretsOf(config)).toEqual(expect.arrayContaining(['own-key', 'main-key', 'p%40ss', 'p@ss']))
})

describe('bad input is refused with the field, the value and what is allowed', () => {
  const cases: [string, string, string[]][] = [
    ['an unknown key', 'lookback: 3', ['lookback: unknown']],
    ['an unknown nested key', 'source: { url: x }', ['source.url: unknown']],
    ['a wrong type', 'lookback_days: many', ['lookback_days', '"many"', 'a whole number from 0']],
    ['a number out of range', 'source: { page_limit: 20000 }', ['source.page_limit', '20000', '10,000']],
    ['an impossible date', 'start_date: 2026-02-30', ['start_date', '2026-02-30', 'calendar date']],
    [
      'a range that ends before it starts',
      '{start_date: 2026-02-02, end_date: 2026-02-01}',
      ['end_date', '2026-02-01', '2026-02-02'],
    ],
    ['a start in the future', 'start_date: 2999-01-01', ['start_date', '2999-01-01', 'today']],
    ['an unknown stream', 'streams: [chat]', ['streams.0', '"chat"', 'chats']],
    [
      'an unknown dimension',
      'reports: [{ name: a, dimensions: [date, brand_id] }]',
      ['reports.0.dimensions.1', '"brand_id"', 'model_channel_id'],
    ],
    ['a report without date', 'reports: [{ name: a, dimensions: [model_id] }]', ['reports.0.dimensions', 'date']],
    ['a dimension twice', 'reports: [{ name: a, dimensions: [date, date] }]', ['each dimension once']],
    [
      'an unsafe report name',
      'reports: [{ name: "a; drop table b", dimensions: [date] }]',
      ['reports.0.name', 'a; drop table b', 'lower-case'],
    ],
    [
      'a report that collides with a table',
      'reports: [{ name: chats, dimensions: [date] }]',
      ['reports.0.name', '"chats"', 'another table'],
    ],
    [
      'a report name twice',
      'reports: [{ name: a, dimensions: [date] }, { name: a, dimensions: [date] }]',
      ['reports.1.name', 'second time'],
    ],
    [
      'a filter on brands',
      'reports: [{ name: a, dimensions: [date], filters: [{ field: brand_id, operator: in, values: [kw_1] }] }]',
      ['reports.0.filters.0.field', 'share_of_voice'],
    ],
    [
      'an empty filter',
      'reports: [{ name: a, dimensions: [date], filters: [{ field: topic_id, operator: in, values: [] }] }]',
      ['at least one value'],
    ],
    ['a bad cron expression', 'schedule: { cron: "61 * * * *" }', ['schedule.cron', '61 * * * *', 'cron expression']],
    ['a bad time zone', 'schedule: { timezone: Mars/Olympus }', ['schedule.timezone', 'Mars/Olympus']],
    ['a missing variable', 'source: { api_key: "${NOT_SET}" }', ['source.api_key', 'NOT_SET']],
    [
      'an address without a version',
      'source: { base_url: "https://a.example", api_key: "${K:-k}" }',
      ['source.base_url', 'ends in the version'],
    ],
    ['a project twice', 'projects: [{ id: or_1 }, { id: or_1 }]', ['or_1 twice']],
    ['a nameless project among others', 'projects: [{ id: or_1 }, {}]', ['without id']],
    ['a bad project id', 'projects: [{ id: "a b" }]', ['projects.0.id', 'a b']],
    ['an unsafe schema', 'warehouse: { schema: "pub lic" }', ['warehouse.schema', 'pub lic']],
    ['a stream twice', 'streams: [chats, chats]', ['streams', 'each stream once']],
    ['something that is no YAML', 'a: [', ['not valid YAML']],
    ['a list instead of settings', '- a', ['must hold settings']],
    [
      'an address without a key',
      'source: { base_url: "https://a.example/v1" }',
      ['source.api_key', 'VISIBILITY_API_KEY'],
    ],
  ]
  test.each(cases)('%s', (_, yaml, parts) => {
    const message = failure(yaml)
    for (const part of parts) expect(message).toContain(part)
  })

  const misspelt: [string, string, string][] = [
    ['a setting', 'lookback: 3', 'lookback: unknown; did you mean "lookback_days"?'],
    ['a nested setting', 'source: { timeout: 3 }', 'source.timeout: unknown; did you mean "source.timeout_seconds"?'],
    ['a setting of another group', 'page_limit: 3', 'page_limit: unknown; did you mean "source.page_limit"?'],
    [
      'a setting in a list',
      'reports: [{ name: a, dimension: [date] }]',
      'reports.0.dimension: unknown; did you mean "reports.0.dimensions"?',
    ],
    [
      'a setting under a free name',
      'labels: { brands: { kw_1: { onw: true } } }',
      'did you mean "labels.brands.kw_1.own"?',
    ],
    ['a stream', 'streams: [promts]', 'did you mean "prompts"?'],
    ['a dimension', 'reports: [{ name: a, dimensions: [date, models_id] }]', 'did you mean "model_id"?'],
    ['a choice', 'warehouse: { partition: months }', 'did you mean "month"?'],
  ]
  test.each(misspelt)('%s that is misspelt is answered with what was probably meant', (_, yaml, hint) => {
    expect(failure(yaml)).toContain(hint)
  })

  test('a setting that is like no other is answered with where all are listed, and several with a line each', () => {
    expect(failure('{ zzzz: 1, lookbak_days: 2 }').split('\n')).toEqual([
      expect.stringMatching(/zzzz: unknown; see docs\/configuration\.md/),
      expect.stringContaining('did you mean "lookback_days"?'),
    ])
    expect(failure('', { LOG_FORMAT: 'jsno' })).toContain(
      'LOG_FORMAT: got "jsno"; allowed: auto, json, text; did you mean "json"?',
    )
  })

  test('a key that stands in the wrong place is not shown', () => {
    for (const yaml of [
      'projects: { id: or_1, api_key: "${K}" }',
      'source: "${K}"',
      'alerts: "${K}"',
      'projects: ["${K}"]',
      'warehouse: ["${K}"]',
    ]) {
      expect(failure(yaml, { K: 'sk-live-12345' })).not.toContain('sk-live-12345')
    }
  })

  test('a wrong variable is blamed, not the file', () => {
    expect(failure('lookback_days: 3', { DATABASE_URL: 'mysql://h/d' })).toMatch(/^DATABASE_URL: warehouse\.url: got/)
    expect(failure('projects: or_1', { VISIBILITY_PROJECTS: 'or_2' })).toContain('projects: got')
  })

  test('a percent sign in a password is no reason to stumble', () => {
    expect(secretsOf(load('', { DATABASE_URL: 'postgres://u:100%sure@h/d' }))).toContain('100%sure')
  })

  test('a bad secret is named but not shown', () => {
    const message = failure('', { DATABASE_URL: 'mysql://u:hunter22@h/d' })
    expect(message).toContain('warehouse.url')
    expect(message).not.toContain('hunter22')
  })

  test('a file that does not exist and a log level that does not', () => {
    expect(() => loadConfig({ file: '/nowhere.yaml', env: {} })).toThrow('/nowhere.yaml: cannot be read')
    expect(failure('', { LOG_LEVEL: 'loud' })).toContain('LOG_LEVEL: got "loud"; allowed: fatal')
  })
})
