import { count, listSome } from '../core/text.ts'
import { byStream, emptyReport, type RunReport, type StreamReport } from '../sync/report.ts'
import { renderTable, type TableColumn } from './table.ts'

const right = (title: string, value: (row: StreamReport) => number): TableColumn<StreamReport> => ({
  title,
  align: 'right',
  value,
})

const COLUMNS: TableColumn<StreamReport>[] = [
  { title: 'stream', value: (row) => row.stream },
  { title: 'days', align: 'right', value: (row) => (row.days === 0 && row.windows > 0 ? '–' : row.days) },
  right('rows read', (row) => row.rows_read),
  right('inserted', (row) => row.inserted),
  right('updated', (row) => row.updated),
  right('deleted', (row) => row.deleted),
  right('quarantined', (row) => row.quarantined),
  right('requests', (row) => row.requests),
  { title: 'seconds', align: 'right', value: (row) => row.seconds.toFixed(1) },
]

/** The summary of a run, for people. */
export function renderRun(report: RunReport, warehouse: { url: string; embedded: boolean }): string {
  const streams = byStream(report.streams)
  const total = {
    ...(byStream(report.streams.map((row) => ({ ...row, stream: 'total' })))[0] ?? emptyReport('', 'total')),
    seconds: report.seconds,
  }
  return [
    `Source:    ${report.source}`,
    '',
    renderTable(COLUMNS, streams, total),
    '',
    verdict(report, total),
    ...problems(report),
    ...report.notes.map((note) => `  note: ${note}`),
    '',
    `Warehouse: ${warehouse.url}${warehouse.embedded ? '  (embedded, in .data/)' : ''}`,
    nextStep(report, warehouse.embedded),
  ].join('\n')
}

function verdict(report: RunReport, total: StreamReport): string {
  const head = `Run ${report.run_id}: ${report.outcome}`
  if (report.outcome === 'interrupted') return `${head}. What was loaded is safe; the next run continues from there.`
  const changed = total.inserted + total.updated + total.deleted
  const effect =
    changed === 0
      ? `nothing to change: ${total.rows_read === 1 ? 'the one row' : `all ${count(total.rows_read, 'row')}`} read ${total.rows_read === 1 ? 'is' : 'are'} as they were`
      : total.unchanged > changed
        ? `almost nothing to change: ${count(changed, 'row')} changed, ${count(total.unchanged, 'row')} untouched`
        : `${count(changed, 'row')} changed, ${count(total.unchanged, 'row')} untouched`
  return report.error === undefined ? `${head}, ${effect}.` : `${head}: ${report.error}`
}

function problems(report: RunReport): string[] {
  return report.streams.flatMap((row) => {
    const place = `${row.stream} of ${row.project_id}`
    // What ended the whole run is said once, above.
    const own = row.failed.filter(({ error }) => error !== report.error && error !== `not read: ${report.error}`)
    const failed = own.map(({ range, error }) => `  failed: ${place}, ${range}: ${error}`)
    return [
      ...(failed.length <= 3
        ? failed
        : [...failed.slice(0, 3), `  failed: ${place}: ${failed.length - 3} more windows`]),
      ...row.held.map(
        ({ range, rows_present, rows_vanishing }) =>
          `  held: ${place}, ${range}: ${rows_vanishing} of ${rows_present} rows would have vanished, so none was deleted; see "visibility-sync status"`,
      ),
      ...(row.quarantined > 0 ? [`  quarantined: ${place}: ${count(row.quarantined, 'row')} failed validation`] : []),
    ]
  })
}

function nextStep(report: RunReport, embedded: boolean): string {
  if (report.outcome !== 'complete') {
    const streams = [
      ...new Set(
        report.streams
          .filter(({ failed, held, quarantined }) => failed.length + held.length + quarantined > 0)
          .map(({ stream }) => stream),
      ),
    ]
    return `Next:      npx visibility-sync status   shows what is missing${streams.length > 0 ? ` (${listSome(streams)})` : ''}; run the same command again to fill it`
  }
  return embedded
    ? 'Next:      npx visibility-sync database   keeps this database running, for psql or a BI tool'
    : 'Next:      npx visibility-sync status     shows freshness and coverage'
}
