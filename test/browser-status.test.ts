/// <reference lib="dom" />
import { beforeAll, expect, test } from '@jest/globals'
import type { BrowserContextOptions, Page } from 'playwright-core'
import { inBrowser, launchTabs, type Tabs, violationsIn } from './support/chromium.ts'
import { recountMonths } from './support/postgres.ts'
import { type Pages, startPages, until } from './support/serve.ts'
import { type Setup, setUp } from './support/setup.ts'

/* The pages about the sync in a real browser: an incident among 120 projects, a run in progress, a server that goes away. */

const TOKEN = 'a-token-for-tests'
const PHONE = { viewport: { width: 360, height: 740 }, hasTouch: true }

const dayAgo = (days: number) => new Date(Date.now() - days * 86_400_000).toISOString().slice(0, 10)

inBrowser('the status page', () => {
  let setup: Setup
  let pages: Pages
  let tabs: Tabs
  let worst: { id: string; name: string }

  beforeAll(async () => {
    setup = await setUp({
      world: { projects: 120, prompts: 1, models: 1, brands: 2 },
      config: { start_date: dayAgo(13), end_date: dayAgo(0) },
    })
    const { rows } = setup.database
    const ids = setup.projects.map(({ id }) => id)
    worst = { id: ids[87]!, name: 'Zenith running shoes' }
    const streams = ['brand_daily', 'by_model', 'by_topic', 'by_prompt', 'chats']
    const lists = ['project_profile', 'prompts', 'prompt_suggestions', 'domain_classifications']
    await rows(
      `insert into visibility_ops.coverage (project_id, stream, date, rows, read_at, run_id, state, read_order)
       select project, stream, current_date - n, 100 + n, now() - interval '4 minutes', 1, 'read', 1
       from unnest($1::text[]) project, unnest($2::text[]) stream, generate_series(0, 13) n
       union all
       select project, stream, current_date, 12, now() - interval '4 minutes', 1, 'read', 1
       from unnest($1::text[]) project, unnest($3::text[]) stream`,
      [ids, streams, lists],
    )
    await rows(
      `insert into visibility.projects (project_id, name)
       select id, case id when $2 then $3 else 'Brand ' || lpad(n::text, 3, '0') end from unnest($1::text[]) with ordinality p(id, n)
       on conflict (project_id) do update set name = excluded.name`,
      [ids, worst.id, worst.name],
    )
    await rows(
      `update visibility_ops.coverage set state = 'held', held_since = now() - interval '2 hours'
       where project_id = $1 and stream = 'chats' and date >= current_date - 1`,
      [worst.id],
    )
    await recountMonths(setup.database)
    await rows(
      `insert into visibility_ops.runs (command, started_at, ended_at, outcome, host, pid, version, source, summary)
       select 'sync', now() - interval '5 minutes', now() - interval '4 minutes', 'partial', 'host', 1, 'v', 's', $1::jsonb`,
      [
        JSON.stringify([
          {
            ...{ project_id: worst.id, stream: 'chats', days: 14, windows: 1, rows_read: 20, inserted: 0, updated: 0 },
            ...{ deleted: 0, unchanged: 20, quarantined: 2, requests: 3, retries: 1, seconds: 1, failed: [] },
            held: [{ range: `${dayAgo(1)}..${dayAgo(0)}`, rows_present: 201, rows_vanishing: 180 }],
          },
        ]),
      ],
    )
    await rows(
      `insert into visibility_ops.quarantine (project_id, stream, reason, raw, fingerprint, from_date, to_date, run_id)
       select $1, 'chats', 'model_id: expected a text, got a number', '{"id":"ch_1","model_id":7}', n::text, current_date, current_date, 1
       from generate_series(1, 2) n`,
      [ids[5]],
    )
    pages = await startPages(setup, TOKEN)
    tabs = await launchTabs()
  })

  async function open(path: string, options: BrowserContextOptions = {}, url = pages.url): Promise<Page> {
    const page = await tabs.get(options)
    await page.goto(url + path)
    return page
  }

  /** As when somebody comes back to the page: it is refreshed at once. */
  const lookAgain = (page: Page) => page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')))

  test('120 projects are a small page: the worst first, those that are well folded to a line each, and found by name', async () => {
    const sizes: number[] = []
    const page = await tabs.browser.newPage()
    page.on('response', (response) => void response.body().then((body) => sizes.push(body.length)))
    await page.goto(`${pages.url}/`)
    await page.waitForLoadState('networkidle')
    expect(sizes.length).toBeGreaterThan(3)
    expect(sizes.reduce((a, b) => a + b)).toBeLessThan(100_000)
    const lines = page.locator('.projects li')
    expect(await lines.count()).toBe(120)
    expect(await lines.first().textContent()).toContain(worst.name)
    expect(await lines.first().textContent()).toContain('chats: 2 days held')
    expect(await page.locator('#well summary').textContent()).toContain('119 projects fresh and complete')
    expect(await lines.nth(50).isVisible()).toBe(false)
    expect(await page.getByRole('heading', { name: `Coverage of ${worst.name}` }).count()).toBe(1)
    expect(await page.locator('tbody tr').count()).toBeLessThan(60)
    await page.getByLabel('Search projects').fill('brand 042')
    await until(async () => (await page.locator('.projects li:visible').count()) === 1)
    expect(await page.locator('.projects li:visible').allTextContents()).toEqual([expect.stringContaining('Brand 042')])
    await page.close()
    const plain = await open('/', { javaScriptEnabled: false })
    await plain.getByLabel('Search projects').fill('BRAND 04')
    await plain.getByRole('button', { name: 'Search' }).click()
    await until(async () => (await plain.locator('.projects li').count()) === 10)
  })

  test('in an incident a phone shows the problem, its cause and the fix, with the red days in view', async () => {
    const page = await open('/', PHONE)
    const link = page.locator('.verdict a', { hasText: '1 range held' })
    await link.click()
    const card = page.locator('#needs-held')
    expect(await card.textContent()).toContain('would have deleted most or all rows')
    expect(await card.locator('code').textContent()).toContain('--accept-deletes')
    const right = await page
      .locator('#weeks td.held')
      .first()
      .evaluate((element) => element.getBoundingClientRect().right)
    expect(right).toBeLessThanOrEqual(360)
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(360)
  })

  test('the calendar is one tab stop with arrow keys inside, and Enter opens a day', async () => {
    const page = await open('/')
    const focused = () => page.evaluate(() => document.activeElement?.getAttribute('aria-label') ?? '')
    expect(await page.locator('#weeks [tabindex="0"]').count()).toBe(1)
    await page.locator('#weeks td[tabindex="0"]').focus()
    expect(await focused()).toMatch(new RegExp(`^chats, \\w+day ${dayAgo(0)}: held for review, 100 rows$`))
    await page.keyboard.press('ArrowDown')
    expect(await focused()).toMatch(new RegExp(`^brand_daily, \\w+day ${dayAgo(0)}: read, 100 rows$`))
    await page.keyboard.press('End')
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: dayAgo(0) }).waitFor()
    const row = page.locator('#day tr', { hasText: 'chats' })
    expect(await row.textContent()).toContain('180 of 201 rows would have vanished')
    // The address shows the same day again, and so does a page without script.
    const plain = await open(page.url().slice(pages.url.length), { javaScriptEnabled: false })
    expect(await plain.getByRole('heading', { name: dayAgo(0) }).count()).toBe(1)
  })

  test('a run in progress updates its progress, rate and estimate without a reload, and keeps typed text', async () => {
    const page = await open('/')
    await page.getByLabel('Search projects').fill('brand 1')
    const { observer, end } = pages.live.watch()
    observer.started!({ runId: 41, command: 'sync' })
    observer.planned!({ days: 100, lists: 0 })
    pages.live.runs[0]!.startedAt = new Date(Date.now() - 60_000)
    const step = { projectId: worst.id, stream: 'chats', rows: 6000, quarantined: 0, seconds: 1 }
    observer.advanced!({ ...step, days: 25, effect: { inserted: 6000, updated: 0, deleted: 0, unchanged: 0 } })
    const card = page.locator('.running')
    await card.waitFor()
    await card.filter({ hasText: /Done25 %.*Rows6,000 \d+ a second.*Time leftabout 3 min/s }).waitFor()
    expect(await page.getByRole('progressbar', { name: 'Progress of run 41' }).getAttribute('value')).toBe('0.250')
    end()
    await card.waitFor({ state: 'detached' })
    expect(await page.getByLabel('Search projects').inputValue()).toBe('brand 1')
    expect(await page.locator('.projects li:visible').count()).toBe(21)
  })

  test('a user signs in, accepts held days after a confirmation, and signs out', async () => {
    const page = await open('/')
    await page.getByRole('link', { name: 'Sign in' }).click()
    await page.getByLabel('Token').fill(TOKEN)
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByText('Let through …').click()
    await page.getByRole('button', { name: 'Read again and delete what is gone' }).click()
    await page.getByText('Nothing runs here').waitFor()
    const from = page.locator('#backfill').getByLabel('From')
    await from.fill('2026-11-01')
    for (let time = 0; time < 2; time++) {
      const answer = page.waitForResponse((response) => response.request().resourceType() === 'fetch')
      await lookAgain(page)
      await (await answer).finished()
      await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(drawn)))
    }
    expect(await page.getByText('Nothing runs here').count()).toBe(1)
    expect(await from.inputValue()).toBe('2026-11-01')
    await page.getByRole('button', { name: 'Sync now' }).first().click()
    await page.getByText('A sync has begun.').waitFor()
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByRole('link', { name: 'Sign in' }).waitFor()
    expect(await page.getByText('Let through …').count()).toBe(0)
  })

  test('the page shows in red that the server is down, and continues when it is back', async () => {
    const page = await tabs.browser.newPage()
    await page.goto(`${pages.url}/`)
    await page.route('**/*', (route) => route.abort())
    await lookAgain(page)
    await page.getByText('The server does not answer.').waitFor()
    expect(await page.locator('#gone').getAttribute('role')).toBe('alert')
    await page.locator('main.is-gone').waitFor()
    await page.unroute('**/*')
    await until(async () => await page.locator('#gone').isHidden())
    await page.close()
  })

  test('axe finds no violation on any page, and enough contrast in dark mode, and no page logs an error or requests another host', async () => {
    const paths = [`/?day=${dayAgo(0)}`, '/runs/1', '/quarantine', '/restatements', '/sign-in', '/nowhere']
    const found: string[] = []
    // A page of its own, since one of the answers is an error.
    const page = await tabs.browser.newPage()
    for (const path of paths) {
      await page.goto(pages.url + path)
      found.push(...(await violationsIn(page)).map((text) => `${path}: ${text}`))
    }
    await page.goto(`${pages.url}/`)
    found.push(...(await violationsIn(page, 'dark')))
    await page.close()
    expect(found).toEqual([])
    expect(tabs.problems).toEqual([])
  })
})
