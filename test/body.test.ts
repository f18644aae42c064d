import { setImmediate } from 'node:timers/promises'
import { expect, test } from '@jest/globals'
import { Body, BodyMemory } from '../src/source/body.ts'

test('large answers are read one after the other, and one that is given up does not let the next in early', async () => {
  const memory = new BodyMemory()
  const bodyOf = () => new Body(memory, 1e9)
  const [first, second, third] = [bodyOf(), bodyOf(), bodyOf()]
  const order: string[] = []
  await first.takeTurn(undefined)
  const stop = new AbortController()
  const givenUp = second.takeTurn(stop.signal).catch((error: Error) => order.push(error.message))
  const waiting = third.takeTurn(undefined).then(() => order.push('third'))
  stop.abort()
  await givenUp
  second.release()
  await setImmediate()
  expect(order).toEqual(['asked to stop while waiting'])
  first.release()
  await waiting
  third.release()
  expect(order).toEqual(['asked to stop while waiting', 'third'])
})
