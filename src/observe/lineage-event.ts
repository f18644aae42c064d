import type { Config } from '../core/config/load.ts'
import type { Column, Stream } from '../streams/stream.ts'
import type { RunReport, StreamReport } from '../sync/run/report.ts'
import { SHOWN_TYPES } from '../warehouse/schema/stream-tables.ts'
import { NO_RUN } from './findings.ts'

/* Runs as events of OpenLineage 2-0-2: from the streams of the service to the tables of the warehouse. */

const SPEC = 'https://openlineage.io/spec'

export interface LineageRun {
  uuid: string
  /** The recorded source of the warehouse: an address, or "reference". */
  sourceAddress: string
  /** Without a password. */
  warehouse: string
  config: Pick<Config, 'lineage' | 'warehouse'>
  command: string
  version: string
  startedAt: Date
  streams: readonly Stream[]
}

export type LineageEvent = Record<string, unknown>

// Partial is not success: it is sent as a failure, with the rows that were written.
const EVENT_TYPES = { complete: 'COMPLETE', partial: 'FAIL', failed: 'FAIL', interrupted: 'ABORT' } as const

export function eventOf(run: LineageRun, at: Date, end?: RunReport & { reason: string | undefined }): LineageEvent {
  const { version, streams, config } = run
  const source = URL.canParse(run.sourceAddress) ? new URL(run.sourceAddress) : undefined
  const { protocol, hostname, port, pathname } = new URL(run.warehouse)
  const warehouse = `${protocol.replace('postgresql:', 'postgres:')}//${hostname}:${port || '5432'}`
  const schema = `${decodeURIComponent(pathname.slice(1))}.${config.warehouse.schema}`
  const producer = `urn:visibility-sync:${version}`
  const facet = (schemaUrl: string, fields: object) => ({ _producer: producer, _schemaURL: schemaUrl, ...fields })
  const standard = (name: string, fields: object) => facet(`${SPEC}/facets/${name}.json`, fields)
  const dataset = (namespace: string, name: string, columns: readonly Column[]) => ({
    namespace,
    name,
    facets: {
      schema: standard('1-2-0/SchemaDatasetFacet', {
        fields: columns.map((column) => ({ name: column.name, type: SHOWN_TYPES[column.type] })),
      }),
      dataSource: standard('1-0-1/DatasourceDatasetFacet', { name: namespace, uri: namespace }),
    },
  })
  const table = (name: string, columns: readonly Column[]) =>
    dataset(warehouse, `${schema}.${name}`, [PROJECT, ...columns])
  const rowsOf = (name: string, ...fields: Sum[]) =>
    sumOf(end?.streams.filter(({ stream }) => stream === name) ?? [], ...fields)
  return {
    eventType: end === undefined ? 'START' : EVENT_TYPES[end.outcome],
    eventTime: at.toISOString(),
    producer,
    schemaURL: `${SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent`,
    run: {
      runId: run.uuid,
      facets: {
        nominalTime: standard('1-0-1/NominalTimeRunFacet', { nominalStartTime: run.startedAt.toISOString() }),
        processing_engine: standard('1-1-1/ProcessingEngineRunFacet', { name: 'visibility-sync', version }),
        ...(end && {
          visibilitySync_run: facet('urn:visibility-sync:facet:run:1', {
            outcome: end.outcome,
            ...(end.run_id === NO_RUN ? {} : { runId: end.run_id }),
            seconds: end.seconds,
            requests: sumOf(end.streams, 'requests'),
            rowsDeleted: sumOf(end.streams, 'deleted'),
            projects: new Set(end.streams.map(({ project_id }) => project_id)).size,
          }),
        }),
        ...(end &&
          end.outcome !== 'complete' && {
            errorMessage: standard('1-0-1/ErrorMessageRunFacet', {
              message: end.reason ?? 'nothing more is known',
              programmingLanguage: 'TypeScript',
            }),
          }),
      },
    },
    job: {
      namespace: config.lineage.namespace,
      name: `visibility-sync.${run.command}`,
      facets: {
        jobType: standard('2-0-4/JobTypeJobFacet', {
          processingType: 'BATCH',
          integration: 'VISIBILITY_SYNC',
          jobType: 'JOB',
        }),
        documentation: standard('1-1-0/DocumentationJobFacet', {
          description: 'Keeps a Postgres warehouse in step with an AI answer visibility reporting service.',
        }),
      },
    },
    inputs: streams.map(({ name, columns }) => ({
      ...dataset(
        source?.origin ?? `urn:visibility-sync:${run.sourceAddress}`,
        `${source?.pathname ?? ''}/${name}`,
        columns,
      ),
      ...(end && {
        inputFacets: {
          inputStatistics: standard('1-0-0/InputStatisticsInputDatasetFacet', { rowCount: rowsOf(name, 'rows_read') }),
        },
      }),
    })),
    outputs: streams.flatMap((stream) => [
      {
        ...table(stream.table, stream.columns),
        ...(end && {
          outputFacets: {
            outputStatistics: standard('1-0-2/OutputStatisticsOutputDatasetFacet', {
              rowCount: rowsOf(stream.name, 'inserted', 'updated'),
            }),
          },
        }),
      },
      ...(stream.by === 'list' ? (stream.children ?? []) : []).map((child) => table(child.table, child.columns)),
    ]),
  }
}

const PROJECT: Column = { name: 'project_id', type: 'text' }

type Sum = 'rows_read' | 'inserted' | 'updated' | 'deleted' | 'requests'

function sumOf(streams: readonly StreamReport[], ...fields: Sum[]): number {
  return streams.reduce((total, stream) => fields.reduce((sum, field) => sum + stream[field], total), 0)
}
