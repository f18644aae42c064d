import { shownText } from '../../core/config/secrets.ts'
import { UsageError } from '../../core/errors.ts'
import { createRedactor } from '../../core/redactor.ts'
import { didYouMean } from '../../core/text.ts'
import { untilStopped } from '../../core/waiting.ts'
import { faultsSchema } from '../../reference/change.ts'
import { startReference } from '../../reference/server.ts'
import { COMPANY_KEY, createWorld } from '../../reference/world.ts'
import type { Session } from '../session.ts'

interface ReferenceOptions {
  host: string
  port: number
  seed: number
  projects: number
  prompts: number
  fault?: string[]
  extras?: boolean
}

export async function reference(session: Session, options: ReferenceOptions): Promise<number> {
  const { host, port, fault = [] } = options
  const world = createWorld(options)
  const service = await startReference({
    ...{ world, host, port, compress: true, extras: options.extras ? 'all' : [], faults: parseFaults(fault) },
  }).catch((error: NodeJS.ErrnoException) => {
    throw new UsageError(`--port: ${host}:${port} cannot be listened on (${error.code ?? error.message})`)
  })
  const { url } = service
  const projects = world.projects.map(({ id, key, name }) => ({ id, key, name }))
  session.print(
    { url, company_key: COMPANY_KEY, projects },
    [
      `The reference service listens at ${url}`,
      '',
      `  export VISIBILITY_API_URL=${url}`,
      `  export VISIBILITY_API_KEY=${COMPANY_KEY}`,
      `  export VISIBILITY_PROJECTS=${projects.map(({ id }) => id).join(',')}`,
      '',
      'Ctrl-C stops it.',
    ],
    // Its keys are no secrets, though one of them may be set as the key in the environment.
    createRedactor(),
  )
  await untilStopped(session.signal)
  await service.close()
  return 0
}

/** "--fault server_error=0.1": the names and values of docs/reference/reference-service.md. */
function parseFaults(settings: string[]): Record<string, unknown> {
  const entries = settings.map((setting) => {
    const [name, ...rest] = setting.split('=')
    const text = rest.join('=')
    if (name === undefined || name === '' || text === '')
      throw new UsageError(`--fault: got ${shownText(setting)}; allowed: name=value, such as server_error=0.1`)
    try {
      return [name, JSON.parse(text) as unknown]
    } catch {
      return [name, text]
    }
  })
  const faults = Object.fromEntries(entries) as Record<string, unknown>
  const { error } = faultsSchema.safeParse(faults)
  if (error === undefined) return faults
  const [issue] = error.issues
  const names = Object.keys(faultsSchema.shape)
  const [unknown] = issue?.code === 'unrecognized_keys' ? issue.keys : []
  throw new UsageError(
    `--fault: ${unknown ?? issue?.path.join('.')}: ${issue?.message}; allowed are: ${names.join(', ')}${didYouMean(unknown, names)}`,
  )
}
