import { clip, count, grouped, listSome, streamDays } from '../../core/text.ts'
import { byAccept, type HeldStatus, type StreamStatus } from '../../ledger/status.ts'
import { BACKFILL_REST, missingDays, type Problem, type ProjectHealth } from '../health.ts'
import { type Html, html } from '../html.ts'
import type { StatusData } from '../status-data.ts'
import { hiddenFields, href, places, rangeText, time } from './layout.ts'

/* Problems, one card for each kind, each with its reason and what helps. */

interface Card {
  grade: 'bad' | 'warn'
  label: string
  title: Html | string
  body: Html
}

export function needs(page: StatusData, problems: readonly Problem[], projects: readonly ProjectHealth[]): Html | '' {
  if (problems.length === 0) return ''
  const names = new Map(projects.map(({ id, name }) => [id, name]))
  const nameOf = (id: string) => names.get(id) ?? id
  const cards: Record<Problem['kind'], () => Card> = {
    start: () => startCard(page),
    run: () => runCard(page),
    stale: () => staleCard(page, projects),
    changed: () => dueCard(page, projects, 'changed'),
    missing: () => dueCard(page, projects, 'missing'),
    held: () => heldCard(page, nameOf),
    unreconciled: () => unreconciledCard(page, nameOf),
    quarantine: () => quarantineCard(page, nameOf),
    dead: () => deadCard(page, nameOf),
  }
  const written = problems.map(({ kind }) => {
    const { grade, label, title, body } = cards[kind]()
    return html`<article class="card need ${grade}-edge" id="needs-${kind}"><h3><span class="badge ${grade}">${label}</span> ${title}</h3>
${body}</article>
`
  })
  return html`<section aria-labelledby="needs"><h2 id="needs">What needs attention</h2>
${written}</section>`
}

export function command(text: string): Html {
  return html`<span class="command"><code>${text}</code></span>`
}

function syncHelp({ viewer }: StatusData, lead: string): Html {
  return html`<div class="help">${lead} ${
    viewer?.csrf === undefined ? command('npx visibility-sync sync') : syncForm(viewer.csrf)
  }</div>`
}

export function syncForm(csrf: string, look = 'tiny'): Html {
  return html`<form class="inline" method="post" action="/actions/sync">${hiddenFields({ csrf })}<button class="button ${look}">Sync now</button></form>`
}

function startCard({ failedToStart, now }: StatusData): Card {
  const { command: name, at, reason } = failedToStart!
  const title = html`A ${name} failed before it began, ${time(at, now)}`
  const help = html`<p class="help">To see what is wrong: ${command('npx visibility-sync check')}</p>`
  return { grade: 'bad', label: 'Failed', title, body: html`<p>${clip(reason, 400)}</p>${help}` }
}

function runCard(page: StatusData): Card {
  const last = page.status!.runs.find(({ outcome }) => outcome !== null)!
  const isFailed = last.outcome === 'failed'
  return {
    grade: isFailed ? 'bad' : 'warn',
    label: isFailed ? 'Failed' : last.outcome === 'partial' ? 'Partial' : 'Stopped',
    title: html`The last run, <a href="/runs/${last.run_id}">${last.command} ${last.run_id}</a>, was ${last.outcome}`,
    body: html`<p>${clip(last.reason ?? 'Nothing more is known.', 400)} It ended ${time(last.ended_at, page.ledgerNow)}.</p>${last.command === 'backfill' ? html`<p class="help">Repeat it; with <code>--missing</code> it reads only days that were never read: ${command(`npx visibility-sync ${BACKFILL_REST}`)}</p>` : syncHelp(page, 'The next sync reads what is left; or at once:')}`,
  }
}

type Affected = ProjectHealth & { found: ProjectHealth['streams'] }

function affectedBy(projects: readonly ProjectHealth[], is: (stream: ProjectHealth['streams'][number]) => boolean) {
  const affected = projects.map((project): Affected => ({ ...project, found: project.streams.filter(is) }))
  return affected.filter(({ found }) => found.length > 0)
}

function affectedList(affected: readonly Affected[], words: (project: Affected) => Html): Html {
  return places(affected, { noun: 'project' }, (project) => {
    const { id, name } = project
    return html`<a href="${href('/', { project: id }, '#project')}">${name}</a> <span class="quiet">${words(project)}</span>`
  })
}

function staleCard(page: StatusData, projects: readonly ProjectHealth[]): Card {
  const affected = affectedBy(projects, ({ rank }) => rank === 4)
  const total = affected.reduce((sum, { found }) => sum + found.length, 0)
  const title = `${count(total, 'stream')} of ${count(affected.length, 'project')} not read for too long`
  const list = affectedList(affected, ({ found }) => {
    const streams = found.map(({ row }) => row.stream)
    return html`${listSome(streams, 6)}, last read ${time(found[0]!.row.last_read_at, page.ledgerNow)}`
  })
  const help = syncHelp(page, 'The limit is serve.max_staleness. To read them now:')
  return { grade: 'bad', label: 'Stale', title, body: html`${list}${help}` }
}

/** Days that the next sync reads by itself. */
const DUE = {
  changed: {
    label: 'Changed',
    daysOf: ({ days_stale }: StreamStatus) => days_stale,
    what: 'to read again: other streams or an audit show that they changed',
    help: 'Each sync reads such days again. To read them now:',
  },
  missing: {
    label: 'Missing',
    daysOf: missingDays,
    what: 'never read',
    help: 'Each sync fills gaps by itself. To fill them now:',
  },
}

