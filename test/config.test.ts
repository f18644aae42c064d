import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from '@jest/globals'
import { daysOfInterest, loadConfig } from '../src/core/config/load.ts'
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
  expect(config.source).toMatchObject({ max_attempts: 6, patience_seconds: 60, run_minutes: 720 })
  expect(config.earliest_date).toBe('2020-01-01')
  expect(config.warehouse).toEqual({
    schema: 'visibility',
    partition: 'none',
    allow_foreign_owner: false,
    patience_seconds: 120,
  })
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

describe('.env', () => {
  /** A folder with `.env` beside the configuration. */
  function withFile(text: string, env: Record<string, string> = {}, yaml = '') {
    const path = mkdtempSync(join(folder, 'env-'))
    writeFileSync(join(path, '.env'), text)
    writeFileSync(join(path, 'sync.yaml'), yaml)
    return { path, config: () => loadConfig({ file: join(path, 'sync.yaml'), env }) }
  }
  const KEY = 'VISIBILITY_API_KEY=hunter22\n'

  test('beside the configuration gives variables, for settings and for placeholders', () => {
    const { config } = withFile(`# a comment\n${KEY}DAYS="3"\n`, {}, 'lookback_days: ${DAYS}')
    expect(config()).toMatchObject({ source: { api_key: 'hunter22' }, lookback_days: 3, warnings: [] })
    expect(config().redactor.text('the key hunter22')).not.toContain('hunter22')
  })

  test('loses to real variables, of which an empty one takes the value away and one for a file counts as the name', () => {
    const { path, config } = withFile(`${KEY}LOG_LEVEL=trace\n`, { VISIBILITY_API_KEY: 'real', LOG_LEVEL: '' })
    expect(config()).toMatchObject({ source: { api_key: 'real' }, log_level: undefined })
    writeFileSync(join(path, 'key'), 'from a file')
    const other = withFile(KEY, { VISIBILITY_API_KEY_FILE: join(path, 'key') })
    expect(other.config().source.api_key).toBe('from a file')
  })

  test('with a misspelt name is a warning, and what is wrong in it is an error without the secret', () => {
    expect(withFile('DATBASE_URL=x').config().warnings).toEqual([
      expect.stringContaining('did you mean "DATABASE_URL"?'),
    ])
    expect(() => withFile('DATABASE_URL=mysql://u:hunter22@h/d').config()).toThrow(
      /^DATABASE_URL: warehouse\.url: (?!.*hunter)/,
    )
  })

  test('may be a folder of another program', () => {
    const path = mkdtempSync(join(folder, 'env-'))
    mkdirSync(join(path, '.env'))
    writeFileSync(join(path, 'sync.yaml'), '')
    expect(loadConfig({ file: join(path, 'sync.yaml'), env: {} }).source.api_key).toBeUndefined()
  })
})

test('without dates the last 90 days are read, and none before earliest_date', () => {
  const days = (yaml: string) => daysOfInterest(load(yaml), '2026-03-31')
  expect(days('')).toEqual({ from: '2025-12-31', to: '2026-03-31' })
  expect(days('end_date: 2026-03-01')).toEqual({ from: '2025-12-01', to: '2026-03-01' })
  expect(days('end_date: 2026-05-01')).toEqual({ from: '2025-12-31', to: '2026-05-01' })
  expect(days('start_date: 2026-01-01')).toEqual({ from: '2026-01-01', to: '2026-03-31' })
  expect(days('earliest_date: 2026-03-01').from).toBe('2026-03-01')
  expect(days('earliest_date: 2015-01-01').from).toBe('2025-12-31')
  expect(days('{earliest_date: 2015-01-01, start_date: 2016-01-01}').from).toBe('2016-01-01')
})

