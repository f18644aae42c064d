import { clip, count } from '../../core/text.ts'
import type { HeldStatus } from '../../ledger/status.ts'
import { hasGaps, type Problem, type ProjectHealth } from '../health.ts'
import { type Html, html } from '../html.ts'
import type { StatusData } from '../status-data.ts'
import { href, number, proof, time } from './layout.ts'

/* What is wrong, one card for each kind, each with its reason and what helps. */

const MOST_LISTED = 8
const MOST_HELD = 10

export function needs(page: StatusData, problems: readonly Problem[], projects: readonly ProjectHealth[]): Html | '' {
  if (problems.length === 0) return ''
  const names = new Map(projects.map(({ id, name }) => [id, name]))
  const cards: Record<Problem['kind'], () => Html> = {
    start: () => startCard(page),
    run: () => runCard(page),
    stale: () => streamsCard(page, projects, 'stale'),
    missing: () => streamsCard(page, projects, 'missing'),
    held: () => heldCard(page, names),
    quarantine: () => quarantineCard(page, names),
    dead: () => deadCard(page, names),
  }
  return html`<section aria-labelledby="needs"><h2 id="needs">What needs a look</h2>
${problems.map(({ kind }) => cards[kind]())}</section>`
}

function card(kind: Problem['kind'], grade: 'bad' | 'warn', label: string, title: string | Html, body: Html): Html {
  return html`<article class="card need ${grade}-edge" id="needs-${kind}"><h3><span class="badge ${grade}">${label}</span> ${title}</h3>
${body}</article>
`
}

/** A command to copy: for who reads, or cannot sign in. */
export function command(text: string): Html {
  return html`<span class="command"><code>${text}</code></span>`
}

/** The button that helps, or the command that does the same. */
function syncHelp({ viewer }: StatusData, lead: string): Html {
  return html`<div class="help">${lead} ${
    viewer?.csrf === undefined ? command('visibility-sync sync') : syncForm(viewer.csrf)
  }</div>`
}

export function syncForm(csrf: string, look = 'tiny'): Html {
  return html`<form class="inline" method="post" action="/actions/sync">${proof(csrf)}<button class="button ${look}">Sync now</button></form>`
}

function startCard(page: StatusData): Html {
  const { command: name, at, reason } = page.failedToStart!
  return card(
    'start',
    'bad',
    'Failed',
    html`A ${name} failed before it began, ${time(at, page.now)}`,
    html`<p>${clip(reason, 400)}</p><p class="help">To see what is wrong: ${command('visibility-sync check')}</p>`,
  )
}

function runCard(page: StatusData): Html {
  const last = page.status!.runs.find(({ outcome }) => outcome !== null)!
  return card(
    'run',
    last.outcome === 'failed' ? 'bad' : 'warn',
    last.outcome === 'failed' ? 'Failed' : last.outcome === 'partial' ? 'Partial' : 'Stopped',
    html`The last run, <a href="/runs/${last.run_id}">${last.command} ${last.run_id}</a>, was ${last.outcome}`,
    html`<p>${clip(last.reason ?? 'Nothing more is known.', 400)} It ended ${time(last.ended_at, page.ledgerNow)}.</p>${syncHelp(page, 'The next sync reads what is left; or at once:')}`,
  )
}

function streamsCard(page: StatusData, projects: readonly ProjectHealth[], kind: 'stale' | 'missing'): Html {
  const affected = projects
    .map((project) => ({
      ...project,
      found: project.streams.filter(({ rank, row }) => (kind === 'stale' ? rank === 4 : hasGaps(row))),
    }))
    .filter(({ found }) => found.length > 0)
  const total = affected.reduce((sum, { found }) => sum + found.length, 0)
  const days = affected.reduce(
    (sum, { found }) => sum + found.reduce((all, { row }) => all + (row.days_missing ?? 0), 0),
    0,
  )
  const title =
    kind === 'stale'
      ? `${count(total, 'stream')} of ${count(affected.length, 'project')} not read for too long`
      : `${count(days, 'day')} of ${count(total, 'stream')} never read`
  const occurrences = html`<ul class="places">${affected.slice(0, MOST_LISTED).map(
    ({ id, name, found }) =>
      html`<li><a href="${href('/', { project: id }, '#project')}">${name}</a> <span class="quiet">${found
        .slice(0, 6)
        .map(({ row }) => (kind === 'stale' ? row.stream : `${row.stream} (${number(row.days_missing!)})`))
        .join(
          ', ',
        )}${found.length > 6 ? ` and ${found.length - 6} more` : ''}${kind === 'stale' ? html`, last read ${time(found[0]!.row.last_read_at, page.ledgerNow)}` : ''}</span></li>`,
  )}</ul>${more(affected.length - MOST_LISTED, 'project')}`
  const lead =
    kind === 'stale'
      ? 'The limit is serve.max_staleness. To read them now:'
      : 'Each sync fills gaps by itself. To fill them now:'
  return card(
    kind,
    kind === 'stale' ? 'bad' : 'warn',
    kind === 'stale' ? 'Stale' : 'Missing',
    title,
    html`${occurrences}${syncHelp(page, lead)}`,
  )
}

