import type { OpenWarehouse } from '../app/open-services.ts'
import { count, grouped, listSome } from '../core/text.ts'
import { AFTERMATH, type Trouble, type TroubleKind, troublesOf } from '../ledger/run-reason.ts'
import { byAccept, type HeldStatus, wordsOf } from '../ledger/status.ts'
import { byStream, emptyReport, type RunReport, type StreamReport } from '../sync/run/report.ts'
import type { ProjectNames } from './project-names.ts'
import { bad, paintOutcome, renderTable, type TableColumn, warning, wrap, wrapNote } from './table.ts'

const COLUMNS: TableColumn<StreamReport>[] = [
  { title: 'stream', value: (row) => row.stream },
  {
    title: 'days',
    align: 'right',
    value: (row) => (row.days === 0 && (row.windows > 0 || row.stream === NOT_OFFERED) ? '–' : row.days),
  },
  { title: 'rows read', value: (row) => row.rows_read },
  { title: 'inserted', value: (row) => row.inserted },
  { title: 'updated', value: (row) => row.updated, drop: 'if-zero' },
  { title: 'deleted', value: (row) => row.deleted, drop: 'if-zero' },
  { title: 'quarantined', value: (row) => row.quarantined, drop: 'if-zero' },
  { title: 'requests', value: (row) => row.requests, drop: 1 },
  { title: 'seconds', align: 'right', value: (row) => row.seconds.toFixed(1), drop: 2 },
]
const MOST_LISTED = 3
const NOT_OFFERED = 'not offered'
const MOST_MISSING = 6

export interface RunContext {
  warehouse: Pick<OpenWarehouse, 'described' | 'embedded'>
  names: ProjectNames
  width: number
  held: readonly HeldStatus[]
  command(words?: string): string
}

export function renderRun(report: RunReport, context: RunContext): string {
  const { width, warehouse } = context
  const total = totalOf(report)
  const rows = byStream(report.streams.filter(isOffered)).filter(
    ({ windows }) => windows > 0 || ['complete', 'partial'].includes(report.outcome),
  )
  // Requests for what the service does not offer, so that the column adds up.
  const others = report.streams.filter((row) => !isOffered(row) && row.requests > 0)
  if (rows.length > 0) rows.push(...byStream(others.map((row) => ({ ...row, stream: NOT_OFFERED }))))
  const missing = listSome([...new Set(others.map(({ stream }) => stream))], MOST_MISSING)
  const noteOf = ({ stream }: StreamReport) =>
    stream === NOT_OFFERED ? `asked for, but the service has no ${missing}; asked again later` : undefined
  const steps = nextSteps(report, context).flatMap(({ say, run }, index) => [
    wrap(`${say}:`, width, index === 0 ? 'Next:      ' : LABEL, LABEL),
    `${LABEL}  ${run}`,
  ])
  return [
    wrap(report.source, width, 'Source:    '),
    '',
    ...(rows.length === 0 ? [] : [renderTable({ rows, width, footer: total, note: noteOf }, COLUMNS), '']),
    wrap(verdictLine(report, total), width),
    ...problems(report, context),
    ...report.notes.map((note) => wrapNote(`${warning('!')} ${context.names.within(note)}`, width, '  ', '    ')),
    '',
    wrap(warehouse.described, width, 'Warehouse: '),
    ...steps,
  ].join('\n')
}

const LABEL = ' '.repeat('Warehouse: '.length)

function totalOf(report: RunReport): StreamReport {
  const [total] = byStream(report.streams.map((row) => ({ ...row, stream: 'total' })))
  return { ...(total ?? emptyReport('', 'total')), seconds: report.seconds }
}

/** "Run 12: partial, 40 rows changed, 1,200 untouched (52 requests, 3.7 s)." */
function verdictLine(report: RunReport, total: StreamReport): string {
  const cost = `(${count(total.requests, 'request')}, ${report.seconds.toFixed(1)} s)`
  return `Run ${report.run_id}: ${paintOutcome[report.outcome](report.outcome)}, ${effectOf(report, total)} ${cost}.`
}

