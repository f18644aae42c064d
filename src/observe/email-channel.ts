import { isLoopback } from '../core/config/secrets.ts'
import { InterruptedError } from '../core/errors.ts'
import { type Channel, type Notice, namedProjects, shownSince } from './notice.ts'

const STEP_MS = 4000

export interface EmailOptions {
  /** smtp:// or smtps://, with the user and, if it is not given apart, the password. */
  server: string
  password: string | undefined
  from: string | undefined
  to: readonly string[]
  /** Lets a mail and its password travel unencrypted to another machine. */
  allowPlain: boolean
}

function emailOf(notice: Notice): { subject: string; text: string } {
  const { event, title, text, run, reason, page, command, projects } = notice
  const lines = [
    event === 'cleared' ? `Over: ${text}` : text,
    '',
    ...(projects.length === 0 ? [] : [`Projects:   ${namedProjects(notice)}`]),
    `Since:      ${shownSince(notice)}`,
    ...(run === undefined ? [] : [`Run:        ${run}`]),
    ...(reason === undefined ? [] : [`Reason:     ${reason}`]),
    ...(page === undefined ? [] : [`Page:       ${page}`]),
    ...(command === undefined ? [] : [`What helps: ${command}`]),
  ]
  // A line break in a header would begin another one.
  return { subject: `visibility-sync: ${title}`.replaceAll(/\s+/g, ' '), text: `${lines.join('\n')}\n` }
}

export function emailChannel({ server, password, from, to, allowPlain }: EmailOptions): Channel {
  const { protocol, hostname, port, username, password: inAddress } = new URL(server)
  const secure = protocol === 'smtps:'
  const user = decodeURIComponent(username)
  const pass = password ?? decodeURIComponent(inAddress)
  return {
    name: 'e-mail',
    async send(notice, signal) {
      // Loaded only if it is used: few send mails.
      const { createTransport } = await import('nodemailer')
      const transport = createTransport({
        host: hostname.replaceAll(/[[\]]/g, ''),
        port: Number(port) || (secure ? 465 : 587),
        secure,
        requireTLS: !secure && !allowPlain && !isLoopback(server),
        ...(user === '' ? {} : { auth: { user, pass } }),
        connectionTimeout: STEP_MS,
        greetingTimeout: STEP_MS,
        socketTimeout: STEP_MS,
        dnsTimeout: STEP_MS,
      })
      const stop = () => transport.close()
      signal.addEventListener('abort', stop)
      try {
        const tooLate = new Promise<never>((_, fail) => {
          signal.addEventListener('abort', () => fail(new InterruptedError('too late')))
        })
        tooLate.catch(() => {})
        const mail = { from: from ?? `visibility-sync <${bareAddress(to[0]!)}>`, to: [...to], ...emailOf(notice) }
        await Promise.race([transport.sendMail(mail), tooLate])
      } finally {
        signal.removeEventListener('abort', stop)
        transport.close()
      }
    },
  }
}

function bareAddress(address: string): string {
  return /<([^>]+)>/.exec(address)?.[1] ?? address
}
