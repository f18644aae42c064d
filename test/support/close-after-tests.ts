import { afterAll, afterEach, beforeEach } from '@jest/globals'
import { beginTest, endFile, endTest } from './close-later.ts'

beforeEach(beginTest)
afterEach(endTest)
afterAll(endFile)
