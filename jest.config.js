import { availableParallelism } from 'node:os'

const isWatching = process.argv.some((word) => word.startsWith('--watch'))

export default {
  testEnvironment: '<rootDir>/test/support/environment.mjs',
  // Whoever watches wants changed modules to be loaded again.
  ...(isWatching ? {} : { runtime: '<rootDir>/test/support/runtime.cjs' }),
  roots: ['<rootDir>/test'],
  testMatch: ['**/*.test.ts'],
  extensionsToTreatAsEsm: ['.ts'],
  transform: {
    '^.+\\.ts$': [
      '@swc/jest',
      { jsc: { target: 'es2022', parser: { syntax: 'typescript' } }, module: { type: 'es6' } },
    ],
  },
  setupFilesAfterEnv: ['<rootDir>/test/support/close-after-tests.ts'],
  globalSetup: '<rootDir>/test/support/global-setup.ts',
  globalTeardown: '<rootDir>/test/support/global-teardown.ts',
  testTimeout: 180_000,
  // Much of a test is waiting: for a service that is slow on purpose, for limits to reset, for others to be noticed as gone.
  maxWorkers: availableParallelism() * 2,
  collectCoverageFrom: ['src/**/*.ts', '!src/main.ts'],
}
