import type { Day } from '../../core/day.ts'
import { count, duration } from '../../core/text.ts'
import type { Status } from '../../ledger/status.ts'
import { type Html, html } from '../html.ts'
import type { Notice, Viewer } from '../status-data.ts'

interface PageOptions {
  title: string
  /** The entry of the navigation that the page belongs to. */
  path: '/' | '/insights' | '/quarantine' | '/restatements' | undefined
  version: string
  scripts?: string[]
  styles?: string[]
  viewer?: Viewer
}

/** The frame of every page. Everything comes from this server: no other host is asked for anything. */
export function layout({ title, path, version, scripts = [], styles = [], viewer }: PageOptions, body: Html): string {
  const link = (to: NonNullable<PageOptions['path']>, name: string) =>
    html`<a href="${to}"${path === to ? html` aria-current="page"` : ''}>${name}</a>`
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title} · visibility-sync</title>
<link rel="icon" href="/assets/icon.svg" type="image/svg+xml">
${['style.css', ...styles].map((name) => html`<link rel="stylesheet" href="/assets/${name}">`)}
${scripts.map((name) => html`<script src="/assets/${name}" defer></script>`)}
</head>
<body>
<a class="hidden" href="#main">Skip to the content</a>
<header class="masthead"><div><a class="name" href="/"><img src="/assets/icon.svg" alt="" width="20" height="20">visibility-sync</a><nav class="tabs" aria-label="Pages">${link('/', 'Status')}${link('/insights', 'Insights')}${link('/quarantine', 'Quarantine')}${link('/restatements', 'Restatements')}</nav>${account(viewer)}</div></header>
<main id="main">
${body}
</main>
<footer>visibility-sync ${version} · days are UTC</footer>
</body>
</html>
`.text
}

function account(viewer: Viewer): Html | '' {
  if (viewer === undefined) return ''
  if (viewer.csrf === undefined) return html`<a class="account" href="/sign-in">Sign in</a>`
  return html`<form class="account" method="post" action="/sign-out">${hiddenFields({ csrf: viewer.csrf })}<button class="button tiny">Sign out</button></form>`
}

/** A table that scrolls by itself if it is wider than the page. A title that begins with "#" is one of numbers. */
export function table<R>(label: string, titles: readonly string[], rows: readonly R[], cells: (row: R) => Html): Html {
  const heads = titles.map(
    (title) => html`<th scope="col"${title.startsWith('#') && html` class="n"`}>${title.replace('#', '')}</th>`,
  )
  return scrolling(
    label,
    html`<table class="table"><thead><tr>${heads}</tr></thead>
<tbody>${rows.map((row) => html`<tr>${cells(row)}</tr>\n`)}</tbody></table>`,
  )
}

export function scrolling(label: string, content: Html): Html {
  return html`<div class="scroll" role="region" aria-label="${label}" tabindex="0">${content}</div>`
}

export function places<T>(
  items: readonly T[],
  { most = 8, noun, total = items.length }: { most?: number; noun: string; total?: number },
  line: (item: T) => Html,
): Html {
  const shown = items.slice(0, most)
  const left = total - shown.length
  return html`<ul class="places">${shown.map((item) => html`<li>${line(item)}</li>`)}</ul>${left > 0 && html`<p class="quiet small">and ${count(left, noun)} more</p>`}`
}

export function tile(label: string, value: Html | string, note: Html | string = ''): Html {
  return html`<div class="tile"><dt>${label}</dt><dd class="value">${value}</dd>${note === '' ? '' : html`<dd class="note">${note}</dd>`}</div>`
}

export function factList(facts: Record<string, Html | string>): Html {
  const entries = Object.entries(facts).map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)
  return html`<dl class="facts card">${entries}</dl>`
}

// How often the script asks for a page again.
const RUNNING_MS = 2000
const IDLE_MS = 5000

interface Heading {
  title: string
  beside?: Html | undefined
  /** The address by which the script asks for the page again, and whether a run is in progress. */
  refresh?: { url: string; isRunning: boolean; now: Date } | undefined
  notice?: Notice | undefined
}

export function heading({ title, beside, refresh, notice }: Heading): Html {
  const { url, isRunning, now } = refresh ?? {}
  const stamp = now?.toISOString() ?? ''
  return html`<div class="title"><h1>${title}</h1><div class="row">${refresh && html`<p id="updated" class="quiet small" data-url="${url}" data-ms="${isRunning ? RUNNING_MS : IDLE_MS}">Updated <time datetime="${stamp}">${stamp.slice(11, 19)}</time> UTC</p>`}${beside}</div></div>
