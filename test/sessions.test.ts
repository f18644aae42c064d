import { expect, test } from '@jest/globals'
import type { FastifyRequest } from 'fastify'
import { Sessions } from '../src/web/sign-in.ts'

const HOUR = 3_600_000
/** A request of a browser that has the cookie of a session. */
const requestOf = (id: string) => ({ cookies: { visibility_session: id } }) as unknown as FastifyRequest

test('a session ends after twelve hours, however often it is used', () => {
  let now = 5 * HOUR
  const sessions = new Sessions(() => now)
  const { id, session } = sessions.begin()
  for (; now < 17 * HOUR; now += HOUR) expect(sessions.of(requestOf(id))).toBe(session)
  expect(sessions.of(requestOf(id))).toBeUndefined()
})

test('of more than a hundred sessions the oldest ends', () => {
  const sessions = new Sessions(() => 0)
  const made = Array.from({ length: 100 }, () => sessions.begin())
  expect(sessions.of(requestOf(made[0]!.id))).toBe(made[0]!.session)
  const last = sessions.begin()
  expect(sessions.of(requestOf(made[0]!.id))).toBeUndefined()
  expect([sessions.of(requestOf(made[1]!.id)), sessions.of(requestOf(last.id))]).toEqual([
    made[1]!.session,
    last.session,
  ])
})

test('a session has an id and a form field of its own, and is over once somebody signs out', () => {
  const sessions = new Sessions(() => 0)
  const [one, two] = [sessions.begin(), sessions.begin()]
  expect(new Set([one.id, one.session.csrf, two.id, two.session.csrf]).size).toBe(4)
  sessions.end(requestOf(one.id))
  expect([sessions.of(requestOf(one.id)), sessions.of(requestOf(two.id))]).toEqual([undefined, two.session])
  expect(sessions.of(requestOf(''))).toBeUndefined()
})