function dueCard(page: StatusData, projects: readonly ProjectHealth[], kind: keyof typeof DUE): Card {
  const { label, daysOf, what, help } = DUE[kind]
  const affected = affectedBy(projects, ({ row }) => daysOf(row) > 0)
  const rows = affected.flatMap(({ found }) => found.map(({ row }) => row))
  const days = rows.reduce((sum, row) => sum + daysOf(row), 0)
  const list = affectedList(affected, ({ found }) => {
    const streams = found.map(({ row }) => `${row.stream} (${grouped(daysOf(row))})`)
    return html`${listSome(streams, 6)}`
  })
  const title = `${count(days, 'day')} of ${count(rows.length, 'stream')} ${what}`
  return { grade: 'warn', label, title, body: html`${list}${syncHelp(page, help)}` }
}

function heldCard(page: StatusData, nameOf: (id: string) => string): Card {
  const { held, totals } = page.status!
  return {
    grade: 'bad',
    label: 'Held',
    title: `${count(totals.held, 'range')} held for review`,
    body: html`<p>An answer of the service would have deleted most or all rows of these days. Nothing was deleted: the rows from before are still there.</p>
${places(held, { noun: 'range', total: totals.held }, (row) => heldRow(page, row, nameOf(row.project_id)))}
${page.viewer?.csrf === undefined ? acceptHelp(held) : ''}`,
  }
}

function acceptHelp(held: readonly HeldStatus[]): Html {
  const commands = byAccept(held).map(([{ accept }]) => accept)
  return html`<div class="help">If the rows are really gone, let it through: ${places(commands, { noun: 'command' }, command)}</div>`
}

function heldRow({ viewer, ledgerNow }: StatusData, row: HeldStatus, name: string): Html {
  const { project_id: project, stream, from, to } = row
  const help =
    viewer?.csrf === undefined
      ? ''
      : html`<details class="confirm" id="held-${project}-${stream}-${from}"><summary class="button tiny">Let through …</summary><form method="post" action="/actions/accept" class="ask">${hiddenFields({ csrf: viewer.csrf, project, stream, from, to })}<p>The days are read again. Rows that the service no longer has are then deleted from the warehouse, however many they are.</p><button class="button danger tiny">Read again and delete what is gone</button></form></details>`
  return html`<a href="${href('/', { project, to, day: to }, '#day')}">${stream}, ${rangeText(row)}</a> <span class="quiet">of ${name}, held ${time(row.since, ledgerNow)}</span>${help}`
}

function unreconciledCard(page: StatusData, nameOf: (id: string) => string): Card {
  const { unreconciled } = page.status!
  const days = unreconciled.reduce((sum, row) => sum + row.days, 0)
  const list = places(unreconciled, { noun: 'stream' }, (row) => {
    const { stream, project_id: project, last_day: day } = row
    return html`<a href="${href('/', { project, to: day, day }, '#day')}">${count(row.days, 'day')} of ${stream}</a> <span class="quiet">of ${nameOf(project)}; on ${day} ${clip(row.difference, 200)}</span>`
  })
  const help = syncHelp(page, 'Each sync reads these days again. To read them now:')
  return {
    grade: 'bad',
    label: 'Not reconciled',
    title: `${streamDays(days)} that ${days === 1 ? 'does' : 'do'} not add up`,
    body: html`<p>The rows of these days do not add up to the service's own totals. Rows from before are still there.</p>
${list}${help}`,
  }
}

function quarantineCard(page: StatusData, nameOf: (id: string) => string): Card {
  const sorted = [...page.status!.quarantine].sort((a, b) => b.open - a.open)
  const open = sorted.reduce((sum, row) => sum + row.open, 0)
  const list = places(sorted, { noun: 'stream' }, (row) => {
    const { stream, project_id: project } = row
    return html`<a href="${href('/quarantine', { stream, project })}">${count(row.open, 'row')} of ${stream}</a> <span class="quiet">of ${nameOf(project)}, the oldest ${time(row.oldest, page.ledgerNow)}; for example ${clip(row.example, 120)}</span>`
  })
  return {
    grade: 'warn',
    label: 'Quarantine',
    title: `${count(open, 'row')} failed validation`,
    body: html`<p>They are kept as they came, and not loaded. The other rows of these days are loaded, unless a day is held.</p>
${list}
<p class="help"><a class="button tiny" href="/quarantine">Look at them</a> ${page.viewer?.csrf === undefined ? command('npx visibility-sync quarantine list') : ''}</p>`,
  }
}

function deadCard(page: StatusData, nameOf: (id: string) => string): Card {
  const { dead } = page.queue!
  const title = `${count(dead.length, 'window')} given up after several attempts`
  const list = places(dead, { noun: 'window' }, (row) => {
    const days = row.range === undefined ? '' : `, ${rangeText(row.range)}`
    return html`${row.stream}${days} <span class="quiet">of ${nameOf(row.project)}, ${time(row.since, page.ledgerNow)}: ${clip(row.reason, 160)}</span>`
  })
  const help = syncHelp(page, 'The next sync tries them again; or at once:')
  return { grade: 'bad', label: 'Given up', title, body: html`${list}${help}` }
}
