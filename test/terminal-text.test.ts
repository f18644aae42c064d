import { describe, expect, test } from '@jest/globals'
import fc from 'fast-check'
import { projectNames, shortIds } from '../src/cli/project-names.ts'
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
import { wantsColour } from '../src/core/config/variables.ts'
import { didYouMean, editDistance, printable, similarTo } from '../src/core/text.ts'

/* What goes to a terminal: characters, colours, widths, and guesses at what was meant. */

const CLIPBOARD = '\u001b]52;c;aGVsbG8=\u0007'
const OBEYED = /[^\P{Cc}\n]|[\u202a-\u202e\u2066-\u2069]/u

describe('characters that a terminal would obey', () => {
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

  test('cannot pass for our own colours, which come out only where they are wanted', () => {
    const foreign = '\u001b[31mred\u001b[39m'
    expect(toTerminal(`${good('✓')} ${foreign}`, true)).toBe('\u001b[32m✓\u001b[39m \\u001b[31mred\\u001b[39m')
    expect(toTerminal(`${good('✓')} ${foreign}`, false)).toBe('✓ \\u001b[31mred\\u001b[39m')
    expect(toTerminal(bad(`inside ${CLIPBOARD}`), true)).toBe('\u001b[31minside \\u001b]52;c;aGVsbG8=\\u0007\u001b[39m')
    expect(good('')).toBe('')
  })

  test('make no second line of a cell or a sentence', () => {
    expect(toOneLine('one\r\n  two\nthree')).toBe('one two three')
  })
})

test('colour is for terminals, unless the environment says otherwise', () => {
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

  test('leaves out what says nothing, then what matters least, then goes on in the next line', () => {
    expect(lines()[2]).toBe('brand_daily_by_prompt_model  1,234     0      1.0')
    expect(lines(45)[2]).toBe('brand_daily_by_prompt_model  1,234      1.0')
    expect(lines(40)[2]).toBe('brand_daily_by_prompt_model  1,234')
    expect(lines(30).slice(2)).toEqual(['brand_daily_by_prompt_m  1,234', 'odel'])
  })

  test('keeps a column that has a value though it is marked as one to leave out', () => {
    const text = renderTable(columns, [...rows, { name: 'b', count: 1, zero: 3 }], { width: 45 })
    expect(text.split('\n')[0]).toMatch(/^name +count +zero$/)
  })

  test('fits any width that its numbers leave room for, whatever is in it', () => {
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

  test('have short ids with as many letters as it takes to tell them apart', () => {
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

describe('what was probably meant', () => {
  test('a letter that is missing, too many, wrong or swapped counts once', () => {
    expect(['chat', 'chatss', 'chots', 'cahts'].map((word) => editDistance(word, 'chats'))).toEqual([1, 1, 1, 1])
    expect(editDistance('', 'abc')).toBe(3)
  })

  test('is the nearest name, or one that begins or ends alike, or none', () => {
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
