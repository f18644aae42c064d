import { clip, listSome } from '../core/text.ts'
import type { AlertState } from '../ledger/alert-policy.ts'
import { type Condition, type Finding, partsOf, type Severity } from './findings.ts'

export interface Notice {
  event: 'raised' | 'cleared'
  condition: Condition
  severity: Severity
  /** One sentence that says it all. */
  text: string
  /** What is wrong, or what is over, in a few words. */
  title: string
  projects: string[]
  since: Date
  run: number | undefined
  reason: string | undefined
  /** The status page, of the project if it is only one. */
  page: string | undefined
  command: string | undefined
}

export interface Channel {
  name: 'webhook' | 'slack' | 'pagerduty' | 'e-mail'
  send(notice: Notice, signal: AbortSignal): Promise<void>
}

export interface Naming {
  nameOf(projectId: string): string
  pageUrl: string | undefined
}

const MOST_NAMED = 10
const LONGEST_TITLE = 140

/** "run 7 (sync) failed: 300 failures; HTTP 503; Acme, Beta and 298 more": what the ledger keeps, too. */
export function textOf({ what, members, reason }: Finding, naming: Naming): string {
  const projects = projectsOf(members)
  const streams = [...new Set(members.flatMap((member) => partsOf(member)?.stream ?? []))]
  const names = listSome(projects.map(naming.nameOf), MOST_NAMED)
  const about =
    projects.length === 0
      ? []
      : [streams.length === 1 ? `${streams[0]} of ${names}` : `${listSome(streams)} of ${names}`]
  const parts = [...(reason === undefined ? [] : [reason]), ...about]
  return parts.length === 0 ? what : `${what}: ${parts.join('; ')}`
}

/** Of a condition that was found, or that is over if it was not. */
export function noticeOf(
  condition: Condition,
  finding: Finding | undefined,
  { text, members, raised_at }: AlertState,
  naming: Naming,
): Notice {
  const projects = projectsOf(members)
  return {
    event: finding === undefined ? 'cleared' : 'raised',
    condition,
    severity: finding?.severity ?? 'warning',
    text,
    title: clip(finding?.what ?? `over: ${text}`, LONGEST_TITLE),
    projects: projects.map(naming.nameOf),
    since: earlier(finding?.since, raised_at),
    run: finding?.run,
    reason: finding?.reason,
    page: pageOf(projects, naming),
    command: finding?.command,
  }
}

export function summaryOf({ event, text }: Notice): string {
  return `visibility-sync: ${event === 'cleared' ? 'over: ' : ''}${text}`
}

export function shownSince({ since }: Notice): string {
  return `${since.toISOString().slice(0, 16).replace('T', ' ')} UTC`
}

/** "Acme, Beta and 298 more": 300 projects in one line. */
export function namedProjects({ projects }: Notice): string {
  return listSome(projects, MOST_NAMED)
}

function projectsOf(members: readonly string[]): string[] {
  return [...new Set(members.flatMap((member) => partsOf(member)?.project ?? []))]
}

function pageOf(projects: readonly string[], { pageUrl }: Naming): string | undefined {
  if (pageUrl === undefined) return undefined
  return projects.length === 1 ? `${pageUrl}/?project=${encodeURIComponent(projects[0]!)}` : `${pageUrl}/`
}

function earlier(one: Date | undefined, other: Date): Date {
  return one !== undefined && one < other ? one : other
}
