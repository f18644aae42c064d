import { shownText } from '../../core/config/describe-issue.ts'
import { refusePlainHttp } from '../../core/config/secrets.ts'
import { UsageError } from '../../core/errors.ts'
import { count } from '../../core/text.ts'
import { connectMetabase, type Login } from '../metabase/api.ts'
import { provision } from '../metabase/provision.ts'
import { readQuestions } from '../metabase/questions.ts'
import type { Session } from '../session.ts'

/** `metabase`: the connection, questions, models, metrics and a dashboard in a Metabase, made once and then kept up to date. */
export async function metabase(session: Session, { url }: { url: string }): Promise<number> {
  const { metabase: settings, warehouse, allow_http, redactor } = session.config
  if (!/^https?:\/\//.test(url) || !URL.canParse(url))
    throw new UsageError(`--url: got ${shownText(url)}; allowed: an address such as https://metabase.example.com`)
  refusePlainHttp(url, '--url', allow_http)
  if (settings.database_url === undefined) {
    throw new UsageError(
      'METABASE_DATABASE_URL is not set: the warehouse as Metabase reaches it, with a reader role (visibility-sync grant)',
    )
  }
  const server = await connectMetabase(url, loginOf(settings), redactor)
  const result = await provision(server, {
    databaseUrl: settings.database_url,
    schema: warehouse.schema,
    questions: readQuestions(warehouse.schema),
  })
  const tally = (cards: { made: boolean }[], kind: string) => {
    const made = cards.filter((card) => card.made).length
    return `${count(made, kind)} made, ${cards.length - made} updated.`
  }
  const base = url.replace(/\/+$/, '')
  session.print(
    { url: base, ...result },
    [
      `Connection ${result.database.made ? 'made' : 'updated'}, ${count(result.fields, 'field')} described.`,
      tally(result.questions, 'question'),
      tally(result.models, 'model'),
      tally(result.metrics, 'metric'),
      ...leftOut(result.left),
      `Dashboard: ${base}/dashboard/${result.dashboard.id}`,
    ].join('\n'),
  )
  return 0
}

/** Views are missing where their report is not configured, and for a moment after an upgrade. */
function leftOut(left: { name: string; view: string }[]): string[] {
  if (left.length === 0) return []
  return [
    `${count(left.length, 'card')} left out: Metabase does not know the view.`,
    ...left.map(({ name, view }) => `  ${view}: ${name}`),
    'If "visibility-sync migrate" makes the view, run this again once Metabase has synced.',
  ]
}

function loginOf(settings: {
  api_key?: string | undefined
  user?: string | undefined
  password?: string | undefined
}): Login {
  if (settings.api_key !== undefined) return { apiKey: settings.api_key }
  if (settings.user !== undefined && settings.password !== undefined)
    return { user: settings.user, password: settings.password }
  throw new UsageError('set METABASE_API_KEY, or METABASE_USER and METABASE_PASSWORD')
}
