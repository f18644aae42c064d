import { describe, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { shortIds } from '../src/cli/project-names.ts'
import { good, renderTable, type TableColumn, toOneLine, toTerminal, widthOf } from '../src/cli/table.ts'
import { configSchema } from '../src/core/config/schema.ts'
import { shownText } from '../src/core/config/secrets.ts'
import { wantsColour } from '../src/core/config/variables.ts'
import { cleanError, plainError, realStack } from '../src/core/errors.ts'
import { createLog } from '../src/core/logger.ts'
import { createRedactor, REDACTED } from '../src/core/redactor.ts'
import { clip, printable } from '../src/core/text.ts'
import { refuseOld } from '../src/warehouse/connect.ts'
import { sized } from './support/long.ts'

describe('redaction', () => {
  const KEY = 'sk-Live/7f3a+"9z=~Q\'x é'

  test('a secret is removed in every form in which a text can repeat it', () => {
    const bytes = Buffer.from(KEY)
    const forms: [string, string][] = [
      ['as it stands', KEY],
      ['in an address', encodeURIComponent(KEY)],
      ['in a form', new URLSearchParams({ k: KEY }).toString().slice(2)],
      ['in JSON', JSON.stringify(KEY)],
      ['in JSON of ASCII alone', '"sk-Live/7f3a+\\"9z=~Q\'x \\u00e9"'],
      ['in a page', 'sk-Live/7f3a+&quot;9z=~Q&#39;x é'],
      ['in SQL', `'${KEY.replaceAll("'", "''")}'`],
      ['in base64', bytes.toString('base64')],
      ['behind a user in base64', Buffer.from(`ann:${KEY}`).toString('base64')],
      ['in the middle of something in base64', Buffer.from(`{"k":"${KEY}","n":1}`).toString('base64')],
      ['in hex', bytes.toString('hex')],
      ['in capitals', KEY.toUpperCase()],
    ]
    for (const [, form] of forms) {
      const clean = createRedactor([KEY]).text(`before ${form} after`)
      expect(clean).toContain(REDACTED)
      expect(clean).toMatch(/^before .* after$/)
      // What is left of an encoded text around it may be a character or two at both ends.
      expect(clean.length).toBeLessThan('before  after'.length + REDACTED.length + 24)
    }
  })

  test('a text that was truncated in the middle of a secret shows no part of it', () => {
    const redactor = createRedactor(['sk-live-1234567890abcdef'])
    for (let room = 5; room <= 23; room++) {
      const cut = clip(`the answer is ${'x'.repeat(20)} sk-live-1234567890abcdef`, 35 + room)
      const clean = redactor.text(cut)
      expect(clean).not.toContain('sk-li')
      expect(clean).toContain(`${'x'.repeat(20)} ${REDACTED}… (`)
    }
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
    const hostile = ['a.', 'postgres://', 'postgres://a:', 'a://b:', '(/a.js:1', '. ', '\\', 'x1'].flatMap((part) => [
      part.repeat(100_000 / part.length),
      `${part.repeat(100_000 / part.length)}@`,
    ])

    const KEY = 'sk-live-1234567890abcdef'
    test.each([
      ['redaction hides a key', (text: string) => !createRedactor([KEY]).text(`${text}${KEY}`).includes(KEY)],
      ['a message is short', (text: string) => shownText(text).length < 1000],
      ['a stack keeps its lines', (text: string) => realStack(`Error\n    at ${text}\n    end`).endsWith('\n    end')],
      ['a cell of a table is one line', (text: string) => !toOneLine(`${text}\nx`).includes('\n')],
      ['a configuration is refused', (text: string) => !configSchema.safeParse(addressSettings(text)).success],
    ])('%s', (_, isRight) => {
      for (const text of hostile) expect(isRight(text)).toBe(true)
    })

    const addressSettings = (text: string) => ({
      source: { base_url: `${text}x` },
      alerts: { ping_url: `https://a/${text}x`, email_from: text },
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

    test('cannot imitate our own colours, which are printed only on request', () => {
      const foreign = '\u001b[31mred\u001b[39m'
      expect(toTerminal(`${good('✓')} ${foreign}`, true)).toBe('\u001b[32m✓\u001b[39m \\u001b[31mred\\u001b[39m')
      expect(toTerminal(`${good('✓')} ${foreign}`, false)).toBe('✓ \\u001b[31mred\\u001b[39m')
    })
  })

  test('colours are for terminals, unless the environment overrides it', () => {
    expect([wantsColour(true, {}), wantsColour(false, {})]).toEqual([true, false])
    expect([wantsColour(true, { NO_COLOR: '1' }), wantsColour(true, { NO_COLOR: '' })]).toEqual([false, true])
    expect([wantsColour(false, { FORCE_COLOR: '1' }), wantsColour(true, { FORCE_COLOR: '0' })]).toEqual([true, false])
  })

  describe('a table', () => {
    interface Row {
      name: string
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
    const lines = (width: number) => renderTable({ rows, width }, columns).split('\n')

    test('drops empty columns, then the least important ones, then wraps', () => {
      expect(lines(45)[2]).toBe('brand_daily_by_prompt_model  1,234      1.0')
      expect(lines(40)[2]).toBe('brand_daily_by_prompt_model  1,234')
      expect(lines(30).slice(2)).toEqual(['brand_daily_by_prompt_m  1,234', 'odel'])
    })

    test('fits any width that its numbers leave room for', () => {
      fc.assert(
        fc.property(
          fc.array(fc.record({ name: fc.string({ unit: 'binary', maxLength: 90 }), count: fc.nat(), zero: fc.nat(3) })),
          fc.integer({ min: 50, max: 120 }),
          (some, width) => {
            const text = renderTable({ rows: some, width }, columns)
            for (const line of text.split('\n')) expect(widthOf(line)).toBeLessThanOrEqual(width)
          },
        ),
      )
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
      fc.assert(
        fc.property(
          fc.uniqueArray(fc.string({ maxLength: 40 })),
          (ids) => new Set(shortIds(ids).values()).size === ids.length,
        ),
      )
    })
  })

  test('a Postgres older than 15 is refused with its version', () => {
    expect(() => refuseOld(140_012)).toThrow('the database is Postgres 14; visibility-sync needs Postgres 15 or later')
    expect(() => refuseOld(150_000)).not.toThrow()
  })
})
