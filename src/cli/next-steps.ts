import type { OpenWarehouse } from '../app/open-services.ts'
import type { ReportedCode } from '../core/failure-code.ts'
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
  const troubles = troublesOf(report.streams)
  const kinds = new Map<TroubleKind, Trouble | undefined>(troubles.map((trouble) => [trouble.kind, trouble]))
  if (report.code !== undefined && !kinds.has(report.code)) kinds.set(report.code, undefined)
  if (report.outcome === 'interrupted') kinds.set('interrupted', undefined)
  const steps = [...kinds].flatMap(([kind, trouble]) => stepFor(kind, trouble, report, context) ?? [])
  // Without a cure of its own, as when a newer run was faster, the state is what there is to see.
  if (steps.length === 0) steps.push({ say: 'see whether anything is missing', run: command('status') })
  // A command that fixes several problems is printed once, for the worst.
  return steps.filter(({ run }, index) => steps.findIndex((other) => other.run === run) === index)
}

function stepFor(
  kind: TroubleKind,
  trouble: Trouble | undefined,
  report: RunReport,
  { command, names, held }: RunContext,
): NextStep | undefined {
  const streams = listSome(trouble?.streams ?? [], 3) || 'what was refused'
  const again = command()
  const cures: Record<ReportedCode, NextStep | undefined> = {
    key: {
      say: "set VISIBILITY_API_KEY (or the project's api_key) to a key that the service accepts, then check it",
      run: command('check'),
    },
    project: {
      say: `leave ${listSome((trouble?.projects ?? []).map(names.of), 3)} out of the projects, or set an api_key that may read it, then check`,
      run: command('check'),
    },
    refused: {
      say: `correct ${streams} in the configuration or leave it out, as the reason says: it would be refused again`,
      run: again,
    },
    incomplete: {
      say: `raise source.page_limit if the service allows it, or leave ${streams} out, then`,
      run: again,
    },
    'bad-page': {
      say: 'look at the reason: a newer version may read these rows, or max_bad_share may be raised; then',
      run: again,
    },
    transient: { say: 'read again what failed temporarily', run: again },
    dead: { say: 'read again what was given up', run: again },
    'worker-died': { say: 'see why workers die, for example of too little memory; then read again', run: again },
    error: { say: 'see whether the database and its privileges are sound', run: command('check') },
    superseded: undefined,
    interrupted: {
      say: report.command === 'sync' ? 'go on where this run stopped' : 'read what this run left',
      run: again,
    },
  }
  if (kind === 'quarantined') return { say: 'look at the rows that failed validation', run: command('quarantine list') }
  if (kind === 'unreconciled')
    return { say: 'see which days differ; later runs read them again', run: command('status') }
  if (kind === 'held') {
    const [only, ...others] = held
    return only !== undefined && others.length === 0
      ? {
          say: 'if the rows are really gone, let it through',
          run: command(only.accept.replace('visibility-sync ', '')),
        }
      : { say: 'see what is held, and the command that lets it through', run: command('status') }
  }
  return cures[kind]
}
