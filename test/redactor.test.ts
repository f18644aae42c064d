import { describe, expect, test } from '@jest/globals'
import { createRedactor, REDACTED } from '../src/core/redactor.ts'

const R = REDACTED

describe('a secret is removed as far as it goes', () => {
  // Each way changes a character of its own, so that no other form of the secret is found by chance.
  test.each([
    ['as it is', 'sk-live-7f3a', 'sk-live-7f3a'],
    ['in capitals', 'sk-live-7f3a', 'SK-LIVE-7F3A'],
    ['in CSV', 'sk-live"7f3a', 'sk-live""7f3a'],
    ['in SQL', "sk-live'7f3a", "sk-live''7f3a"],
    ['in SQL with backslashes', "sk-live'7f3a", "sk-live\\'7f3a"],
    ['in HTML', 'sk-<live>&\'"7f3a', 'sk-&lt;live&gt;&amp;&#39;&quot;7f3a'],
    ['in JSON', 'sk-live\\7f"3a', 'sk-live\\\\7f\\"3a'],
    ['in JSON in JSON', 'sk-live\\7f"3a', 'sk-live\\\\\\\\7f\\\\\\"3a'],
    ['in JSON of ASCII', 'sk-livé-7f3a', 'sk-liv\\u00e9-7f3a'],
    ['in a part of an address', 'sk live/7f3a', 'sk%20live%2F7f3a'],
    ['in an address', 'sk live/7f3a', 'sk%20live/7f3a'],
    ['in a form', 'sk live!7f3a', 'sk+live%217f3a'],
    ['in a form with %20', 'sk live!7f3a', 'sk%20live%217f3a'],
    ['decoded', 'sk-live%2F7f3a', 'sk-live/7f3a'],
    ['in hex', 'sk-live-7f3a', '736b2d6c6976652d37663361'],
  ])('%s', (_, secret, form) => {
    expect(createRedactor([secret]).text(`before ${form} after`)).toBe(`before ${R} after`)
    expect(createRedactor([secret]).text(form)).toBe(R)
  })

  test.each([0, 1, 2])('in base64 and base64url, %i bytes after three others', (bytes) => {
    const secret = '~~~???>>>ÿÿ~~?>?~'
    const all = Buffer.from(`${'x'.repeat(bytes)}${secret}y`)
    expect(all.toString('base64url')).toMatch(/-.*_|_.*-/)
    for (const encoding of ['base64', 'base64url'] as const) {
      const [before, after, more] = createRedactor([secret]).text(all.toString(encoding)).split(R)
      // The characters at both ends depend on the text around the secret, too.
      expect([more, before!.length]).toEqual([undefined, Math.ceil((bytes * 8) / 6)])
      expect(after!.replaceAll('=', '').length).toBeLessThanOrEqual(2)
    }
  })
})

test('of two secrets, one of which begins as the other, the longer one is removed as a whole', () => {
  const [short, long] = ['sk-live-7f3a', 'sk-live-7f3a-and-more']
  for (const secrets of [
    [short, long],
    [long, short],
  ])
    expect(createRedactor(secrets).text(`${long}, ${short}, ${short}-and-less`)).toBe(`${R}, ${R}, ${R}-and-less`)
})

test('secrets that touch are each removed, wherever in the text', () => {
  const redactor = createRedactor(['first-secret', 'other-secret'])
  expect(redactor.text('first-secretother-secret')).toBe(`${R}${R}`)
  expect(redactor.text('other-secretx first-secret')).toBe(`${R}x ${R}`)
})

test('a secret that is added later is removed, and a text without one is the same text', () => {
  const redactor = createRedactor([undefined, ''])
  expect(redactor.text('late-secret')).toBe('late-secret')
  redactor.add(['late-secret'])
  expect(redactor.text('late-secret')).toBe(R)
  expect(redactor.text('late-secre')).toBe('late-secre')
})

test('letters whose small form is longer move nothing', () => {
  expect(createRedactor(['İSTANBUL-key']).text('İİ İSTANBUL-key İ')).toBe(`İİ ${R} İ`)
})

test('a short secret is no part of a word, of any script, and is not looked for where a text was cut', () => {
  const redactor = createRedactor(['pass', 'seven77', 'eight888'])
  expect(redactor.text('pass')).toBe(R)
  expect(redactor.text('épass passé 1pass pass1 (pass) seven77x')).toBe(`épass passé 1pass pass1 (${R}) seven77x`)
  expect(redactor.text('seven7… eight8…')).toBe(`seven7… ${R}…`)
})

test('an encoded form counts anywhere from eight characters on', () => {
  const redactor = createRedactor(['ab"cdef', 'a"bcde'])
  expect(redactor.text('xab\\"cdefx xa\\"bcdex')).toBe(`x${R}x xa\\"bcdex`)
})

describe('a password in an address is removed', () => {
  test.each([
    ['postgresql://ann:p:w/x@h/d', `postgresql://ann:${R}@h/d`],
    ['https://ann:one@h/a and https://bob:two@h/b', `https://ann:${R}@h/a and https://bob:${R}@h/b`],
    ['https://ann@h/a:b', 'https://ann@h/a:b'],
    ['https://h/a:b@c', 'https://h/a:b@c'],
    ['mail ann@example.com', 'mail ann@example.com'],
    ['a@b is at http://h:80', 'a@b is at http://h:80'],
  ])('%s', (text, expected) => {
    expect(createRedactor().text(text)).toBe(expected)
  })
})

describe('JSON', () => {
  const redactor = createRedactor(['12345678', 'some-secret'])

  test('keeps its last line end, and its indent if one is asked for', () => {
    expect(redactor.json('{"a": "some-secret"}\n')).toBe(`{"a":"${R}"}\n`)
    expect(redactor.json('{"a": ["some-secret"]}', 1)).toBe(`{\n "a": [\n  "${R}"\n ]\n}`)
    expect(redactor.json('{ "a": 1 }\n', 1)).toBe('{ "a": 1 }\n')
  })

  test('that is none is redacted as a text', () => {
    expect(redactor.json('{"a": some-secret, 12345678\n')).toBe(`{"a": ${R}, ${R}\n`)
  })

  test('in values: texts and names at any depth, and nothing of objects with a class', () => {
    const at = new Date(0)
    const bare = Object.assign(Object.create(null), { 'some-secret': ['some-secret'] })
    const value = { list: [[{ 'some-secret': 'some-secret' }]], number: 12345678, nothing: null, at, bare }
    expect(redactor.value(value)).toEqual({
      list: [[{ [R]: R }]],
      number: 12345678,
      nothing: null,
      at,
      bare: { [R]: [R] },
    })
    expect(redactor.value(value).at).toBe(at)
  })
})
