import { PassThrough } from 'node:stream'
import { expect, test } from '@jest/globals'
import { barText, duration, lineProgress, terminalProgress } from '../src/cli/progress.ts'
import { prettyLine } from '../src/cli/session.ts'
import { renderTable, withoutStyles } from '../src/cli/table.ts'
import { createLog } from '../src/core/logger.ts'
import { createRedactor } from '../src/core/redactor.ts'
import { refuseOld } from '../src/warehouse/connect.ts'

test('the bar shows share, rows, rate and time left', () => {
  const text = barText({ total: 200, done: 50, rows: 12_000, current: 'chats', elapsedMs: 10_000 })
  expect(text).toBe('██████░░░░░░░░░░░░░░░░░░  25 %  12,000 rows  1,200/s  30 s left  chats')
  expect(barText({ total: 200, done: 0, rows: 0, current: '', elapsedMs: 10 })).toContain('starting')
  // Behind the last window the run still has work to do.
  expect(barText({ total: 200, done: 230, rows: 9, current: 'chats', elapsedMs: 9000 })).toContain(
    '99 %  9 rows  1/s  finishing',
  )
  expect([duration(0.2), duration(600), duration(9000)]).toEqual(['1 s', '10 min', '2.5 h'])
})

const NOTHING = { effect: { inserted: 0, updated: 0, deleted: 0, unchanged: 0 }, quarantined: 0, seconds: 1 }

test('lines are written above the bar, and nothing is left of it in the end', () => {
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

test('a line for people has few fields: what is zero and the run are left out, ids are short', () => {
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

test('a log line loses every secret, wherever it stands', () => {
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
