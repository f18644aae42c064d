import { describe, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { toOneLine } from '../src/cli/table.ts'
import { shownText } from '../src/core/config/describe-issue.ts'
import { configSchema } from '../src/core/config/schema.ts'
import { cleanError, plainError, realStack } from '../src/core/errors.ts'
import { createLog } from '../src/core/logger.ts'
import { createRedactor, REDACTED } from '../src/core/redactor.ts'
import { clip } from '../src/core/text.ts'
import { sized } from './support/long.ts'

const KEY = 'sk-Live/7f3a+"9z=~Q\'x é'

describe('a secret is taken out in every form in which a text can repeat it', () => {
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

test('a text that was cut in the middle of a secret shows no beginning of it', () => {
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

test('a short secret counts only where it stands alone, and three characters never do', () => {
  const redactor = createRedactor(['abc', 'pass', 'day'])
  expect(redactor.text('the password of abc passes, each day')).toBe('the password of abc passes, each day')
  expect(redactor.text('got "pass": pass')).toBe(`got "${REDACTED}": ${REDACTED}`)
})

test('a password in an address is taken out though nobody told of it', () => {
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

test('what holds no secret is not touched, whatever it is', () => {
  const redactor = createRedactor(['sk-live-1234567890abcdef', 'hunter2'])
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme' }), fc.jsonValue(), (text, value) => {
      expect(redactor.text(text)).toBe(text)
      expect(redactor.value(value)).toEqual(value)
    }),
  )
})

test('no secret survives in any text around it, and what is around it does', () => {
  const secret = fc.string({ unit: 'binary', minLength: 8, maxLength: 40 }).map((text) => text.toWellFormed())
  // Neither a cut nor an address: these are told apart above.
  const around = fc.string().filter((text) => !/[…:]/.test(text))
  fc.assert(
    fc.property(secret, around, around, (key, before, after) => {
      const redactor = createRedactor([key])
      const clean = redactor.text(`${before}\n${key}\n${after}`)
      if (!REDACTED.includes(key)) expect(clean).not.toContain(key)
      expect(JSON.stringify(redactor.value({ a: [`${before}${key}`] }))).not.toContain(JSON.stringify(key).slice(1, -1))
    }),
    { numRuns: sized(10, 100) },
  )
})

test('secrets that are added later are known to everything that was made before', () => {
  const redactor = createRedactor()
  const lines: string[] = []
  const log = createLog({ level: 'info', redactor, destination: { write: (line: string) => void lines.push(line) } })
  redactor.add(['learned-later', undefined])
  log.info('has learned-later in it')
  expect(lines.join()).not.toContain('learned-later')
})

test('an error is logged by its words alone, without the request that it carries', () => {
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

test('an error is cleaned with its stack and its causes, and one whose message cannot be set does not stand in the way', () => {
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