function more(left: number, noun: string): Html | '' {
  return left <= 0 ? '' : html`<p class="quiet small">and ${count(left, noun)} more, in the list of projects below</p>`
}

function heldCard(page: StatusData, names: ReadonlyMap<string, string>): Html {
  const { held, totals } = page.status!
  const left = totals.held - Math.min(held.length, MOST_HELD)
  return card(
    'held',
    'bad',
    'Held',
    `${count(totals.held, 'range')} held for review`,
    html`<p>An answer of the service would have deleted more than half of the rows of these days. Nothing was deleted: the rows from before are still there.</p>
<ul class="places">${held.slice(0, MOST_HELD).map((row) => heldRow(page, row, names.get(row.project_id) ?? row.project_id))}</ul>
${left <= 0 ? '' : html`<p class="quiet small">and ${count(left, 'range')} more: ${command('visibility-sync status')}</p>`}`,
  )
}

function heldRow({ viewer, ledgerNow }: StatusData, row: HeldStatus, name: string): Html {
  const days = row.from === row.to ? row.from : `${row.from} to ${row.to}`
  const look = href('/', { project: row.project_id, to: row.to, day: row.to }, '#day')
  const help =
    viewer?.csrf === undefined
      ? html`<p class="help">If the rows are really gone, let it through: ${command(row.accept)}</p>`
      : html`<details class="confirm" id="held-${row.project_id}-${row.stream}-${row.from}"><summary class="button tiny">Let through …</summary><form method="post" action="/actions/accept" class="ask">${proof(viewer.csrf)}<input type="hidden" name="project" value="${row.project_id}"><input type="hidden" name="stream" value="${row.stream}"><input type="hidden" name="from" value="${row.from}"><input type="hidden" name="to" value="${row.to}"><p>The days are read again. Rows that the service no longer has are then deleted from the warehouse, however many they are.</p><button class="button danger tiny">Read again and delete what is gone</button></form></details>`
  return html`<li><a href="${look}">${row.stream}, ${days}</a> <span class="quiet">of ${name}, held ${time(row.since, ledgerNow)}</span>${help}</li>`
}

function quarantineCard(page: StatusData, names: ReadonlyMap<string, string>): Html {
  const { quarantine } = page.status!
  const open = quarantine.reduce((sum, row) => sum + row.open, 0)
  const sorted = [...quarantine].sort((a, b) => b.open - a.open)
  return card(
    'quarantine',
    'warn',
    'Quarantine',
    `${count(open, 'row')} failed validation`,
    html`<p>They are kept as they came, and not loaded. All others of their days are.</p>
<ul class="places">${sorted
      .slice(0, MOST_LISTED)
      .map(
        (row) =>
          html`<li><a href="${href('/quarantine', { stream: row.stream, project: row.project_id })}">${count(row.open, 'row')} of ${row.stream}</a> <span class="quiet">of ${names.get(row.project_id) ?? row.project_id}, the oldest ${time(row.oldest, page.ledgerNow)}; for example ${clip(row.example, 120)}</span></li>`,
      )}</ul>
<p class="help"><a class="button tiny" href="/quarantine">Look at them</a> ${page.viewer?.csrf === undefined ? command('visibility-sync quarantine list') : ''}</p>`,
  )
}

function deadCard(page: StatusData, names: ReadonlyMap<string, string>): Html {
  const { dead } = page.queue!
  return card(
    'dead',
    'bad',
    'Set aside',
    `${count(dead.length, 'window')} given up after several attempts`,
    html`<ul class="places">${dead
      .slice(0, MOST_LISTED)
      .map(
        (row) =>
          html`<li>${row.stream}${row.range === undefined ? '' : `, ${row.range.from} to ${row.range.to}`} <span class="quiet">of ${names.get(row.project) ?? row.project}, ${time(row.since, page.ledgerNow)}: ${clip(row.reason, 160)}</span></li>`,
      )}</ul>${dead.length > MOST_LISTED ? html`<p class="quiet small">and ${dead.length - MOST_LISTED} more</p>` : ''}${syncHelp(page, 'The next sync tries them again; or at once:')}`,
  )
}
