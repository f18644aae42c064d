import { type Html, html } from '../html.ts'

export interface PageOptions {
  title: string
  path: '/' | '/insights'
  version: string
  /** Scripts of our own, by name. */
  scripts?: string[]
  styles?: string[]
}

/** The frame of every page. Everything comes from this server: no other host is asked for anything. */
export function layout({ title, path, version, scripts = [], styles = [] }: PageOptions, body: Html): string {
  const link = (to: PageOptions['path'], name: string) =>
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
<header><p class="name">visibility-sync</p><nav aria-label="Pages">${link('/', 'Status')}${link('/insights', 'Insights')}</nav></header>
<main id="main">
${body}
</main>
<footer>visibility-sync ${version} · days are UTC</footer>
</body>
</html>
`.text
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
