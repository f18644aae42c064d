import { PassThrough } from 'node:stream'
import { describe, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { barText, lineProgress, terminalProgress } from '../src/cli/progress.ts'
import { projectNames, shortIds } from '../src/cli/project-names.ts'
import { prettyLine } from '../src/cli/session.ts'
import {
  bad,
  clipTo,
  good,
  renderTable,
  strong,
  type TableColumn,
  toOneLine,
  toTerminal,
  widthOf,
  withoutStyles,
  wrap,
} from '../src/cli/table.ts'
import { shownText } from '../src/core/config/describe-issue.ts'
import { configSchema } from '../src/core/config/schema.ts'
import { wantsColour } from '../src/core/config/variables.ts'
import { cleanError, plainError, realStack } from '../src/core/errors.ts'
import { createLog } from '../src/core/logger.ts'
import { createRedactor, REDACTED } from '../src/core/redactor.ts'
import { clip, didYouMean, duration, editDistance, printable, similarTo } from '../src/core/text.ts'
import { refuseOld } from '../src/warehouse/connect.ts'
import { sized } from './support/long.ts'

describe('redaction', () => {
  const KEY = 'sk-Live/7f3a+"9z=~Q\'x é'

  describe('a secret is removed in every form in which a text can repeat it', () => {
    const bytes = Buffer.from(KEY)
    const forms: [string, string][] = [
      ['as it stands', KEY],
      ['in an address', encodeURIComponent(KEY)],
      [
        'in an address, with lower-case escapes',
        encodeURIComponent(KEY).replaceAll(/%../g, (code) => code.toLowerCase()),
      ],
      ['in a form', new URLSearchParams({ k: KEY }).toString().slice(2)],
      ['in JSON', JSON.stringify(KEY)],
      ['in JSON inside JSON', JSON.stringify(JSON.stringify(KEY))],
      ['in JSON of ASCII alone', '"sk-Live/7f3a+\\"9z=~Q\'x \\u00e9"'],
      ['in a page', 'sk-Live/7f3a+&quot;9z=~Q&#39;x é'],
      ['in SQL', `'${KEY.replaceAll("'", "''")}'`],
      ['in CSV', `"${KEY.replaceAll('"', '""')}"`],
      ['in base64', bytes.toString('base64')],
      ['in base64 for addresses', bytes.toString('base64url')],
      ['behind a user in base64', Buffer.from(`ann:${KEY}`).toString('base64')],
      ['in the middle of something in base64', Buffer.from(`{"k":"${KEY}","n":1}`).toString('base64')],
      ['in hex', bytes.toString('hex')],
      ['in capital hex', bytes.toString('hex').toUpperCase()],
      ['in capitals', KEY.toUpperCase()],
    ]
    test.each(forms)('%s', (_, form) => {
      const clean = createRedactor([KEY]).text(`before ${form} after`)
      expect(clean).toContain(REDACTED)
      expect(clean).toMatch(/^before .* after$/)
      // What is left of an encoded text around it may be a character or two at both ends.
      expect(clean.length).toBeLessThan('before  after'.length + REDACTED.length + 24)
    })
  })

  test('a text that was truncated in the middle of a secret shows no part of it', () => {
    const redactor = createRedactor(['sk-live-1234567890abcdef'])
    for (let room = 5; room <= 23; room++) {
      const cut = clip(`the answer is ${'x'.repeat(20)} sk-live-1234567890abcdef`, 35 + room)
      const clean = redactor.text(cut)
      expect(clean).not.toContain('sk-li')
      expect(clean).toContain(`${'x'.repeat(20)} ${REDACTED}… (`)
    }
    expect(redactor.text('sk-… is how a key begins; so … sk-live and more')).toBe(
      'sk-… is how a key begins; so … sk-live and more',
    )
  })

  test('a short secret is removed only as a whole word, and three characters never are', () => {
    const redactor = createRedactor(['abc', 'pass', 'day'])
    expect(redactor.text('the password of abc passes, each day')).toBe('the password of abc passes, each day')
    expect(redactor.text('got "pass": pass')).toBe(`got "${REDACTED}": ${REDACTED}`)
  })

  test('a password in an address is removed though it is not registered', () => {
    const redactor = createRedactor()
    expect(redactor.text('at postgres://ann:p/w@h:5432/d and https://ann:pw@h/x, http://h:80/a@b')).toBe(
      `at postgres://ann:${REDACTED}@h:5432/d and https://ann:${REDACTED}@h/x, http://h:80/a@b`,
    )
  })

  test('JSON stays JSON: numbers and structure are as they were', () => {
    const redactor = createRedactor(['12345678', 'some-secret'])
    const document = { rows: 12345678, note: 'rows 12345678', list: ['some-secret', null, true], 'some-secret': 1 }
    expect(JSON.parse(redactor.json(JSON.stringify(document)))).toEqual({
      rows: 12345678,
      note: `rows ${REDACTED}`,
      list: [REDACTED, null, true],
      [REDACTED]: 1,
    })
    expect(redactor.json('{"a":1}\n')).toBe('{"a":1}\n')
    expect(redactor.json('some-secret {')).toBe(`${REDACTED} {`)
  })

  test('a text without a secret is not changed', () => {
    const redactor = createRedactor(['sk-live-1234567890abcdef', 'hunter2'])
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), fc.jsonValue(), (text, value) => {
        expect(redactor.text(text)).toBe(text)
        expect(redactor.value(value)).toEqual(value)
      }),
    )
  })

  test('secrets are removed from any text, and the rest of the text stays', () => {
    const secret = fc.string({ unit: 'binary', minLength: 8, maxLength: 40 }).map((text) => text.toWellFormed())
    // Neither a cut nor an address: these are told apart above.
    const around = fc.string().filter((text) => !/[…:]/.test(text))
    fc.assert(
      fc.property(secret, around, around, (key, before, after) => {
        const redactor = createRedactor([key])
        const clean = redactor.text(`${before}\n${key}\n${after}`)
        if (!REDACTED.includes(key)) expect(clean).not.toContain(key)
        expect(JSON.stringify(redactor.value({ a: [`${before}${key}`] }))).not.toContain(
          JSON.stringify(key).slice(1, -1),
        )
      }),
      { numRuns: sized(10, 100) },
    )
  })

  test('secrets that are added later are removed by existing redactors', () => {
    const redactor = createRedactor()
    const lines: string[] = []
    const log = createLog({ level: 'info', redactor, destination: { write: (line: string) => void lines.push(line) } })
    redactor.add(['learned-later', undefined])
    log.info('has learned-later in it')
    expect(lines.join()).not.toContain('learned-later')
  })

  test('an error is logged by its message, without its request', () => {
    const lines: string[] = []
    const log = createLog({ level: 'info', destination: { write: (line: string) => void lines.push(line) } })
    const cause = Object.assign(new Error('inner'), { options: { headers: { 'x-api-key': 'unknown-secret' } } })
    const error = Object.assign(new Error('outer', { cause }), { client: { password: 'unknown-secret' }, code: 'E1' })
    log.warn({ err: error, reason: error, run: 1 }, 'failed')
    log.warn(error)
    expect(lines.join()).not.toContain('unknown-secret')
    expect(JSON.parse(lines[0]!)).toMatchObject({
      run: 1,
      err: { message: 'outer', code: 'E1', cause: { message: 'inner' } },
      reason: { type: 'Error', message: 'outer' },
    })
    expect(lines[1]).toContain('outer')
  })

  test('an error is redacted with its stack and its causes, even if its message cannot be set', () => {
    const redactor = createRedactor(['some-secret'])
    class Fixed extends Error {
      override get message() {
        return 'fixed some-secret'
      }
    }
    const error = new AggregateError([new Error('one some-secret')], 'all some-secret', { cause: new Fixed() })
    const clean = cleanError(error, redactor)
    expect(clean).toBe(error)
    const told = JSON.stringify([plainError(clean), plainError(clean.errors[0])])
    expect(told).not.toContain('some-secret')
    expect(told).toContain(`fixed ${REDACTED}`)
    expect(cleanError('some-secret', redactor)).toBe('some-secret')
  })

  describe('hostile text of 100,000 characters is handled in linear time', () => {
    const hostile = [
      'a.',
      'postgres://',
      'postgres://a:',
      'postgres://a: ',
      'a://b:',
      'file://',
      ' (/',
      '(/a.js:1',
      '.js:1',
      ' ',
      '. ',
      '/',
      '\\',
      '"',
      'x1',
    ].flatMap((part) => [part.repeat(100_000 / part.length), `${part.repeat(100_000 / part.length)}@`])

    test.each([
      ['redaction', (text: string) => createRedactor(['sk-live-1234567890abcdef']).text(`${text}\u0000`)],
      ['the value of a setting in a message', (text: string) => shownText(text)],
      ['a stack', (text: string) => realStack(`Error\n    at work (${text})`)],
      ['one line of a table', (text: string) => toOneLine(`${text}x`)],
      [
        'an address in the configuration',
        (text: string) => String(configSchema.safeParse(addressSettings(text)).success),
      ],
    ])('%s', (_, work) => {
      for (const text of hostile) expect(typeof work(text)).toBe('string')
    })

    const addressSettings = (text: string) => ({
      source: { base_url: `${text}x` },
      alerts: { ping_url: `https://a/${text}x`, email_from: text },
      custom_streams: [
        { name: text, path: text, by: 'list', columns: [{ name: 'a', path: text, type: 'text' }], key: ['a'] },
      ],
    })
  })
})

