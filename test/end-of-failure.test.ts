import { expect, test } from '@jest/globals'
import type { FailureCode } from '../src/core/failure-code.ts'
import { endOfFailure } from '../src/queue/end-of-failure.ts'

const ANSWERED = { 200: 1 }
const SILENT = { none: 3 }

test.each<[FailureCode, ReturnType<typeof endOfFailure>['end'], boolean]>([
  ['run-over', 'discard', false],
  ['interrupted', 'release', false],
  ['key', 'return', true],
  ['project', 'return', true],
  ['project-down', 'return', false],
  ['operation-down', 'return', false],
  ['service-down', 'release', true],
  ['refused', 'report', false],
  ['superseded', 'report', false],
  ['incomplete', 'retry', false],
  ['bad-page', 'retry', false],
  ['transient', 'retry', false],
  ['error', 'retry', false],
])('a window that fails as %s: %s', (code, end, backsOff) => {
  expect(endOfFailure({ code }, 0, ANSWERED)).toEqual({ end, backsOff })
})

test('the third failure of a window is reported', () => {
  expect(endOfFailure({ code: 'transient' }, 1, ANSWERED).end).toBe('retry')
  expect(endOfFailure({ code: 'transient' }, 2, ANSWERED).end).toBe('report')
})

test('a worker that got no answer at all is at fault, unless the service took its request', () => {
  expect(endOfFailure({ code: 'transient' }, 2, SILENT)).toEqual({ end: 'release', backsOff: true })
  expect(endOfFailure({ code: 'transient', isUnanswered: true }, 0, SILENT)).toEqual({ end: 'retry', backsOff: false })
})
