/// <reference lib="dom" />
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { describe } from '@jest/globals'
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core'
import { closeLater } from './close-later.ts'

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium'

const isThere = existsSync(CHROMIUM)
if (!isThere) {
  const reason = `browser tests need Chromium at ${CHROMIUM} (apt-get install chromium, or set CHROMIUM)`
  if (process.env.REQUIRE_BROWSER === '1') throw new Error(reason)
  process.stderr.write(`skipped: ${reason}\n`)
}

/** A group of tests in a real browser; left out, with the reason on stderr, on a machine without one. */
export const inBrowser = isThere ? describe : describe.skip

/** A real browser, with the errors and warnings that its pages logged, and what they asked of other machines. */
export interface Tabs {
  browser: Browser
  problems: string[]
  /** A page, which is used again for the same options: to open another takes more CPU time than most tests. */
  get(options?: BrowserContextOptions): Promise<Page>
}

export async function launchTabs(): Promise<Tabs> {
  const browser = await chromium.launch({
    executablePath: CHROMIUM,
    args: ['--no-sandbox', '--disable-gpu', '--in-process-gpu', '--disable-dev-shm-usage'],
  })
  closeLater(() => browser.close())
  const problems: string[] = []
  const pages = new Map<string, Page>()
  async function open(options?: BrowserContextOptions): Promise<Page> {
    const page = await browser.newPage(options)
    page.on('console', (message) => {
      if (message.type() === 'error' || message.type() === 'warning') problems.push(`${page.url()}: ${message.text()}`)
    })
    page.on('pageerror', (error) => problems.push(`${page.url()}: ${error.message}`))
    page.on('request', (request) => {
      if (!request.url().startsWith('http://127.0.0.1:')) problems.push(`asked ${request.url()}`)
    })
    return page
  }
  async function get(options?: BrowserContextOptions): Promise<Page> {
    const name = JSON.stringify(options ?? {})
    const page = pages.get(name) ?? (await open(options))
    pages.set(name, page)
    return page
  }
  return { browser, problems, get }
}

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

/** What axe finds on a page as it is. In dark colours only contrast is checked: the other rules do not depend on colours. */
export async function violationsIn(page: Page, colorScheme: 'light' | 'dark' = 'light'): Promise<string[]> {
  await page.emulateMedia({ colorScheme })
  if (await page.evaluate(() => !('axe' in window))) await page.evaluate(AXE)
  return page.evaluate(
    async (rules) => {
      const { violations } = await (window as any).axe.run({ resultTypes: ['violations'], ...rules })
      return violations.map(({ id, nodes }: any) => `${id}: ${nodes[0].html}`)
    },
    colorScheme === 'dark' ? { runOnly: ['color-contrast'] } : {},
  )
}
