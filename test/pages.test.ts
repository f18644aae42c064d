import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { addDays } from '../src/core/day.ts'
import { lineChart } from '../src/web/insights/line-chart.ts'
import type { ChartRow, ComparedRow } from '../src/web/insights/rows.ts'
import { chartData } from '../src/web/insights/series.ts'
import { type RunningCli, startCli } from './support/cli.ts'
import { NEVER, until } from './support/serve.ts'
import { NO_LIMIT, type Setup, setUp } from './support/setup.ts'

describe('pages for people who signed in', () => {
  /* Signing in on the pages, and what people who did can do there: the real command, asked as a browser asks. */

  const TOKEN = 'a-token-for-tests'
  let setup: Setup
  let running: RunningCli
  let url: string
  let project: string
  let cookie = ''

  beforeAll(async () => {
    setup = await setUp({
      world: { projects: 1, prompts: 6, models: 2, brands: 3 },
      faults: { ...NO_LIMIT, malformed: 0.02 },
      config: { streams: ['prompts', 'chats'], reports: [{ name: 'brand_daily', dimensions: ['date'] }] },
    })
    project = setup.projects[0]!.id
    running = startCli(['serve', '--port', '0'], {
      env: { ...setup.env, VISIBILITY_TOKEN: TOKEN },
      config: { ...setup.fileConfig, schedule: { cron: NEVER, audit_cron: NEVER } },
    })
    await running.saw('run ended')
    url = /Serving: +(\S+)/.exec(running.output())![1]!
    await idle()
    cookie = cookieIn(await post('/sign-in', { token: TOKEN }))
  })

  /** Waits until every run that has begun is closed. */
  async function idle(): Promise<void> {
    await until(async () => (await count('visibility_ops.runs where outcome is null')) === 0)
  }

  /** Begins a run by a form. A run is closed in the ledger a moment before it gives its turn away. */
  async function begin(action: string, fields: Record<string, string>): Promise<string> {
    let to = ''
    await until(async () => {
      const { headers } = await post(`/actions/${action}`, { csrf: await csrf(), ...fields })
      to = headers.get('location')!
      return to.startsWith('/runs/')
    })
    return to
  }

  async function page(path: string, headers: Record<string, string> = { cookie }) {
    const response = await fetch(url + path, { headers, redirect: 'manual' })
    return { status: response.status, text: await response.text(), headers: response.headers }
  }

  async function post(path: string, fields: Record<string, string>, headers: Record<string, string> = {}) {
    const response = await fetch(url + path, {
      method: 'POST',
      body: new URLSearchParams(fields),
      headers: { cookie, ...headers },
      redirect: 'manual',
    })
    return { status: response.status, text: await response.text(), headers: response.headers }
  }

  const cookieIn = ({ headers }: { headers: Headers }) => headers.get('set-cookie')!.split(';')[0]!
  const csrfIn = (text: string) => /name="csrf" value="([^"]+)"/.exec(text)?.[1] ?? ''
  const csrf = async () => csrfIn((await page('/')).text)
  const runs = () =>
    setup.database.rows<{ run_id: number; command: string }>('select run_id, command from visibility_ops.runs')
  const count = async (sql: string) =>
    (await setup.database.rows<{ n: number }>(`select count(*)::int as n from ${sql}`))[0]!.n
  /** What was written to the log so far, line by line. */
  const logged = async (message: string) => {
    await running.saw(`"${message}"`)
    return message
  }

  test('without a session pages are read-only: they show commands and no forms', async () => {
    for (const path of ['/', '/quarantine', '/restatements', '/runs/1']) {
      const { status, text } = await page(path, {})
      expect([path, status]).toEqual([path, 200])
      expect(text).not.toContain('/actions/')
      expect(text).toContain('href="/sign-in"')
    }
    expect((await page('/', {})).text).toContain('visibility-sync quarantine list')
    const before = await runs()
    for (const action of ['sync', 'backfill', 'accept', 'retry', 'dismiss']) {
      const { status, headers } = await post(`/actions/${action}`, {}, { cookie: '' })
      expect([status, headers.get('location')]).toEqual([303, '/sign-in'])
    }
    expect(await runs()).toEqual(before)
  })

  test('a wrong token is refused, the right one opens a session that scripts and other sites cannot use', async () => {
    const wrong = await post('/sign-in', { token: `${TOKEN}x` })
    expect([wrong.status, wrong.headers.get('set-cookie')]).toEqual([401, null])
    const right = await post('/sign-in', { token: TOKEN })
    expect([right.status, right.headers.get('location')]).toEqual([303, '/'])
    const given = right.headers.get('set-cookie')!
    expect(given).toMatch(/^visibility_session=[\w-]{43}; Max-Age=43200; Path=\/; HttpOnly; SameSite=Strict$/)
    expect(given).not.toContain(TOKEN)
    // Behind a proxy that speaks TLS, the cookie never leaves it.
    const secure = await post('/sign-in', { token: TOKEN }, { 'x-forwarded-proto': 'https' })
    expect(secure.headers.get('set-cookie')).toContain('; Secure')
    const { text } = await page('/')
    expect(text).toContain('action="/actions/sync"')
    expect(text).not.toContain(TOKEN)
    expect(await logged('signed in')).toBe('signed in')
  })

  test('a form of another site has no effect, whatever its cookies', async () => {
    const before = await runs()
    const good = await csrf()
    for (const [fields, headers] of [
      [{}, {}],
      [{ csrf: 'x'.repeat(43) }, {}],
      [{ csrf: good }, { 'sec-fetch-site': 'cross-site' }],
    ] as [Record<string, string>, Record<string, string>][]) {
      for (const path of ['/actions/sync', '/sign-out']) {
        const { status, text } = await post(path, fields, headers)
        expect([path, fields, headers, status]).toEqual([path, fields, headers, 403])
        expect(text).toContain('did not come from a page of this session')
      }
    }
    expect((await post('/actions/sync', { csrf: good, extra: '1' })).status).toBe(400)
    expect(await runs()).toEqual(before)
    expect((await page('/')).text).toContain('Sign out')
  })

  test('the button starts a sync, and a running sync is shown', async () => {
    const before = (await runs()).length
    const began = await post('/actions/sync', { csrf: await csrf() }, { origin: url })
    expect([began.status, began.headers.get('location')]).toEqual([303, '/'])
    expect((await page('/')).text).toContain('A sync has begun.')
    // It is said once.
    expect((await page('/')).text).not.toContain('A sync has begun.')
    await until(async () => (await runs()).length === before + 1)
    expect(await logged('asked for on the page')).toBeTruthy()
    await idle()
  })

  test('a range is backfilled, invalid ranges are refused with a message, and the run has its page', async () => {
    const token = await csrf()
    for (const [fields, sentence] of [
      [{ from: '2026-02-30', to: '2026-03-01' }, 'From: got'],
      [{ from: '2026-03-01', to: '2026-03-02', project: 'or_x' }, 'project: got'],
      [{ from: '2026-03-01', to: '2026-03-02', stream: 'nonsense' }, 'nonsense'],
    ] as [Record<string, string>, string][]) {
      await post('/actions/backfill', { csrf: token, ...fields })
      const { text } = await page('/')
      expect(text.toLowerCase()).toContain(sentence.toLowerCase().replaceAll('"', '&quot;'))
    }
    const fields = { from: '2026-03-01', to: '2026-03-05', stream: 'brand_daily', project, missing: '' }
    const location = await begin('backfill', fields)
    expect((await page(location)).text).toContain('The backfill has begun.')
    await idle()
    await until(async () => (await page(location)).text.includes('complete'))
    const { text } = await page(location)
    expect(text).toContain('backfill')
    expect(text).toMatch(/<th scope="row">brand_daily<\/th><td class="n">5<\/td>/)
    expect(text).toContain('0 of them tried again')
  })

  test('days that do not add up are shown with their difference, and no longer once they were read again', async () => {
    const difference = 'brand_daily has 5 mentions, the totals have 6'
    await setup.database.rows(
      "update visibility_ops.coverage set state = 'unreconciled', difference = $1 where stream = 'brand_daily' and date = '2026-03-05'",
      [difference],
    )
    await until(async () => (await page('/')).text.includes('1 day of a stream that does not add up'))
    expect((await page('/')).text).toContain(difference)
    setup.service.setFaults(NO_LIMIT)
    await begin('backfill', { stream: 'brand_daily', project, from: '2026-03-05', to: '2026-03-05' })
    await idle()
    await until(async () => !(await page('/')).text.includes('1 day of a stream that does not add up'))
    setup.service.setFaults({ ...NO_LIMIT, malformed: 0.02 })
  })

  test('the button accepts held days, and only while they are held', async () => {
    const day = '2026-03-10'
    const rows = () => count(`visibility.chats where date = '${day}'`)
    const range = { stream: 'chats', project, from: day, to: day }
    const before = await rows()
    expect(before).toBeGreaterThan(0)
    const refused = await post('/actions/accept', { csrf: await csrf(), ...range })
    expect(refused.headers.get('location')).toBe('/')
    expect((await page('/')).text).toContain('is not held any more; nothing was done')
    setup.service.setFaults({ ...NO_LIMIT, empty: true })
    await begin('backfill', range)
    await idle()
    expect(await rows()).toBe(before)
    const { text } = await page(`/?project=${project}&to=2026-03-31&day=${day}`)
    expect(text).toContain('held for review')
    expect(text).toContain(`${before} of ${before} rows would have vanished`)
    expect(text).toContain('action="/actions/accept"')
    const command = `--from ${day} --to ${day} --stream chats --project ${project} --accept-deletes`
    await until(async () => (await page('/', {})).text.includes(command))
    // A wider range than what is held is not let through.
    await post('/actions/accept', { csrf: await csrf(), ...range, to: '2026-03-11' })
    expect((await page('/')).text).toContain('is not held any more')
    expect(await rows()).toBe(before)
    await begin('accept', range)
    await idle()
    expect(await rows()).toBe(0)
    expect(await count("visibility_ops.coverage where state = 'held'")).toBe(0)
    const restated = await page('/restatements?stream=chats')
    expect(restated.text).toContain(`${before} gone`)
    setup.service.setFaults({ ...NO_LIMIT, malformed: 0.02 })
  })

  test('quarantined rows are shown by reason with an example, retried, and dismissed with a reason', async () => {
    const open = () => count('visibility_ops.quarantine where resolved_at is null')
    const before = await open()
    expect(before).toBeGreaterThan(0)
    const { text } = await page('/quarantine')
    const id = /name="id" value="(\d+)"/.exec(text)![1]!
    expect(text).toContain('An example as it came')
    await post('/actions/retry', { csrf: csrfIn(text), id })
    expect((await page('/quarantine')).text).toContain('The backfill has begun.')
    await idle()
    expect(await open()).toBe(before)
    await post('/actions/dismiss', { csrf: csrfIn(text), id, because: ' ' })
    expect((await page('/quarantine')).text).toContain('Say why')
    expect(await open()).toBe(before)
    await post('/actions/dismiss', { csrf: csrfIn(text), id, because: 'known to the vendor' })
    expect((await page('/quarantine')).text).toMatch(/\d+ rows? dismissed/)
    expect(await open()).toBeLessThan(before)
    const dismissed = await page('/quarantine?state=dismissed')
    expect(dismissed.text).toContain('known to the vendor')
  })

  test('a bad address is refused with a message, as a page', async () => {
    for (const [path, status, sentence] of [
      ['/runs/1e3', 404, 'there is no such run'],
      ['/quarantine?state=lost', 400, 'allowed: open, dismissed'],
      ['/restatements?from=2026-03-02&to=2026-03-01', 400, 'which is after to'],
      ['/?day=2026-02-30', 400, 'day: got'],
    ] as const) {
      const answer = await page(path, {})
      expect([path, answer.status]).toEqual([path, status])
      expect(answer.headers.get('content-type')).toContain('text/html')
      expect(answer.text).toContain(sentence)
    }
  })

  test('signing out ends the session', async () => {
    const own = { cookie: cookieIn(await post('/sign-in', { token: TOKEN })) }
    const token = csrfIn((await page('/', own)).text)
    const out = await post('/sign-out', { csrf: token }, own)
    expect(out.headers.get('set-cookie')).toContain('Max-Age=0')
    // The cookie that somebody kept opens nothing any more.
    expect((await page('/', own)).text).not.toContain('/actions/')
    expect((await post('/actions/sync', { csrf: token }, own)).headers.get('location')).toBe('/sign-in')
  })

  async function guessFrom(localAddress: string): Promise<number> {
    const headers = { authorization: 'Bearer guess' }
    const [answer] = (await once(request(`${url}/api/runs/1`, { localAddress, headers }).end(), 'response')) as [
      IncomingMessage,
    ]
    answer.resume()
    return answer.statusCode!
  }

  test('too many wrong tokens are throttled, and the correct one is always accepted', async () => {
    const run = (token: string) => page('/api/runs/1', { authorization: `Bearer ${token}` })
    const answers: number[] = []
    // Each from another address: an attacker may have many.
    for (let guess = 1; guess <= 6; guess++) answers.push(await guessFrom(`127.0.0.${guess + 1}`))
    expect(answers.at(-1)).toBe(429)
    const late = await run('guess')
    expect(late.status).toBe(429)
    expect(Number(late.headers.get('retry-after'))).toBeGreaterThan(0)
    expect((await run(TOKEN)).status).toBe(200)
    expect((await post('/sign-in', { token: 'guess' })).status).toBe(429)
    expect((await post('/sign-in', { token: TOKEN })).status).toBe(303)
    expect(await logged('too many attempts to sign in')).toBeTruthy()
  })
})

