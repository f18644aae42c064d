import { closeSync, openSync, writeFileSync } from 'node:fs'
import { chooseProjects, withServices } from '../../app/open-services.ts'
import { messageOf, UsageError } from '../../core/errors.ts'
import { clip, count, csvText, printable } from '../../core/text.ts'
import { type CreationPlan, type CreationResult, createAll } from '../../create/create-all.ts'
import { type CreationRequest, countryCode } from '../../create/creation-request.ts'
import { problemsOf, readRequests } from '../../create/requests-file.ts'
import type { CreationKind } from '../../ledger/creations.ts'
import { prepareWarehouse } from '../../ledger/source.ts'
import type { Part, Session } from '../session.ts'

export interface CreateOptions {
  text?: string
  name?: string
  country?: string
  tag?: string[]
  topic?: string
  color?: string
  project?: string
  from?: string
  yes?: boolean
  results?: string
}

const NO_EFFECT = { inserted: 0, updated: 0, deleted: 0, unchanged: 0 }

export async function create(session: Session, kind: CreationKind, options: CreateOptions): Promise<number> {
  const { config, clock, log, signal, observer } = session
  const { from, yes } = options
  if (from !== undefined) refuseBesideFile(options)
  const wanted = from === undefined ? [singleRequest(kind, options)] : readRequests(from, kind)
  const file = from === undefined ? undefined : (options.results ?? `${from}.results.csv`)
  const projects = options.project === undefined ? [] : [options.project]
  const [only, ...others] = chooseProjects(config, clock, projects)
  if (only === undefined || others.length > 0) {
    const ids = chooseProjects(config, clock).map(({ id }) => id)
    throw new UsageError(`--project: name one of: ${ids.join(', ')}`)
  }
  return withServices({ ...session, projects }, async (open) => {
    const project = open.projects[0]!
    await prepareWarehouse(open, signal)
    let asked: CreationPlan | undefined
    const made = await createAll(open, {
      project,
      wanted,
      signal,
      confirm: async (plan) => {
        asked = plan
        const sure = from === undefined || yes === true || plan.toCreate + plan.topicsToCreate.length === 0
        if (!sure && !(await confirmed(session, preview(kind, wanted.length, plan)))) return false
        if (file !== undefined) refuseUnwritable(file)
        observer.planned?.({ days: 0, lists: wanted.length })
        return true
      },
      progress: ({ line, status, id }, done, all) => {
        const step = { projectId: project.id, stream: `line ${line}`, days: 0, rows: 1 }
        observer.advanced?.({ ...step, effect: NO_EFFECT, quarantined: 0, seconds: 0 })
        log.info({ line, status, id, done, all }, 'line done')
      },
    })
    if (made === undefined) {
      const text = [preview(kind, wanted.length, asked!), 'Nothing was sent. Give --yes to go ahead.']
      session.print({ sent: false, ...asked }, text)
      return 2
    }
    const results = config.redactor.value(made)
    const totals = { created: 0, existing: 0, failed: 0, not_sent: 0 }
    for (const { status } of results) totals[status]++
    const document = { ...totals, ...(file === undefined ? {} : { results_file: file }), results }
    session.print(document, file === undefined ? renderOne(results[0]!) : render(results, totals, file))
    const header = ['line', 'status', 'id', 'message', 'name'] as const
    const lines = results.map((result) => header.map((field) => result[field]))
    try {
      if (file !== undefined) writeFileSync(file, csvText(header, lines))
    } catch (cause) {
      log.error({ file, reason: messageOf(cause) }, 'the results could not be written')
      return 1
    }
    return totals.failed + totals.not_sent === 0 ? 0 : 1
  })
}

/** Prompts cost credits, so nothing is created if the results cannot be written. */
function refuseUnwritable(file: string): void {
  try {
    closeSync(openSync(file, 'a'))
  } catch (cause) {
    throw new UsageError(`${file} cannot be written, and nothing was sent (${messageOf(cause)})`)
  }
}

function refuseBesideFile({ text, name, country, tag, topic, color }: CreateOptions): void {
  const given = Object.entries({ text, name, country, tag, topic, color }).find(([, value]) => value !== undefined)
  if (given !== undefined) throw new UsageError(`--${given[0]}: cannot be used with --from; write it into the file`)
}

function singleRequest(kind: CreationKind, options: CreateOptions): CreationRequest {
  const { text, name, country, color, topic, tag } = options
  const item: CreationRequest = {
    ...{ line: 1, kind, text, name, color, topic, tags: tag },
    country: country === undefined ? undefined : countryCode(country),
  }
  const problems = problemsOf(item)
  if (problems.length > 0)
    throw new UsageError(problems.map((problem) => `--${problem.replace('country_code', 'country')}`).join('\n'))
  return item
}

function preview(kind: CreationKind, lines: number, plan: CreationPlan): string {
  const topics = plan.topicsToCreate
  return [
    `${count(lines, 'line')}: ${plan.toCreate} to create, ${plan.existing} there already or repeated.`,
    ...(topics.length > 0 ? [`${count(topics.length, 'topic')} to create first: ${clip(topics.join(', '), 200)}`] : []),
    ...(kind === 'prompt' && plan.toCreate > 0 ? ['Creating a prompt costs credits.'] : []),
  ].join('\n')
}

async function confirmed(session: Session, text: string): Promise<boolean> {
  const answer = await session.ask?.(`${printable(session.config.redactor.text(text))}\nGo ahead? [y/N] `)
  return answer !== undefined && /^y(es)?$/i.test(answer.trim())
}

function renderOne({ status, id, message }: CreationResult): string {
  const said = { created: 'Created', existing: 'Exists already', failed: 'Failed', not_sent: 'Not sent' }[status]
  return `${said}${id === null ? '' : `: ${id}`}${message === null ? '' : `\n${status === 'created' ? 'Warning: ' : ''}${message}`}`
}

function render(results: CreationResult[], totals: Record<string, number>, file: string): Part[] {
  const bad = results.filter(({ status }) => status === 'failed' || status === 'not_sent')
  return [
    `${totals.created} created, ${totals.existing} there already, ${totals.failed} failed, ${totals.not_sent} not sent.`,
    ...bad.slice(0, 10).map(({ line, message }) => `  line ${line}: ${message}`),
    bad.length > 10 && `  … ${bad.length - 10} more`,
    `Every line: ${file}`,
    bad.length > 0 && 'Run the same command again to continue.',
  ]
}
