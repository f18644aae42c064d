import { setImmediate } from 'node:timers/promises'
import { expect, test } from '@jest/globals'
import { Pace } from '../src/web/pace.ts'

test('so many requests at once go ahead, the others take turns, and after a pause it begins anew', async () => {
  let now = 0
  const pace = new Pace({ gapMs: 20, burst: 3, monotonic: () => now })
  const done: number[] = []
  const ask = (number: number) => pace.turn().then(() => done.push(number))
  const first = [1, 2, 3, 4, 5].map(ask)
  await setImmediate()
  expect(done).toEqual([1, 2, 3])
  await Promise.all(first)
  expect(done).toEqual([1, 2, 3, 4, 5])
  now = 10_000
  const second = [6, 7, 8, 9].map(ask)
  await setImmediate()
  expect(done.slice(5)).toEqual([6, 7, 8])
  await Promise.all(second)
})