const BRANDS = ['own', 'r1', 'r2', 'r3', 'r4', 'r5'].map((id) => ({ id }))
const row = (
  at: { week: string } | { date: string },
  brand: string,
  [k, n]: [number, number],
  isComplete = true,
): ChartRow & Partial<ComparedRow> => ({
  ...at,
  brand_id: brand,
  brand: brand.toUpperCase(),
  is_own: brand === 'own',
  visibility: k / n,
  visibility_low: 0,
  visibility_high: 1,
  answers: n,
  is_complete: isComplete,
  is_provisional: !isComplete,
})
const weekly = (rows: ChartRow[]) =>
  chartData('visibility', rows, { grain: 'week', focus: 'own', from: '2026-03-02', brands: BRANDS })

test('a week that has just begun is left out below 30 answers, and dashed above', () => {
  const whole = [row({ week: '2026-03-02' }, 'own', [50, 100]), row({ week: '2026-03-09' }, 'own', [60, 100])]
  const few = weekly([...whole, row({ week: '2026-03-16' }, 'own', [1, 12], false)])
  expect(few.x).toEqual(['2026-03-02', '2026-03-09'])
  const enough = weekly([...whole, row({ week: '2026-03-16' }, 'own', [10, 40], false)])
  expect(enough.x.at(-1)).toBe('2026-03-16')
  const drawn = lineChart(enough).text
  expect(drawn).toContain('<path class="open"')
  // The label at the end belongs to the last week that is complete.
  expect(drawn).toContain('Week of 9 Mar')
  expect(drawn).toContain('60 %')
})

