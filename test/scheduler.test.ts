import { expect, test } from '@jest/globals'
import { createLog } from '../src/core/logger.ts'
import { createCron } from '../src/schedule/cron.ts'
import { Scheduler } from '../src/schedule/scheduler.ts'

const log = createLog({ level: 'silent', destination: { write: () => {} } })

/** Every time at which a cron expression fires in a range. */
function times(text: string, zone: string, from: string, to: string): string[] {
  const cron = createCron(text, zone)
  const found: string[] = []
  let at = cron.next(new Date(Date.parse(from) - 1))
  for (; at !== undefined && at < new Date(to); at = cron.next(at)) found.push(at.toISOString().slice(0, 16))
  return found
}

test('a time that the clock skips fires once, when the clock jumps', () => {
  // In Berlin, 2026-03-29 has no 02:30.
  expect(times('30 2 * * *', 'Europe/Berlin', '2026-03-28T00:00Z', '2026-03-31T00:00Z')).toEqual([
    '2026-03-28T01:30',
    '2026-03-29T01:00',
    '2026-03-30T00:30',
  ])
})

test('a time that occurs twice fires once', () => {
  // In Berlin, 2026-10-25 has 02:30 twice.
  expect(times('30 2 * * *', 'Europe/Berlin', '2026-10-24T00:00Z', '2026-10-27T00:00Z')).toEqual([
    '2026-10-24T00:30',
    '2026-10-25T00:30',
    '2026-10-26T01:30',
  ])
})

test('the next and the last time are computed, also far ahead', () => {
  expect(createCron('0 0 29 2 *', 'UTC').next(new Date('2097-01-01'))).toEqual(new Date('2104-02-29T00:00:00Z'))
  const berlin = createCron('30 2 * * *', 'Europe/Berlin')
  expect(berlin.next(new Date('2026-03-29T00:00:00Z'))).toEqual(new Date('2026-03-29T01:00:00Z'))
  expect(berlin.next(new Date('2026-03-29T01:00:00Z'))).toEqual(new Date('2026-03-30T00:30:00Z'))
  expect(berlin.previous(new Date('2026-03-29T01:00:00Z'))).toEqual(new Date('2026-03-28T01:30:00Z'))
})

/** A scheduler under a clock that is moved by hand, with duties that end when they are told to. */
function byHand(start: string, crons: Record<string, string>, zone = 'UTC', jitterMs = 0) {
  let now = Date.parse(start)
  const started: string[] = []
  let end: (() => void)[] = []
  let most = 0
  let working = 0
  const duties = Object.entries(crons).map(([name, text]) => ({
    name,
    cron: createCron(text, zone),
    work: async () => {
      started.push(`${name} ${new Date(now).toISOString().slice(11, 16)}`)
      working++
      most = Math.max(most, working)
      await new Promise<void>((done) => end.push(done))
      working--
    },
  }))
  const scheduler = new Scheduler(duties, { clock: () => new Date(now), log, jitterMs, random: () => 0.5 })
  return {
    scheduler,
    started,
    most: () => most,
    /** Lets the clock run to a time, second by second as far as anyone can tell. */
    async until(time: string, endAll = true) {
      for (; now < Date.parse(time); now += 1000) {
        scheduler.tick()
        if (endAll) await finish()
      }
      scheduler.tick()
      if (endAll) await finish()
    },
    finish,
    /** Sets the clock, as a person or a time server does. */
    set(time: string) {
      now = Date.parse(time)
    },
  }
  async function finish() {
    const ends = end
    end = []
    for (const done of ends) done()
    for (let turn = 0; turn < 5; turn++) await Promise.resolve()
  }
}

test('driven through a change of daylight saving, every run happens once', async () => {
  const hand = byHand('2026-03-28T22:00:00Z', { sync: '15 * * * *', audit: '30 2 * * *' }, 'Europe/Berlin')
  await hand.until('2026-03-29T04:00:00Z')
  expect(hand.started.filter((text) => text.startsWith('audit'))).toEqual(['audit 01:00'])
  expect(hand.started.filter((text) => text.startsWith('sync')).length).toBe(6)
  expect(hand.most()).toBe(1)
})

test('a scheduled job never overlaps itself, and another one waits for its turn once', async () => {
  const hand = byHand('2026-03-01T00:00:00Z', { sync: '* * * * *', audit: '2 * * * *' })
  await hand.until('2026-03-01T00:05:30Z', false)
  expect(hand.started).toEqual(['sync 00:01'])
  await hand.finish()
  expect(hand.started).toEqual(['sync 00:01', 'audit 00:05'])
  await hand.finish()
  await hand.until('2026-03-01T00:06:00Z')
  expect(hand.started).toEqual(['sync 00:01', 'audit 00:05', 'sync 00:06'])
  expect(hand.most()).toBe(1)
})

test('a clock that steps back does not stop the schedule, and the next time follows the new clock', async () => {
  const hand = byHand('2026-03-01T12:00:00Z', { sync: '15 * * * *' })
  await hand.until('2026-03-01T12:20:00Z')
  expect(hand.scheduler.next('sync')).toEqual(new Date('2026-03-01T13:15:00Z'))
  hand.set('2026-03-01T11:20:00Z')
  expect(hand.scheduler.next('sync')).toEqual(new Date('2026-03-01T12:15:00Z'))
  await hand.until('2026-03-01T13:20:00Z')
  expect(hand.started).toEqual(['sync 12:15', 'sync 12:15', 'sync 13:15'])
})

test('stopping waits for the run in progress and starts no other', async () => {
  const hand = byHand('2026-03-01T00:00:00Z', { sync: '* * * * *', audit: '* * * * *' })
  await hand.until('2026-03-01T00:01:00Z', false)
  let stopped = false
  const stopping = hand.scheduler.stop().then(() => {
    stopped = true
  })
  await Promise.resolve()
  expect(stopped).toBe(false)
  await hand.finish()
  await stopping
  expect(hand.started).toEqual(['sync 00:01'])
  expect(hand.scheduler.tryRun('backfill', async () => {})).toBe(false)
})
