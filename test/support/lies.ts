import type { Day } from '../../src/core/day.ts'
import { startRewriter } from './proxy.ts'
import type { Setup } from './setup.ts'

/* A real service behind a proxy that changes its answers: wrong, but in a valid form. */

/** A request for rows, whatever its method. */
export interface Asked {
  path: string
  project: string | undefined
  from: Day
  to: Day
  offset: number
  limit: number
  dimensions: string[]
}
export type LiedRow = Record<string, unknown> & { date?: Day }
/** Changes the rows of an answer, or the whole of it. */
export type Lie = (rows: LiedRow[], asked: Asked, answers: number) => LiedRow[] | Record<string, unknown>

const OPTIONS = { maxAttempts: 2, patienceMs: 1000 }

/** Runs work while the service answers through a proxy that lies. */
export async function lyingTo<T>(setup: Setup, lie: Lie, work: () => Promise<T>): Promise<T> {
  let answers = 0
  const proxy = await startRewriter(setup.service.url, (text, { url }, body) => {
    const { pathname, searchParams } = new URL(url!, 'http://localhost')
    const sent = { ...Object.fromEntries(searchParams), ...(body === '' ? {} : JSON.parse(body)) }
    const answer = JSON.parse(text) as { data?: LiedRow[] }
    if (answer.data === undefined || sent.start_date === undefined) return text
    const asked: Asked = {
      path: pathname.replace(/^.*\/v1\//, ''),
      project: sent.project_id,
      from: sent.start_date,
      to: sent.end_date,
      offset: Number(sent.offset ?? 0),
      limit: Number(sent.limit),
      dimensions: sent.dimensions ?? [],
    }
    const changed = lie(answer.data, asked, ++answers)
    return JSON.stringify(Array.isArray(changed) ? { ...answer, data: changed } : changed)
  })
  return setup.through(proxy.url, work, OPTIONS)
}

/** Runs work while reports and chats of each project are answered with those of another. */
export async function redirecting<T>(
  setup: Setup,
  projects: Readonly<Record<string, string>>,
  work: () => Promise<T>,
): Promise<T> {
  const redirected = (text: string) => text.replaceAll(/or_[0-9a-f-]+/g, (id) => projects[id] ?? id)
  const proxy = await startRewriter(setup.service.url, async (text, { url, method, headers }, body) => {
    if (!/\/(reports|chats)/.test(url!)) return text
    const key = Object.entries(headers).filter(([name]) => /key|auth/.test(name)) as [string, string][]
    const answer = await fetch(redirected(new URL(url!, setup.service.url).href), {
      method: method!,
      headers: { ...Object.fromEntries(key), 'content-type': 'application/json' },
      ...(body === '' ? {} : { body: redirected(body) }),
    })
    return answer.text()
  })
  return setup.through(proxy.url, work, OPTIONS)
}

export const isReport = ({ path }: Asked) => path === 'reports/brands'
export const isFine = (asked: Asked) => isReport(asked) && asked.dimensions.length > 1

/** Streams with days that are settled though they do not add up, because the service leaves rows out. */
export async function settledWithDifference({ database }: Setup): Promise<string[]> {
  const rows = await database.rows<{ stream: string }>(
    "select distinct stream from visibility_ops.coverage where state = 'read' and reconciled_at is not null and difference is not null",
  )
  return rows.map(({ stream }) => stream).sort()
}
