import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import base from './jest.config.js'

/* The tests that need no Postgres and start no command: they run in seconds, and on every change with `npm run test:watch`. */

const folder = fileURLToPath(new URL('test/', import.meta.url))
const NEEDS_SERVER = /support\/(?:postgres|setup|cli|truth)|embedded\/|TEST_SERVER_URL|dist\//
const unit = readdirSync(folder).filter(
  (name) => name.endsWith('.test.ts') && !NEEDS_SERVER.test(readFileSync(`${folder}${name}`, 'utf8')),
)
const { globalSetup: _setup, globalTeardown: _teardown, ...rest } = base

export default { ...rest, testMatch: unit.map((name) => `<rootDir>/test/${name}`) }
