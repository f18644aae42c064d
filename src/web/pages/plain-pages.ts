import { html } from '../html.ts'
import { layout, type PageOptions } from './layout.ts'

/** Why a page cannot be shown, in a sentence. */
export function errorPage(version: string, text: string, path?: PageOptions['path']): string {
  const body = html`<div class="title"><h1>This page cannot be shown</h1></div>
<p class="verdict banner bad" role="status">${text}</p>`
  return layout({ title: 'Not shown', path, version }, body)
}

/** `error` is why the last attempt failed. */
export function signInPage({ version, error }: { version: string; error: string | undefined }): string {
  const body = html`<div class="narrow"><h1>Sign in</h1>
<p class="quiet">Everybody who reaches this server can read. To sync, backfill, let held days through or settle quarantined rows, sign in with the value of <code>VISIBILITY_TOKEN</code>.</p>
${error === undefined ? '' : html`<p class="banner bad" role="alert">${error}</p>`}
<form method="post" action="/sign-in" class="card stack"><label class="field">Token <input type="password" name="token" autocomplete="current-password" required autofocus></label><button class="button primary">Sign in</button></form></div>`
  return layout({ title: 'Sign in', path: undefined, version, viewer: { csrf: undefined } }, body)
}