describe('for a terminal', () => {
  /* What goes to a terminal: characters, colours, widths, and guesses at what was meant. */

  const CLIPBOARD = '\u001b]52;c;aGVsbG8=\u0007'
  const OBEYED = /[^\P{Cc}\n]|[\u202a-\u202e\u2066-\u2069]/u

  describe('control characters', () => {
    test('are written out, whatever they are, and line feeds stay', () => {
      expect(printable(`a${CLIPBOARD}b\u009b31m\u007f\u202e\nc\r\nd\te`)).toBe(
        'a\\u001b]52;c;aGVsbG8=\\u0007b\\u009b31m\\u007f\\u202e\nc\nd e',
      )
      fc.assert(fc.property(fc.string({ unit: 'binary' }), (text) => !OBEYED.test(printable(text))))
    })

    test('do not change the meaning of JSON', () => {
      fc.assert(
        fc.property(fc.string({ unit: 'binary' }), (text) => {
          const json = printable(JSON.stringify({ text }, null, 2))
          expect(OBEYED.test(json)).toBe(false)
          expect(JSON.parse(json)).toEqual({ text })
        }),
      )
    })

    test('cannot imitate our own colours, which are printed only on request', () => {
      const foreign = '\u001b[31mred\u001b[39m'
      expect(toTerminal(`${good('✓')} ${foreign}`, true)).toBe('\u001b[32m✓\u001b[39m \\u001b[31mred\\u001b[39m')
      expect(toTerminal(`${good('✓')} ${foreign}`, false)).toBe('✓ \\u001b[31mred\\u001b[39m')
      expect(toTerminal(bad(`inside ${CLIPBOARD}`), true)).toBe(
        '\u001b[31minside \\u001b]52;c;aGVsbG8=\\u0007\u001b[39m',
      )
      expect(good('')).toBe('')
    })

    test('add no line to a cell or a sentence', () => {
      expect(toOneLine('one\r\n  two\nthree')).toBe('one two three')
    })
  })

  test('colours are for terminals, unless the environment overrides it', () => {
    expect([wantsColour(true, {}), wantsColour(false, {})]).toEqual([true, false])
    expect([wantsColour(true, { NO_COLOR: '1' }), wantsColour(true, { NO_COLOR: '' })]).toEqual([false, true])
    expect([wantsColour(false, { FORCE_COLOR: '1' }), wantsColour(true, { FORCE_COLOR: '0' })]).toEqual([true, false])
    expect([wantsColour(true, { TERM: 'dumb' }), wantsColour(true, { TERM: 'xterm' })]).toEqual([false, true])
    expect(wantsColour(false, { FORCE_COLOR: '1', NO_COLOR: '1' })).toBe(true)
  })

  describe('width', () => {
    test('counts columns, not characters', () => {
      expect([widthOf('abc'), widthOf('日本'), widthOf('e\u0301'), widthOf(strong('abc')), widthOf('🙂')]).toEqual([
        3, 4, 1, 3, 2,
      ])
    })

    test('sentences are wrapped between words, and words that are too long are left whole', () => {
      expect(wrap('one two three four', 9)).toBe('one two\nthree\nfour')
      expect(wrap('one two three', 12, 'Next: ')).toBe('Next: one\n      two\n      three')
      expect(wrap('see https://example.com/a/very/long/address now', 12)).toBe(
        'see\nhttps://example.com/a/very/long/address\nnow',
      )
      expect([clipTo('Running shoes', 8), clipTo('short', 8), clipTo('日本語の名', 6)]).toEqual([
        'Running…',
        'short',
        '日本…',
      ])
    })
  })

  describe('a table', () => {
    interface Row {
      name: string
      note?: string
      count: number
      zero: number
    }
    const columns: TableColumn<Row>[] = [
      { title: 'name', value: (row) => row.name },
      { title: 'count', align: 'right', value: (row) => row.count },
      { title: 'zero', align: 'right', value: (row) => row.zero, drop: 'if-zero' },
      { title: 'seconds', align: 'right', value: () => '1.0', drop: 1 },
    ]
    const rows = [{ name: 'brand_daily_by_prompt_model', count: 1234, zero: 0 }]
    const lines = (width?: number, more = {}) =>
      renderTable(columns, rows, { ...(width === undefined ? {} : { width }), ...more }).split('\n')

    test('drops empty columns, then the least important ones, then wraps', () => {
      expect(lines()[2]).toBe('brand_daily_by_prompt_model  1,234     0      1.0')
      expect(lines(45)[2]).toBe('brand_daily_by_prompt_model  1,234      1.0')
      expect(lines(40)[2]).toBe('brand_daily_by_prompt_model  1,234')
      expect(lines(30).slice(2)).toEqual(['brand_daily_by_prompt_m  1,234', 'odel'])
    })

    test('keeps an optional column that has a value', () => {
      const text = renderTable(columns, [...rows, { name: 'b', count: 1, zero: 3 }], { width: 45 })
      expect(text.split('\n')[0]).toMatch(/^name +count +zero$/)
    })

    test('fits any width that its numbers leave room for', () => {
      fc.assert(
        fc.property(
          fc.array(fc.record({ name: fc.string({ unit: 'binary', maxLength: 90 }), count: fc.nat(), zero: fc.nat(3) })),
          fc.integer({ min: 50, max: 120 }),
          (some, width) => {
            const text = renderTable(columns, some, { width })
            for (const line of text.split('\n')) expect(widthOf(line)).toBeLessThanOrEqual(width)
          },
        ),
      )
    })

    test('has rows in groups, notes below them, and totals at the end', () => {
      const text = renderTable<Row>(
        columns.slice(0, 2),
        [
          { name: 'a', count: 1, zero: 0 },
          { name: 'b', count: 2, zero: 0, note: 'two days are held' },
        ],
        { width: 20, group: () => 'Northwind', note: ({ note }) => note, footer: { name: 'total', count: 3, zero: 0 } },
      )
      expect(withoutStyles(text).split('\n').slice(2)).toEqual([
        'Northwind',
        'a          1',
        'b          2',
        '    two days are',
        '    held',
        '────────────',
        'total      3',
      ])
    })
  })

  describe('projects', () => {
    const one = 'or_1f0c0000-0000-4000-a000-000000009ab2'
    const two = 'or_2f0c0000-0000-4000-a000-000000009ab2'
    const near = 'or_1f0cffff-0000-4000-a000-000000009ab2'

    test('have short ids with as many letters as needed to be distinct', () => {
      expect([...shortIds([one, two]).values()]).toEqual(['or_1f0c…9ab2', 'or_2f0c…9ab2'])
      expect(new Set(shortIds([one, near, two]).values()).size).toBe(3)
      expect([...shortIds([one, near]).values()]).toEqual(['or_1f0c00…009ab2', 'or_1f0cff…009ab2'])
      expect(shortIds(['default', one]).get('default')).toBe('default')
      fc.assert(
        fc.property(
          fc.uniqueArray(fc.string({ maxLength: 40 })),
          (ids) => new Set(shortIds(ids).values()).size === ids.length,
        ),
      )
    })

    test('are called by their names, with the short id where a name is not enough', () => {
      const names = projectNames(
        [one, two, near],
        new Map([
          [one, 'Northwind'],
          [two, 'Northwind'],
          [near, 'Contoso'],
        ]),
      )
      expect([names.of(near), names.of(one)]).toEqual(['Contoso', 'Northwind (or_1f0c00…009ab2)'])
      expect(withoutStyles(names.heading(near))).toBe('Contoso (or_1f0cff…009ab2)')
      expect(projectNames([one], new Map()).of(one)).toBe('or_1f0c…9ab2')
      expect(names.within(`no brand of ${near} is own`)).toBe('no brand of Contoso is own')
      expect(projectNames([one], new Map([[one, `Evil${CLIPBOARD}\nname`]])).of(one)).not.toMatch(OBEYED)
    })
  })

  describe('suggestions', () => {
    test('a missing, extra, wrong or swapped letter counts as one difference', () => {
      expect(['chat', 'chatss', 'chots', 'cahts'].map((word) => editDistance(word, 'chats'))).toEqual([1, 1, 1, 1])
      expect(editDistance('', 'abc')).toBe(3)
    })

    test('are the nearest name, or one with the same start or end, or none', () => {
      const names = ['lookback_days', 'start_date', 'end_date', 'streams', 'serve']
      expect(similarTo('lookback', names)).toBe('lookback_days')
      expect(similarTo('start-date', names)).toBe('start_date')
      expect(similarTo('Stream', names)).toBe('streams')
      expect(similarTo('xyzzy', names)).toBeUndefined()
      expect(similarTo('a'.repeat(10_000), names)).toBeUndefined()
      expect([didYouMean('stearms', names), didYouMean('streams', names), didYouMean(3, names)]).toEqual([
        '; did you mean "streams"?',
        '',
        '',
      ])
    })
  })

  test('the bar shows share, rows, rate and time left', () => {
    const text = barText({ total: 200, done: 50, rows: 12_000, current: 'chats', elapsedMs: 10_000 })
    expect(text).toBe('██████░░░░░░░░░░░░░░░░░░  25 %  12,000 rows  1,200/s  30 s left  chats')
    expect(barText({ total: 200, done: 0, rows: 0, current: '', elapsedMs: 10 })).toContain('starting')
    // Behind the last window the run still has work to do.
    expect(barText({ total: 200, done: 230, rows: 9, current: 'chats', elapsedMs: 9000 })).toContain(
      '99 %  9 rows  1/s  finishing',
    )
    expect([0.2, 600, 9000, 259_200].map(duration)).toEqual(['0 s', '10 min', '2.5 h', '3 days'])
  })

  const NOTHING = { effect: { inserted: 0, updated: 0, deleted: 0, unchanged: 0 }, quarantined: 0, seconds: 1 }

  test('lines are written above the bar, and the bar is removed at the end', () => {
    const stream = new PassThrough() as unknown as NodeJS.WriteStream & PassThrough
    let now = 0
    const progress = terminalProgress(stream, () => now)
    progress.observer.planned?.({ days: 10, lists: 0 })
    now = 1000
    progress.observer.advanced?.({ projectId: 'p', stream: 'chats', days: 5, rows: 70, ...NOTHING })
    progress.above('something happened\n')
    progress.stop()
    const written = String(stream.read())
    expect(written).toContain('something happened\n')
    expect(written).toContain('50 %')
    expect(written.endsWith('\r\u001b[2K')).toBe(true)
  })

  test('without a terminal there is a line for each step, and one every few seconds', () => {
    const lines: string[] = []
    let now = 0
    const progress = lineProgress(
      (line) => void lines.push(line),
      () => now,
    )
    const step = { projectId: 'p', stream: 'chats', days: 1, rows: 100, ...NOTHING }
    progress.observer.started?.({ runId: 3, command: 'sync' })
    progress.observer.planned?.({ days: 20, lists: 1 })
    // A plan that did not change is printed once.
    progress.observer.planned?.({ days: 20, lists: 1 })
    for (let day = 1; day <= 21; day++) {
      now = day * 1000
      progress.observer.advanced?.(step)
    }
    progress.say('run 3 ended: complete')
    expect(lines.slice(0, 3)).toEqual([
      '00:00:00 run 3 started: sync\n',
      '00:00:00 to read: 20 stream-days and 1 list\n',
      '00:00:05 23 %, 500 rows, 100/s, 16 s left\n',
    ])
    expect(lines.length).toBe(7)
    progress.observer.planned?.({ days: 0, lists: 0 })
    expect(lines.at(-1)).toContain('nothing is due')
  })

  test('a readable line has few fields: zeroes and the run are left out, ids are short', () => {
    const line = JSON.stringify({
      level: 'warn',
      time: '2026-03-01T10:11:12.000Z',
      run: 3,
      project: 'or_a_long_id',
      rows: 0,
      seconds: 1.234,
      reason: 'two\nlines \u001b[31m',
      msg: 'failed',
    })
    expect(withoutStyles(prettyLine(line, () => 'or_…'))).toBe(
      '10:11:12 ! failed  project=or_… seconds=1.2 reason=two lines \\u001b[31m\n',
    )
  })

  test('a table is as wide as its contents, with numbers to the right', () => {
    const text = renderTable<[string, number]>(
      [
        { title: 'name', value: (row) => row[0] },
        { title: 'n', align: 'right', value: (row) => row[1] },
      ],
      [
        ['a', 5],
        ['longer', 12_345],
      ],
    )
    expect(text.split('\n')).toEqual(['name         n', '──────────────', 'a            5', 'longer  12,345'])
  })

  test('a log line loses every secret, wherever it is', () => {
    const lines: string[] = []
    const log = createLog({
      level: 'info',
      redactor: createRedactor(['s3cret-key']),
      destination: { write: (line: string) => void lines.push(line) },
    })
    log.info(
      { note: 'has s3cret-key inside', url: 'postgres://u:pw@h/d' },
      'for s3cret-key and postgres://u:hunter22@host/db',
    )
    expect(lines[0]).not.toMatch(/s3cret-key|hunter22|pw@/)
    expect(prettyLine(lines[0]!)).toMatch(/^\d\d:\d\d:\d\d for \[redacted\]/)
  })

  test('a Postgres older than 15 is refused with its version', () => {
    expect(() => refuseOld(140_012)).toThrow('the database is Postgres 14; visibility-sync needs Postgres 15 or later')
    expect(() => refuseOld(150_000)).not.toThrow()
  })
})
