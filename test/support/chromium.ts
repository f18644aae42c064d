import { existsSync } from 'node:fs'
import { describe } from '@jest/globals'
import { type Browser, chromium } from 'playwright-core'

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium'

const isThere = existsSync(CHROMIUM)
if (!isThere) {
  const reason = `browser tests need Chromium at ${CHROMIUM} (apt-get install chromium, or set CHROMIUM)`
  if (process.env.REQUIRE_BROWSER === '1') throw new Error(reason)
  process.stderr.write(`skipped: ${reason}\n`)
}

/** A group of tests in a real browser; left out, with the reason on stderr, on a machine without one. */
export const inBrowser = isThere ? describe : describe.skip

export function launchBrowser(): Promise<Browser> {
  return chromium.launch({
    executablePath: CHROMIUM,
    args: ['--no-sandbox', '--disable-gpu', '--in-process-gpu', '--disable-dev-shm-usage'],
  })
}