test('an sslmode that does not exist is refused, and the message lists those that do', () => {
  const of = (query: string) => ({ DATABASE_URL: `postgres://u:hunter22@h/d?${query}` })
  for (const query of ['sslmode=requir', 'sslmode=', 'sslmode=require&sslmode=verify_full']) {
    const message = failure('', of(query))
    expect(message).toContain('sslmode one of disable, allow, prefer, require, verify-ca, verify-full, no-verify')
    expect(message).not.toContain('hunter22')
  }
  for (const mode of ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full', 'no-verify'])
    expect(load('', of(`sslmode=${mode}`)).warehouse.url).toContain(mode)
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

describe('every secret of the configuration is redacted from the output', () => {
  const shown = (yaml: string, env: Record<string, string>, text: string) => load(yaml, env).redactor.text(text)
  const cases: [string, string, Record<string, string>, string][] = [
    ['the key', '', { VISIBILITY_API_KEY: 'main-key-1' }, 'main-key-1'],
    ['the key of a project', 'projects: [{ id: or_1, api_key: "${K}" }]', { K: 'own-key-1' }, 'own-key-1'],
    ['a password', '', { DATABASE_URL: 'postgres://u:p%40ssword@h/d' }, 'p@ssword'],
    ['a password with a percent sign', '', { DATABASE_URL: 'postgres://u:100%sure-of@h/d' }, '100%sure-of'],
    ['a password among parameters', '', { DATABASE_URL: 'postgres://u@h/d?password=hunter22' }, 'hunter22'],
    ['a password of the platform', '', { PGPASSWORD: 'hunter22' }, 'hunter22'],
    [
      'a password in the address of the service',
      '',
      { VISIBILITY_API_URL: 'https://u:hunter22@h/v1', VISIBILITY_API_KEY: 'k-1234567' },
      'hunter22',
    ],
    ['a webhook', 'alerts: { webhook_url: "https://h.example/T0/B0/0123456789abcdef01" }', {}, '0123456789abcdef01'],
    ['the token', '', { VISIBILITY_TOKEN: 'token-0123456789' }, 'token-0123456789'],
    ['the key of Metabase', '', { METABASE_API_KEY: 'mb_12345' }, 'mb_12345'],
    ['the password of its database', '', { METABASE_DATABASE_URL: 'postgres://r:hunter22@h/d' }, 'hunter22'],
  ]
  test.each(cases)('%s', (_, yaml, env, secret) => {
    expect(shown(yaml, env, `it is ${secret}, they said`)).toBe('it is [redacted], they said')
  })

  test('a password that is also a word of the address is not redacted: that would reveal which word it is', () => {
    const env = { DATABASE_URL: 'postgres://visibility:visibility@db/warehouse' }
    expect(shown('', env, 'visibility.brand_daily of visibility-sync')).toBe(
      'visibility.brand_daily of visibility-sync',
    )
    expect(shown('', env, `at ${env.DATABASE_URL}`)).not.toContain('visibility:visibility')
  })
})

describe('an address over plain http is refused unless it leads to this machine', () => {
  const key = { VISIBILITY_API_KEY: 'k-1234567' }
  const cases: [string, string][] = [
    ['the service', 'source: { base_url: "http://api.example.com/v1" }'],
    ['a host that only looks like this machine', 'source: { base_url: "http://localhost.example.com/v1" }'],
    ['a user that looks like this machine', 'source: { base_url: "http://127.0.0.1@example.com/v1" }'],
    ['every interface', 'source: { base_url: "http://0.0.0.0/v1" }'],
  ]
  test.each(cases)('%s', (_, yaml) => {
    const message = failure(yaml, key)
    expect(message).toContain('got an http:// address of another machine; allowed: https://')
    expect(message).toContain('allow_http: true')
    expect(message.split('\n').length).toBe(1)
    expect(load(`${yaml}\nallow_http: true`, key).allow_http).toBe(true)
  })

  test.each(['127.9.9.9', '[::1]', 'LOCALHOST'])('%s is this machine', (host) => {
    expect(load(`source: { base_url: "http://${host}:8080/v1" }`, key).source.base_url).toContain('http://')
  })
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
    [
      'a start before the earliest day',
      'start_date: 0026-01-01',
      ['start_date', '0026-01-01', '2020-01-01 (earliest_date)'],
    ],
    ['an earliest day in the future', 'earliest_date: 2999-01-01', ['earliest_date', '2999-01-01', 'today']],
    [
      'an id that objects have of themselves',
      'labels: { brands: { __proto__: { name: x } } }',
      ['labels.brands', '__proto__'],
    ],
    ['an unknown stream', 'streams: [chat]', ['streams.0', '"chat"', 'chats']],
    [
      'an unknown dimension',
      'reports: [{ name: a, dimensions: [date, brand_id] }]',
      ['reports.0.dimensions.1', '"brand_id"', 'model_channel_id'],
    ],
    ['a report without date', 'reports: [{ name: a, dimensions: [model_id] }]', ['reports.0.dimensions', 'date']],
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
    ['a bad cron expression', 'schedule: { cron: "61 25 * * *" }', ['got "61 25 * * *"', '; wrong: minute, hour']],
    ['a cron expression with seconds', 'schedule: { audit_cron: "0 0 3 * 13 *" }', ['; wrong: month']],
    [
      'a cron expression that never fires',
      'schedule: { cron: "0 0 31 2 *" }',
      ['"0 0 31 2 *"', 'never fires: none of'],
    ],
    [
      'a cron expression that is none',
      'schedule: { cron: "often" }',
      ['schedule.cron: got "often"', 'five fields, or'],
    ],
    ['a bad time zone', 'schedule: { timezone: Mars/Olympus }', ['schedule.timezone', 'Mars/Olympus']],
    ['a missing variable', 'source: { api_key: "${NOT_SET}" }', ['source.api_key', 'NOT_SET']],
    [
      'an address without a version',
      'source: { base_url: "https://a.example", api_key: "${K:-k}" }',
      ['source.base_url', 'ends in the version'],
    ],
    ['a bad project id', 'projects: [{ id: "or_a b" }]', ['projects.0.id', 'or_a b']],
    ['an unsafe schema', 'warehouse: { schema: "pub lic" }', ['warehouse.schema', 'pub lic']],
    ['ids as projects', 'projects: [or_1]', ['projects.0: got', 'allowed: a group of settings, such as { id: or_… }']],
    ['a number as a group', 'serve: 8080', ['serve: got 8080; allowed: a group of settings']],
    ['something that is no YAML', 'a: [', ['not valid YAML']],
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
    [
      'a setting in a list',
      'reports: [{ name: a, dimension: [date] }]',
      'reports.0.dimension: unknown; did you mean "reports.0.dimensions"?',
    ],
    ['a stream', 'streams: [promts]', 'did you mean "prompts"?'],
  ]
  test.each(misspelt)('%s that is misspelt is answered with what was probably meant', (_, yaml, hint) => {
    expect(failure(yaml)).toContain(hint)
  })

  test('an unknown setting without a similar one is answered with where all are listed, and several with a line each', () => {
    expect(failure('{ zzzz: 1, lookbak_days: 2 }').split('\n')).toEqual([
      expect.stringContaining('zzzz: unknown; "npx visibility-sync help configuration" lists every setting'),
      expect.stringContaining('did you mean "lookback_days"?'),
    ])
  })

  describe('a key that stands in the wrong place is not shown', () => {
    const env = { K: 'sk-live-12345', VISIBILITY_API_KEY: 'sk-live-12345', LONG: 'sk-live-1234567890' }
    test.each([
      ['a section', 'source: "${K}"'],
      ['a list', 'projects: ["${K}"]'],
      ['a list in place of a group', 'warehouse: ["${K}"]'],
      ['a number', 'lookback_days: "${K}"'],
      ['the default of a variable', 'lookback_days: "${NOT_SET:-sk-live-12345}"'],
      ['a date', 'start_date: "${K}"'],
      ['a name', 'reports: [{ name: "${K}", dimensions: [date] }]'],
      ['a setting that nobody knows', 'labels: { brands: { kw_1: { "${K}": 1 } } }'],
      ['the name of a setting', 'sk-live-12345: 1'],
      ['the id of a project', 'projects: [{ id: "${K} " }]'],
      ['an alias', '{ source: { api_key: &key sk-live-12345 }, lookback_days: *key }'],
      ['a variable in a label', 'labels: { topics: { to_1: "${VISIBILITY_API_KEY}" } }'],
      ['an id that passes for one', 'projects: [{ id: "${K}" }]'],
      ['an address', 'source: { base_url: "https://h.example/${LONG}/v1", api_key: "${LONG}" }'],
      ['the user of an address', 'source: { base_url: "https://${LONG}@h.example/v1", api_key: "${LONG}" }'],
      ['a password that reads as an alias', 'source: { api_key: *sk-live-12345 }'],
      ['YAML that is broken behind it', 'source: { api_key: sk-live-12345\n  x: ['],
      ['a name twice', '{ sk-live-12345: 1, sk-live-12345: 2 }'],
    ])('%s', (_, yaml) => {
      // The environment would win over the longer one.
      const given = yaml.includes('LONG') ? { LONG: env.LONG } : env
      expect(failure(yaml, given)).not.toMatch(/sk.live.12345/)
    })

    test('in a variable that holds something else', () => {
      const secret = 'sk-live-1234567890'
      for (const variable of ['LOG_LEVEL', 'VISIBILITY_PROJECTS', 'VISIBILITY_API_URL', 'DATABASE_URL'])
        expect(failure('', { [variable]: `${secret} x` })).not.toContain(secret)
      for (const variable of ['VISIBILITY_API_KEY_FILE', 'DATABASE_URL_FILE', 'VISIBILITY_TOKEN_FILE']) {
        const message = failure('', { [variable]: variable.startsWith('DATA') ? `postgres://u:${secret}@h/d` : secret })
        expect(message).toContain(`${variable}: a path that is not shown cannot be read (ENOENT)`)
        expect(message).not.toContain(secret)
      }
    })

    test('a value that is filled in is told by the name of its variable', () => {
      expect(failure('lookback_days: "${DAYS}"', { DAYS: 'many' })).toContain('lookback_days: got "${DAYS}"; allowed')
    })
  })

  test('a wrong variable is blamed, not the file', () => {
    expect(failure('lookback_days: 3', { DATABASE_URL: 'mysql://h/d' })).toMatch(/^DATABASE_URL: warehouse\.url: got/)
    expect(failure('projects: or_1', { VISIBILITY_PROJECTS: 'or_2' })).toContain('projects: got')
    expect(failure('', { VISIBILITY_PROJECTS: 'or_a; or_b' })).toMatch(/^VISIBILITY_PROJECTS: .*got "or_a; or_b"/)
  })

  test('a token that could be guessed is refused with how to make one, and is not shown', () => {
    const message = failure('', { VISIBILITY_TOKEN: 'fifteen-letters' })
    expect(message).toBe(
      'VISIBILITY_TOKEN: got 15 characters; allowed: at least 16, as "openssl rand -hex 24" prints them',
    )
    expect(load('', { VISIBILITY_TOKEN: 'sixteen--letters' }).token).toBe('sixteen--letters')
  })

  test('a variable that begins like ours and is unknown is a warning, unless the file mentions it', () => {
    const env = {
      VISIBILITY_API_ULR: 'x',
      VISIBILITY_MINE: '3',
      VISIBILITY_PORT_80_TCP: 'x',
      VISIBILITY_TOKEN_FILE: '',
    }
    expect(load('lookback_days: "${VISIBILITY_MINE}"', env).warnings).toEqual([
      'VISIBILITY_API_ULR: unknown variable, ignored; did you mean "VISIBILITY_API_URL"?',
    ])
  })

  test('a name with one or two wrong letters is a warning if the right one is not set, and part of an error', () => {
    const wrong = [
      'DATBASE_URL',
      'DATABASE_URI',
      'DATABSE_URL_FILE',
      'VISIBLITY_API_KEY',
      'VISIBILITY_APIKEY',
      'METABASE_APIKEY',
    ]
    const env = Object.fromEntries(wrong.map((name) => [name, 'x']))
    const { warnings } = load('', env)
    expect(warnings.map((text) => /"(.+)"/.exec(text)?.[1])).toEqual([
      ...['DATABASE_URL', 'DATABASE_URL', 'DATABASE_URL_FILE'],
      ...['VISIBILITY_API_KEY', 'VISIBILITY_API_KEY', 'METABASE_API_KEY'],
    ])
    expect(failure('', { VISIBILITY_API_URL: 'https://a.example/v1', VISIBILITY_APIKEY: 'hunter22' })).toMatch(
      'source.api_key: nothing is set; set VISIBILITY_API_KEY (or VISIBILITY_API_KEY_FILE) to the key of the service\n' +
        'VISIBILITY_APIKEY: unknown variable, ignored; did you mean "VISIBILITY_API_KEY"?',
    )
    const others = { TEST_DATABASE_URL: 'x', DB_URL: 'x', LOGLEVEL: 'x', PGPASSFILE: 'x' }
    expect(load('', others).warnings).toEqual([])
    expect(load('', { DATABASE_URL: 'embedded', DATABASE_URI: 'x' }).warnings).toEqual([])
  })

  test('a file that does not exist and a log level that does not', () => {
    expect(() => loadConfig({ file: '/nowhere.yaml', env: {} })).toThrow('/nowhere.yaml: cannot be read')
    expect(failure('', { LOG_LEVEL: 'loud' })).toContain('LOG_LEVEL: got "loud"; allowed: fatal')
  })
})

test('parts of the fast path can be switched off by name, and only those', () => {
  expect(load('', { VISIBILITY_DISABLE: 'template-parser, window-digest' }).disabled).toEqual([
    'template-parser',
    'window-digest',
  ])
  expect(load('').disabled).toEqual([])
  expect(failure('', { VISIBILITY_DISABLE: 'templates' })).toContain('VISIBILITY_DISABLE: got "templates"')
})
