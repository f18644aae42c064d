import { type Html, html } from '../html.ts'

/** Who looks: undefined if nobody can sign in. `csrf` proves that a form comes from a page of this session. */
export type Viewer = { csrf: string | undefined } | undefined

export interface PageOptions {
  title: string
  /** The entry of the navigation that the page belongs to. */
  path: '/' | '/insights' | '/quarantine' | '/restatements' | undefined
  version: string
  /** Scripts of our own, by name. */
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
<a class="skip" href="#main">Skip to the content</a>
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
  return html`<form class="account" method="post" action="/sign-out">${proof(viewer.csrf)}<button class="button tiny">Sign out</button></form>`
}

/** The field by which a form shows that it comes from a page of its session. */
export function proof(csrf: string): Html {
  return html`<input type="hidden" name="csrf" value="${csrf}">`
}

/** An address on this server. Parameters without a value are left out. */
export function href(path: string, parameters: Record<string, string | undefined>, hash = ''): string {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(parameters)) if (value !== undefined) query.set(name, value)
  return `${path}${query.size === 0 ? '' : `?${query.toString()}`}${hash}`
}

/** A date and time for people, and for machines. */
export function time(date: Date | null | undefined, now: Date): Html {
  if (date == null) return html`never`
  const seconds = (now.getTime() - date.getTime()) / 1000
  return html`<time datetime="${date.toISOString()}" title="${date.toISOString().slice(0, 19)}Z">${distance(seconds)}</time>`
}

function distance(seconds: number): string {
  const text = span(Math.abs(seconds))
  return seconds >= 0 ? `${text} ago` : `in ${text}`
}

export function span(seconds: number): string {
  if (seconds < 90) return `${Math.round(seconds)} s`
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min`
  if (seconds < 36 * 3600) return `${Math.round(seconds / 3600)} h`
  return `${Math.round(seconds / 86_400)} days`
}

const NUMBERS = new Intl.NumberFormat('en-US')
export const number = (value: number) => NUMBERS.format(value)
