// A picture of the dashboard in a Superset that test/acceptance/superset.sh runs.
import { chromium } from 'playwright-core'

const [base, file] = process.argv.slice(2)
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox'],
})
const page = await browser.newPage({ viewport: { width: 1400, height: 1500 } })
await page.goto(`${base}/login/`)
await page.fill('input[name=username], #username', 'admin')
await page.fill('input[name=password], #password', process.env.SUPERSET_ADMIN_PASSWORD)
await page.keyboard.press('Enter')
await page.waitForURL((url) => !url.pathname.includes('login'), { timeout: 60_000 })
await page.goto(`${base}/superset/dashboard/1/`)
await page.waitForSelector('[data-test="grid-content"] canvas', { timeout: 120_000 })
await page.waitForFunction(
  () => document.querySelectorAll('.loading, [aria-label="Loading"]').length === 0,
  undefined,
  {
    timeout: 120_000,
  },
)
await page.waitForTimeout(5000)
await page.screenshot({ path: file })
await browser.close()