function effectOf({ outcome }: RunReport, total: StreamReport): string {
  const { rows_read, unchanged, windows } = total
  const changed = total.inserted + total.updated + total.deleted
  const kept = outcome === 'interrupted' ? '; what was loaded is kept' : ''
  if (windows === 0) return outcome === 'complete' ? 'nothing was due' : 'nothing was loaded'
  const untouched = unchanged === 0 ? '' : `, ${grouped(unchanged)} untouched`
  if (changed > 0) return `${count(changed, 'row')} changed${untouched}${kept}`
  if (rows_read === 0) return `the service has no rows for what was read${kept}`
  if (outcome === 'complete' && unchanged === rows_read)
    return `nothing to change: ${rows_read === 1 ? 'the one row read is as it was' : `all ${count(rows_read, 'row')} read are as they were`}`
  const same = `${grouped(unchanged)} of ${count(rows_read, 'row')} read`
  return `no row changed: ${same} ${unchanged === 1 ? 'is as it was' : 'are as they were'}${kept}`
}

function problems(report: RunReport, context: RunContext): string[] {
  const mark = (trouble: Trouble['kind']) =>
    ['held', 'quarantined', 'superseded', 'interrupted'].includes(trouble) ? warning('!') : bad('✗')
  const ended =
    report.error === undefined
      ? []
      : [wrap(`${bad('✗')} ${context.names.within(report.error)}`, context.width, '  ', '    ')]
  const others = troublesOf(report.streams).flatMap((trouble) => {
    const { kind, text, occurrences } = trouble
    // The error of the whole run is the reason of each of these.
    if (report.error !== undefined && AFTERMATH.has(kind))
      return [wrap(`${count(trouble.count, 'window')} not read`, context.width, '    ')]
    const details = kind === 'interrupted' ? [] : occurrenceLines(occurrences, context)
    return [wrap(`${mark(kind)} ${text}`, context.width, '  ', '    '), ...details]
  })
  return [...ended, ...others]
}

function occurrenceLines(occurrences: Trouble['occurrences'], { names, width }: RunContext): string[] {
  const shown = occurrences.slice(0, MOST_LISTED).map(({ stream, project_id, range, detail }) => {
    const where = `${stream} of ${names.of(project_id)}${range === undefined ? '' : `, ${range}`}`
    return wrap(`${where}: ${names.within(detail)}`, width, '    ', '      ')
  })
  const more = occurrences.length - MOST_LISTED
  return more > 0 ? [...shown, `    … and ${grouped(more)} more; --json shows all`] : shown
}

function isOffered({ not_offered }: StreamReport): boolean {
  return not_offered === undefined
}

interface NextStep {
  say: string
  run: string
}

function nextSteps(report: RunReport, context: RunContext): NextStep[] {
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
    const cures = kind === 'held' ? curesOfHeld(context.held) : [stepsAfter(trouble, report, context)[kind]]
    return cures.flatMap((cure) => (cure === undefined ? [] : [{ say: cure[0], run: command(cure[1]) }]))
  })
  // Without a cure of its own, as when a newer run was faster, the state is what there is to see.
  if (steps.length === 0) steps.push({ say: 'see whether anything is missing', run: command('status') })
  // A command that fixes several problems is printed once, for the worst.
  return steps.filter(({ run }, index) => steps.findIndex((other) => other.run === run) === index)
}

/** The advice, and the command to run. Without a command, the same one again. */
type Cure = [say: string, words?: string]

function stepsAfter(
  trouble: Trouble | undefined,
  { command }: RunReport,
  { names }: RunContext,
): Record<Exclude<TroubleKind, 'held'>, Cure | undefined> {
  const streams = listSome(trouble?.streams ?? [], 3) || 'what was refused'
  const projects = listSome((trouble?.projects ?? []).map(names.of), 3)
  return {
    key: [
      "set VISIBILITY_API_KEY (or the project's api_key) to a key that the service accepts, then check it",
      'check',
    ],
    project: [
      `check the id of ${projects} in VISIBILITY_PROJECTS, its plan, and whether the key may read it; or leave it out. Then`,
      'check',
    ],
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
    unreconciled: [
      `see which days differ; later runs read them again. Only if the service counts a stream in another way, set reconcile.ignore: [${streams}]`,
      'status',
    ],
  }
}

function curesOfHeld(held: readonly HeldStatus[]): Cure[] {
  const groups = byAccept(held)
  if (groups.length === 0 || groups.length > MOST_LISTED)
    return [['see what is held, and the command that lets it through', 'status']]
  return groups.map(([{ accept }]) => ['if the rows are really gone, let it through', wordsOf(accept)])
}
