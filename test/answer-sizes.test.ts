import { expect, test } from '@jest/globals'
import { InterruptedError } from '../src/core/errors.ts'
import { AnswerSizes } from '../src/sync/plan/answer-sizes.ts'

const CHATS = { name: 'chats', operation: 'chats' }

test('a longer answer is asked for once for all windows of a size', async () => {
  const answers = new AnswerSizes()
  let asked = 0
  const askForLongerRange = async () => {
    asked++
    return 900
  }
  const found = await Promise.all([1, 2, 3].map(() => answers.findLargerAnswer(CHATS, 500, askForLongerRange)))
  expect(found).toEqual([true, true, true])
  expect(asked).toBe(1)
})

test('where the window that asked for more was interrupted, the others ask for themselves', async () => {
  const answers = new AnswerSizes()
  const interrupted = answers.findLargerAnswer(CHATS, 500, () => Promise.reject(new InterruptedError('stopped')))
  const others = [1, 2].map(() => answers.findLargerAnswer(CHATS, 500, async () => 900))
  await expect(interrupted).rejects.toThrow('stopped')
  expect(await Promise.all(others)).toEqual([true, true])
  expect(await answers.findLargerAnswer(CHATS, 500, () => Promise.reject(new Error('not asked')))).toBe(true)
})
