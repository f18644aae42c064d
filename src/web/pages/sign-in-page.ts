import { html } from '../html.ts'
import { layout } from './layout.ts'

export interface SignInPage {
  version: string
  /** Why the last attempt failed. */
  error: string | undefined
}

export function signInPage({ version, error }: SignInPage): string {
  const body = html`<div class="narrow"><h1>Sign in</h1>
<p class="quiet">Everybody who reaches this server can read. To sync, backfill, let held days through or settle quarantined rows, sign in with the value of <code>VISIBILITY_TOKEN</code>.</p>
${error === undefined ? '' : html`<p class="banner bad" role="alert">${error}</p>`}
<form method="post" action="/sign-in" class="card stack"><label class="field">Token <input type="password" name="token" autocomplete="current-password" required autofocus></label><button class="button primary">Sign in</button></form></div>`
  return layout({ title: 'Sign in', path: undefined, version, viewer: { csrf: undefined } }, body)
}
