import { afterAll, beforeAll, expect, test } from '@jest/globals'
import type { Browser, Page } from 'playwright-core'
import { DEFAULT_REPORTS } from '../src/core/config/schema.ts'
import { inBrowser, launchBrowser } from './support/chromium.ts'
import { type RunningCli, startCli } from './support/cli.ts'
import { get, until } from './support/serve.ts'
import { type Setup, setUp } from './support/setup.ts'

/* The pages in a real browser, on synced data. */

inBrowser('the pages', () => {
  let setup: Setup
  let running: RunningCli
  let browser: Browser
  let url: string
  const problems: string[] = []

  beforeAll(async () => {
    setup = await setUp({
      world: { projects: 2, prompts: 8, models: 3, brands: 4 },
      config: { start_date: '2026-02-01', end_date: '2026-03-31', reports: DEFAULT_REPORTS },
    })
    const own = setup.service.world.projects.map(({ brands }) => [brands.at(-1)!.id, { own: true }])
    const never = '0 0 1 1 *'
    running = startCli(['serve', '--port', '0'], {
      env: setup.env,
      config: {
        ...setup.fileConfig,
        labels: { brands: Object.fromEntries(own) },
        schedule: { cron: never, audit_cron: never },
      },
    })
    await running.saw('run ended')
    url = /Serving: +(\S+)/.exec(running.output())![1]!
    const [project] = setup.service.world.projects
    await setup.database.rows(
      `update visibility_ops.coverage set state = case date when '2026-03-10' then 'held' when '2026-03-11' then 'quarantined' else 'stale' end
       where project_id = $1 and stream = 'chats' and date between '2026-03-10' and '2026-03-12'`,
      [project!.id],
    )
    await setup.database.rows(
      "delete from visibility_ops.coverage where project_id = $1 and stream = 'chats' and date = '2026-03-13'",
      [project!.id],
    )
    await setup.database.rows(
      `insert into visibility_ops.restatements (project_id, stream, date, rows_inserted, rows_updated, rows_deleted, run_id)
       values ($1, 'chats', '2026-03-14', 1, 2, 0, 1)`,
      [project!.id],
    )
    await until(async () => (await get(`${url}/api/status`)).text.includes('held'))
    browser = await launchBrowser()
  })
  afterAll(async () => {
    await browser?.close()
    running?.stop()
    await running?.done
    await setup?.close()
  })

  /** Opens a page, and notes every error and every request to another host. */
  async function open(path: string, options: Parameters<Browser['newPage']>[0] = {}): Promise<Page> {
    const page = await browser.newPage(options)
    page.on('console', (message) => {
      if (message.type() === 'error' || message.type() === 'warning') problems.push(message.text())
    })
    page.on('pageerror', (error) => problems.push(error.message))
    page.on('request', (request) => {
      if (!request.url().startsWith(url)) problems.push(`asked ${request.url()}`)
    })
    await page.goto(url + path)
    return page
  }

  test('the status page tells at a glance what needs a look', async () => {
    const page = await open('/')
    expect(await page.locator('.verdict').textContent()).toContain('Needs a look')
    expect(await page.locator('h1').textContent()).toBe('Status')
    for (const title of ['What needs a look', 'Projects', 'Last runs'])
      expect(await page.getByRole('heading', { name: title, exact: true }).count()).toBe(1)
    expect(await page.getByRole('region', { name: 'Last runs' }).getByText('complete').count()).toBeGreaterThan(0)
    await page.close()
  })

  test('each cell of the calendar has its state, and tells rows, time and run when it is chosen', async () => {
    const page = await open('/')
    const row = page.locator('.calendar tbody tr', { has: page.getByText('chats', { exact: true }) })
    const stateOf = async (day: string) =>
      (await row.locator(`[data-day="${day}"]`).getAttribute('class'))!.split(' ')[1]
    expect(await Promise.all(['09', '10', '11', '12', '13', '14'].map((day) => stateOf(`2026-03-${day}`)))).toEqual([
      'read',
      'held',
      'quarantined',
      'stale',
      'missing',
      'restated',
    ])
    const cell = row.locator('[data-day="2026-03-09"]')
    expect(await cell.getAttribute('aria-label')).toMatch(/^chats, Monday 2026-03-09: read, \d+ rows$/)
    await cell.click()
    const detail = page.getByRole('region', { name: 'Streams on 2026-03-09' }).locator('tr', { hasText: 'chats' })
    await detail.filter({ hasText: /chatsread\d+\d+ (s|min) ago\d+/ }).waitFor()
    await page.waitForURL(/day=2026-03-09/)
    await row.locator('[data-day="2026-03-14"]').click()
    const changed = page.getByRole('region', { name: 'Streams on 2026-03-14' }).locator('tr', { hasText: 'chats' })
    await changed.filter({ hasText: '1 new, 2 changed (run 1)' }).waitFor()
    await page.close()
  })

  test('the other project and another range can be chosen, without any script', async () => {
    const page = await open('/', { javaScriptEnabled: false })
    const other = setup.service.world.projects[1]!
    await page.locator('select[name="project"]').selectOption(other.id)
    await page.getByLabel('Up to').fill('2026-03-15')
    await page.getByRole('button', { name: 'Show' }).click()
    await page.waitForURL((address) => address.searchParams.get('project') === other.id)
    expect(await page.locator('.calendar [data-day="2026-03-16"]').count()).toBe(0)
    expect(await page.locator('.calendar .cell.held').count()).toBe(0)
    expect(await page.locator('select[name="project"]').inputValue()).toBe(other.id)
    await page.close()
  })

  test('a long name of a project wraps, and a calendar without a gap is folded', async () => {
    const [, other] = setup.service.world.projects
    const long = `${'Fernweh'.repeat(14)} and ${'long names '.repeat(12)}`
    await setup.database.rows('update visibility.projects set name = $2 where project_id = $1', [other!.id, long])
    await until(async () => (await get(`${url}/`)).text.includes(long))
    for (const path of ['/', `/?project=${other!.id}`, `/insights?project=${other!.id}`, '/quarantine', '/nothing']) {
      const page = await open(path, { viewport: { width: 390, height: 844 } })
      expect([path, await page.evaluate(() => document.documentElement.scrollWidth)]).toEqual([path, 390])
      await page.close()
    }
    const page = await open(`/?project=${other!.id}`)
    const fold = page.locator('#days-by-stream')
    expect(await fold.locator('#weeks').isVisible()).toBe(false)
    await fold.locator('summary').click()
    expect(await fold.locator('#weeks').isVisible()).toBe(true)
    await page.close()
    problems.splice(0, problems.length, ...problems.filter((text) => !text.includes('404')))
    await setup.database.rows('update visibility.projects set name = $2 where project_id = $1', [other!.id, other!.id])
  })

  test('dark mode is dark, and texts keep their contrast in both', async () => {
    for (const colorScheme of ['light', 'dark'] as const) {
      const page = await open('/', { colorScheme })
      const weak = await page.evaluate(() => {
        const channel = (value: number) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
        const luminance = (text: string) => {
          const [red = 0, green = 0, blue = 0] = (text.match(/[\d.]+/g) ?? []).map((part) =>
            channel(Number(part) / 255),
          )
          return 0.2126 * red + 0.7152 * green + 0.0722 * blue
        }
        const ground = (element: Element | null): string => {
          for (let at = element; at !== null; at = at.parentElement) {
            const colour = getComputedStyle(at).backgroundColor
            if (!colour.endsWith(', 0)') && colour !== 'transparent') return colour
          }
          return 'rgb(255, 255, 255)'
        }
        return [...document.querySelectorAll('p, td, th, dt, dd, a, h1, h2, h3, li, label, footer, span, button')]
          .filter((element) => (element.textContent ?? '').trim() !== '')
          .map((element) => {
            const [a, b] = [luminance(getComputedStyle(element).color), luminance(ground(element))]
            return {
              name: `${element.tagName}.${element.className}`,
              contrast: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05),
            }
          })
          .filter(({ contrast }) => contrast < 4.5)
          .map(({ name, contrast }) => `${name} ${contrast.toFixed(1)}`)
      })
      expect([...new Set(weak)]).toEqual([])
      const body = await page.evaluate(() => getComputedStyle(document.body).backgroundColor)
      expect(body).toBe(colorScheme === 'dark' ? 'rgb(11, 15, 20)' : 'rgb(246, 247, 249)')
      await page.close()
    }
  })

  test("on a phone's width nothing makes the page wider than the screen", async () => {
    for (const path of ['/', '/?day=2026-03-10', '/insights', '/runs/1', '/quarantine', '/restatements']) {
      const page = await open(path, { viewport: { width: 360, height: 740 } })
      const width = await page.evaluate(() => document.documentElement.scrollWidth)
      expect(width).toBeLessThanOrEqual(360)
      await page.close()
    }
  })

  test('the keyboard reaches the pages and the content, and every control has a name', async () => {
    const page = await open('/')
    await page.keyboard.press('Tab')
    expect(await page.evaluate(() => document.activeElement?.textContent)).toBe('Skip to the content')
    const nameless = await page.locator('button, input, select, a').evaluateAll((elements) =>
      elements
        .filter((element) => {
          const labelled = (element as HTMLInputElement).labels?.length ?? 0
          return (element.getAttribute('aria-label') ?? element.textContent ?? '').trim() === '' && labelled === 0
        })
        .map((element) => element.outerHTML),
    )
    expect(nameless).toEqual([])
    await page.close()
  })

  test('no page logged an error or asked another host', () => {
    expect(problems).toEqual([])
  })
})
