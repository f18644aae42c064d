import { clip, listSome } from '../core/text.ts'
import type { AlertState } from '../ledger/alert-policy.ts'
import { type Condition, type Finding, partsOf, type Severity } from './findings.ts'

/** An alert as the webhook receives it, and its title for people. */
export interface Notice {
  /** `detail`, and that it is over if it is: what chat tools display. */
  text: string
  event: 'raised' | 'cleared'
  condition: Condition
  severity: Severity
  detail: string
  projects: string[]
  /** Its address, without secrets; empty if there is none. */
  warehouse: string
  since: string
  run: number | null
  reason: string | null
  /** The status page, of the project if it is only one. */
  page: string | null
  command: string | null
  title: string
}

export interface Channel {
  name: 'webhook' | 'slack' | 'pagerduty' | 'e-mail'
  send(notice: Notice, signal: AbortSignal): Promise<void>
}

export interface Naming {
  nameOf(projectId: string): string
  warehouse: string
  pageUrl: string | undefined
}

const MOST_NAMED = 10
const LONGEST_TITLE = 140

/** "run 7 (sync) failed: 300 failures; HTTP 503; Acme, Beta and 298 more": what the ledger keeps, too. */
export function textOf({ what, members, reason }: Finding, naming: Naming): string {
  const projects = projectsOf(members)
  const streams = [...new Set(members.flatMap((member) => partsOf(member)?.stream ?? []))]
  const names = listSome(projects.map(naming.nameOf), MOST_NAMED)
  const about = projects.length === 0 ? undefined : `${listSome(streams)} of ${names}`
  const parts = [reason, about].filter((part) => part !== undefined)
  return parts.length === 0 ? what : `${what}: ${parts.join('; ')}`
}

/** Of a condition that was found, or that is over if it was not. */
export function noticeOf(
  condition: Condition,
  finding: Finding | undefined,
  { text, members, raised_at }: Pick<AlertState, 'text' | 'members' | 'raised_at'>,
  naming: Naming,
): Notice {
  const projects = projectsOf(members)
  const query = projects.length === 1 ? `?project=${encodeURIComponent(projects[0]!)}` : ''
  const found: Partial<Finding> = finding ?? {}
  const { severity = 'warning', since = raised_at, what = `over: ${text}` } = found
  return {
    text: `visibility-sync: ${finding === undefined ? 'over: ' : ''}${text}`,
    event: finding === undefined ? 'cleared' : 'raised',
    condition,
    severity,
    detail: text,
    projects: projects.map(naming.nameOf),
    warehouse: naming.warehouse,
    since: (since < raised_at ? since : raised_at).toISOString(),
    run: found.run ?? null,
    reason: found.reason ?? null,
    page: naming.pageUrl === undefined ? null : `${naming.pageUrl}/${query}`,
    command: found.command ?? null,
    title: clip(what, LONGEST_TITLE),
  }
}

export function factsOf({
  projects,
  warehouse,
  since,
  run,
  reason,
  page,
  command,
}: Notice): [label: string, value: string][] {
  const facts = {
    Projects: projects.length === 0 ? null : listSome(projects, MOST_NAMED),
    Warehouse: warehouse || null,
    Since: `${since.slice(0, 16).replace('T', ' ')} UTC`,
    Run: run,
    Reason: reason,
    Page: page,
    'What helps': command,
  }
  return Object.entries(facts).flatMap(([label, value]) => (value === null ? [] : [[label, String(value)]]))
}

function projectsOf(members: readonly string[]): string[] {
  return [...new Set(members.flatMap((member) => partsOf(member)?.project ?? []))]
}