test('a period with enough answers is whole, however few of them give a brand a position', () => {
  const at = (week: string, position_count: number) =>
    ({ ...row({ week }, 'own', [50, 100], week !== '2026-03-09'), position: 2, position_count }) as ChartRow
  const rows = [at('2026-03-02', 50), at('2026-03-09', 5)]
  const { series } = chartData('position', rows, { grain: 'week', focus: 'own', from: '2026-03-02', brands: BRANDS })
  expect(series[0]!.points.map((point) => point?.sample)).toEqual([50, 5])
})

test('the line by day is the share of all answers of seven days, where all seven were read', () => {
  const days = Array.from({ length: 16 }, (_, index) => addDays('2026-03-01', index))
  const rows = days.map((date, index) => row({ date }, 'own', [index, 10 + index], date !== '2026-03-16'))
  const { series } = chartData('visibility', rows, { grain: 'day', focus: 'own', from: '2026-03-01', brands: BRANDS })
  const means = series[0]!.line
  expect(means.slice(0, 6)).toEqual([null, null, null, null, null, null])
  const sum = (of: (index: number) => number) => [1, 2, 3, 4, 5, 6, 7].reduce((total, index) => total + of(index), 0)
  expect(means[7]).toBeCloseTo(sum((index) => index) / sum((index) => 10 + index), 12)
  // The last day is incomplete and has too few answers.
  expect(means.length).toBe(15)
})
