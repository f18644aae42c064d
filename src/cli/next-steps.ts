import type { OpenWarehouse } from '../app/open-services.ts'
import { listSome } from '../core/text.ts'
import { type Trouble, type TroubleKind, troublesOf } from '../ledger/run-reason.ts'
import type { HeldStatus } from '../ledger/status.ts'
import type { RunReport } from '../sync/run/report.ts'
import type { ProjectNames } from './project-names.ts'

interface NextStep {
  say: string
  run: string
}

/** What a summary knows beside the run. */
export interface RunContext {
  warehouse: Pick<OpenWarehouse, 'described' | 'embedded'>
  names: ProjectNames
  width: number
  held: readonly HeldStatus[]
  command(words?: string): string
}

export function nextSteps(report: RunReport, context: RunContext): NextStep[] {
  const { command, warehouse } = context
  if (report.outcome === 'complete') {
    return warehouse.embedded
      ? [{ say: 'keep this database running, for psql or a BI tool', run: command('database') }]
      : [{ say: 'see freshness and coverage', run: command('status') }]
  }
  const kinds = new Map<TroubleKind, Trouble | undefined>(
    troublesOf(report.streams).map((found) => [found.kind, found]),
  )
  if (report.code !== undefined && !kinds.has(report.code)) kinds.set(report.code, undefined)
  if (report.outcome === 'interrupted') kinds.set('interrupted', undefined)
  const steps = [...kinds].flatMap(([kind, trouble]) => {
    const step = stepsAfter(trouble, report, context)[kind]
    return step === undefined ? [] : [{ say: step[0], run: command(step[1]) }]
  })
  // Without a cure of its own, as when a newer run was faster, the state is what there is to see.
  if (steps.length === 0) steps.push({ say: 'see whether anything is missing', run: command('status') })
  // A command that fixes several problems is printed once, for the worst.
  return steps.filter(({ run }, index) => steps.findIndex((other) => other.run === run) === index)
}

/** What to do, and the command that does it; without one, the same again. */
type Cure = [say: string, words?: string]

function stepsAfter(
  trouble: Trouble | undefined,
  { command }: RunReport,
  { names, held: [held, ...others] }: RunContext,
): Record<TroubleKind, Cure | undefined> {
  const streams = listSome(trouble?.streams ?? [], 3) || 'what was refused'
  const projects = listSome((trouble?.projects ?? []).map(names.of), 3)
  return {
    key: [
      "set VISIBILITY_API_KEY (or the project's api_key) to a key that the service accepts, then check it",
      'check',
    ],
    project: [`leave ${projects} out of the projects, or set an api_key that may read it, then check`, 'check'],
    refused: [`correct ${streams} in the configuration or leave it out, as the reason says: it would be refused again`],
    incomplete: [`raise source.page_limit if the service allows it, or leave ${streams} out, then`],
    'bad-page': ['look at the reason: a newer version may read these rows, or max_bad_share may be raised; then'],
    transient: ['read again what failed temporarily'],
    dead: ['read again what was given up'],
    'worker-died': ['see why workers die, for example of too little memory; then read again'],
    error: ['see whether the database and its privileges are sound', 'check'],
    superseded: undefined,
    interrupted: [command === 'sync' ? 'go on where this run stopped' : 'read what this run left'],
    quarantined: ['look at the rows that failed validation', 'quarantine list'],
    unreconciled: ['see which days differ; later runs read them again', 'status'],
    held:
      held !== undefined && others.length === 0
        ? ['if the rows are really gone, let it through', held.accept.replace('visibility-sync ', '')]
        : ['see what is held, and the command that lets it through', 'status'],
  }
}
