import { expect, test } from '@jest/globals'
import { type FailureCode, failureCodeOf } from '../src/core/failure-code.ts'
import { endOfFailure } from '../src/queue/end-of-failure.ts'
import { withRetries } from '../src/warehouse/retry.ts'

const ANSWERED = { failures: 0, statuses: { 200: 1 }, isRevoked: false }
const SILENT = { failures: 0, statuses: { none: 3 }, isRevoked: false }

test.each<[FailureCode, ReturnType<typeof endOfFailure>['end'], boolean]>([
  ['run-over', 'discard', false],
  ['interrupted', 'release', false],
  ['key', 'return', true],
  ['project', 'return', true],
  ['project-down', 'return', false],
  ['operation-down', 'return', false],
  ['service-down', 'release', true],
  ['database-away', 'release', true],
  ['refused', 'report', false],
  ['superseded', 'report', false],
  ['incomplete', 'retry', false],
  ['bad-page', 'retry', false],
  ['transient', 'retry', false],
  ['error', 'retry', false],
])('a window that fails as %s: %s', (code, end, backsOff) => {
  expect(endOfFailure(code, ANSWERED)).toEqual({ end, backsOff })
})

test('the third failure of a window is reported', () => {
  expect(endOfFailure('transient', { ...ANSWERED, failures: 1 }).end).toBe('retry')
  expect(endOfFailure('transient', { ...ANSWERED, failures: 2 }).end).toBe('report')
})

test('a worker that got no answer at all is at fault', () => {
  expect(endOfFailure('transient', { ...SILENT, failures: 2 })).toEqual({ end: 'release', backsOff: true })
})

test('a window that was taken from a worker which got nowhere with it counts as lost', () => {
  expect(endOfFailure('interrupted', { ...ANSWERED, isRevoked: true })).toEqual({
    end: 'lose',
    backsOff: false,
  })
})

test('a server without free connections is away: its error is not the fault of the window', async () => {
  const full = Object.assign(new Error('sorry, too many clients already'), { code: '53300' })
  const failed = withRetries({ patienceMs: 0 }, undefined, () => Promise.reject(full))
  expect(failureCodeOf(await failed.catch((error: unknown) => error))).toBe('database-away')
})