${refresh && html`<p id="gone" class="banner bad" role="alert" hidden></p><p id="announce" class="hidden" role="status"></p>`}
<div data-part="notice">${notice && html`<p class="banner ${notice.kind}" role="status">${notice.text}</p>`}</div>`
}

export function hiddenFields(fields: Record<string, string | number>): Html[] {
  return Object.entries(fields).map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`)
}

export function lookbackWords({ needed_days, configured_days }: Status['lookback']): Html {
  return html`The service still changes days that are up to ${count((needed_days ?? 1) - 1, 'day')} old, and <code>lookback_days</code> is ${configured_days}.`
}

/** "2026-03-01", or "2026-03-01 to 2026-03-09". */
export function rangeText({ from, to }: { from: string; to: string }): string {
  return from === to ? from : `${from} to ${to}`
}

export const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']

/** "9 Mar", or "9 Mar 2026". */
export function shortDay(day: Day, withYear = false): string {
  return `${Number(day.slice(8))} ${MONTHS[Number(day.slice(5, 7)) - 1]}${withYear ? ` ${day.slice(0, 4)}` : ''}`
}

/** An address on this server. Parameters without a value are left out. */
export function href(path: string, parameters: Record<string, string | undefined>, hash = ''): string {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(parameters)) if (value !== undefined) query.set(name, value)
  return `${path}${query.size === 0 ? '' : `?${query.toString()}`}${hash}`
}

export function time(date: Date | null | undefined, now: Date): Html {
  if (date == null) return html`never`
  const seconds = (now.getTime() - date.getTime()) / 1000
  return html`<time datetime="${date.toISOString()}" title="${date.toISOString().slice(0, 19)}Z">${distance(seconds)}</time>`
}

function distance(seconds: number): string {
  const text = duration(Math.abs(seconds))
  return seconds >= 0 ? `${text} ago` : `in ${text}`
}

export function errorPage(version: string, text: string, path?: PageOptions['path']): string {
  const body = html`<div class="title"><h1>This page cannot be shown</h1></div>
<p class="verdict banner bad" role="status">${text}</p>
<p>${path === undefined || path === '/' ? '' : html`<a href="${path}">Open this page without filters</a> or `}<a href="/">${path === undefined || path === '/' ? 'Open' : 'open'} the status page</a>.</p>`
  return layout({ title: 'Not shown', path, version }, body)
}

/** `error` is why the last attempt failed. */
export function signInPage({ version, error }: { version: string; error: string | undefined }): string {
  const body = html`<div class="narrow"><h1>Sign in</h1>
<p class="quiet">Anyone who can reach this server can read its pages. To sync, backfill, accept held days, or retry and dismiss quarantined rows, sign in with the value of <code>VISIBILITY_TOKEN</code>.</p>
${error === undefined ? '' : html`<p class="banner bad" role="alert">${error}</p>`}
<form method="post" action="/sign-in" class="card stack"><label class="field">Token <input type="password" name="token" autocomplete="current-password" required autofocus></label><button class="button primary">Sign in</button></form></div>`
  return layout({ title: 'Sign in', path: undefined, version, viewer: { csrf: undefined } }, body)
}
