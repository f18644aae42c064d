import { connectionFailure } from '../core/connection-failure.ts'
import { codeOf, messageOf, TransientError, UsageError } from '../core/errors.ts'
import { createRedactor, decoded } from '../core/redactor.ts'
import { clip, helpOn } from '../core/text.ts'
import { isStatementPooling } from './retry.ts'

/** Wrong settings and a server that is away are different failures. */
interface Hint {
  away: boolean
  text: string
}

const wrong = (text: string): Hint => ({ away: false, text })
const away = (text: string): Hint => ({ away: true, text })

const START =
  'Start a Postgres 15 or later there, for example with "docker run -d -p 5432:5432 -e POSTGRES_PASSWORD=… postgres:18", ' +
  'or set DATABASE_URL=embedded'
const ESCAPE = 'percent-encode @ : / ? # and % in it'

const STOPPING = away('The server is shutting down: try again when it is back')
const HINTS: Record<string, Hint> = {
  '28P01': wrong(`The user or the password is wrong: correct them in DATABASE_URL, and ${ESCAPE}`),
  '28000': wrong(
    'The role is not let in: check its name in DATABASE_URL, that it may log in, and the rules of pg_hba.conf',
  ),
  '3D000': wrong('There is no such database: create it, or correct the name at the end of DATABASE_URL'),
  '42501': wrong('The role may not connect to this database: grant connect on the database to it'),
  '25006': wrong('The server can only be read, as a standby can: name the primary in DATABASE_URL'),
  '53300': away('The server has no connection left: close others, raise max_connections, or lower source.concurrency'),
  '57P01': STOPPING,
  '57P02': STOPPING,
  '57P03': away('The server is starting, stopping or recovering: try again in a moment'),
}

const BY_MESSAGE: [RegExp, Hint][] = [
  [
    /pg_hba\.conf .*no encryption|\b(?:SSL|TLS)\b.*\brequired|requires? (?:SSL|TLS)\b/i,
    wrong('The server asks for TLS, or has no rule for this host: add sslmode=verify-full to DATABASE_URL'),
  ],
  [
    /does not support SSL/i,
    wrong('The server has no TLS: switch it on there, or take sslmode out of DATABASE_URL if the network is your own'),
  ],
  [/password must be/i, wrong('The server asks for a password: add it to DATABASE_URL')],
  [
    /timeout expired|timeout exceeded|(?:read|connection) timeout/i,
    away('The server did not answer in time: is it overloaded, or frozen?'),
  ],
]

/** It shows no part of a password. */
export function databaseFailure(url: string, error: unknown): UsageError | TransientError {
  const { hostname, port, pathname, password } = new URL(url)
  const address = `${hostname || 'localhost'}:${port || 5432}${pathname}`
  const redactor = createRedactor([password, decoded(password)])
  const detail = clip(redactor.text(messageOf(error) || (codeOf(error) ?? 'no answer')), 200)
  const hint = hintOf(error)
  const message = `the database at ${address} cannot be used (${detail}). ${hint.text}.`
  return hint.away ? new TransientError(message, { cause: error }) : new UsageError(message)
}

export function settingHint(error: unknown): string | undefined {
  if (codeOf(error) === '25006') return HINTS['25006']!.text
  if (isStatementPooling(error)) return 'Set pool_mode = transaction in the pooler, or connect to the server directly'
  return codeOf(error) === '42501' ? `${helpOn('database-role')} lists the grants that the role needs` : undefined
}

function hintOf(error: unknown): Hint {
  const message = messageOf(error)
  const known = BY_MESSAGE.find(([pattern]) => pattern.test(message))?.[1] ?? HINTS[codeOf(error) ?? '']
  if (known !== undefined) return known
  const connection = connectionFailure(error)
  if (connection?.kind === 'certificate') {
    return wrong(
      `Its TLS certificate is not accepted: ${connection.cause}. DATABASE_URL may also name that file, as sslrootcert=…`,
    )
  }
  if (['ENOTFOUND', 'EAI_AGAIN'].includes(codeOf(error) ?? ''))
    return away('The name of its host does not resolve: check the host in DATABASE_URL, and that DNS works here')
  if (connection !== undefined) return away(`It cannot be reached: ${connection.cause}. ${START}`)
  if (codeOf(error) === 'ENOENT' && /ENOENT.* open /.test(message)) {
    return wrong('A file that DATABASE_URL names is not there')
  }
  return away(START)
}
