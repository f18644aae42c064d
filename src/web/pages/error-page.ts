import { html } from '../html.ts'
import { layout, type PageOptions } from './layout.ts'

/** Why a page cannot be shown, in a sentence. */
export function errorPage({ version, path, text }: Pick<PageOptions, 'version' | 'path'> & { text: string }): string {
  const body = html`<div class="title"><h1>This page cannot be shown</h1></div>
<p class="verdict banner bad" role="status">${text}</p>`
  return layout({ title: 'Not shown', path, version }, body)
}
