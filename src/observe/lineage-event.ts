import type { Column, ColumnType, Stream } from '../streams/stream.ts'
import type { RunReport, StreamReport } from '../sync/run/report.ts'

/* Runs as events of OpenLineage 2-0-2: from the streams of the service to the tables of the warehouse. */

const SPEC = 'https://openlineage.io/spec'
const SCHEMA = `${SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent`

/** What stays the same from the first event of a run to its last. */
export interface LineageRun {
  uuid: string
  namespace: string
  command: string
  version: string
  startedAt: Date
  source: { namespace: string; path: string }
  warehouse: { namespace: string; database: string; schema: string }
  streams: readonly Stream[]
}

export interface LineageEnd {
  outcome: RunReport['outcome']
  runId: number | undefined
  streams: readonly StreamReport[]
  seconds: number
  reason: string | undefined
}

export type LineageEvent = Record<string, unknown>

const EVENT_TYPES = { complete: 'COMPLETE', partial: 'FAIL', failed: 'FAIL', interrupted: 'ABORT' } as const

export function startEvent(run: LineageRun): LineageEvent {
  return eventOf(run, 'START', run.startedAt, {}, () => undefined)
}

/** Partial is not success: it is sent as a failure, with what was written all the same. */
export function endEvent(run: LineageRun, at: Date, end: LineageEnd): LineageEvent {
  const facet = facetsOf(run)
  const sum = (
    streams: readonly StreamReport[],
    field: 'rows_read' | 'inserted' | 'updated' | 'deleted' | 'requests',
  ) => streams.reduce((total, stream) => total + stream[field], 0)
  const runFacets = {
    visibilitySync_run: {
      ...facet('urn:visibility-sync:facet:run:1'),
      outcome: end.outcome,
      ...(end.runId === undefined ? {} : { runId: end.runId }),
      seconds: end.seconds,
      requests: sum(end.streams, 'requests'),
      rowsDeleted: sum(end.streams, 'deleted'),
      projects: new Set(end.streams.map(({ project_id }) => project_id)).size,
    },
    ...(end.outcome === 'complete'
      ? {}
      : {
          errorMessage: {
            ...facet(`${SPEC}/facets/1-0-1/ErrorMessageRunFacet.json`),
            message: end.reason ?? 'nothing more is known',
            programmingLanguage: 'TypeScript',
          },
        }),
  }
  return eventOf(run, EVENT_TYPES[end.outcome], at, runFacets, (name) => {
    const own = end.streams.filter(({ stream }) => stream === name)
    return { read: sum(own, 'rows_read'), written: sum(own, 'inserted') + sum(own, 'updated') }
  })
}

function eventOf(
  run: LineageRun,
  eventType: string,
  at: Date,
  runFacets: Record<string, unknown>,
  rowsOf: (stream: string) => { read: number; written: number } | undefined,
): LineageEvent {
  const facet = facetsOf(run)
  return {
    eventType,
    eventTime: at.toISOString(),
    producer: producerOf(run),
    schemaURL: SCHEMA,
    run: {
      runId: run.uuid,
      facets: {
        nominalTime: {
          ...facet(`${SPEC}/facets/1-0-1/NominalTimeRunFacet.json`),
          nominalStartTime: run.startedAt.toISOString(),
        },
        processing_engine: {
          ...facet(`${SPEC}/facets/1-1-1/ProcessingEngineRunFacet.json`),
          name: 'visibility-sync',
          version: run.version,
        },
        ...runFacets,
      },
    },
    job: {
      namespace: run.namespace,
      name: `visibility-sync.${run.command}`,
      facets: {
        jobType: {
          ...facet(`${SPEC}/facets/2-0-4/JobTypeJobFacet.json`),
          processingType: 'BATCH',
          integration: 'VISIBILITY_SYNC',
          jobType: 'JOB',
        },
        documentation: {
          ...facet(`${SPEC}/facets/1-1-0/DocumentationJobFacet.json`),
          description: 'Keeps a Postgres warehouse in step with an AI answer visibility reporting service.',
        },
      },
    },
    inputs: run.streams.map((stream) => inputOf(run, stream, rowsOf(stream.name)?.read)),
    outputs: run.streams.flatMap((stream) => outputsOf(run, stream, rowsOf(stream.name)?.written)),
  }
}

function inputOf(run: LineageRun, stream: Stream, rows: number | undefined): Record<string, unknown> {
  const facet = facetsOf(run)
  const { namespace, path } = run.source
  return {
    namespace,
    name: `${path}/${stream.name}`,
    facets: { ...schemaFacet(run, stream.columns), ...sourceFacet(run, namespace) },
    ...(rows === undefined
      ? {}
      : {
          inputFacets: {
            inputStatistics: { ...facet(`${SPEC}/facets/1-0-0/InputStatisticsInputDatasetFacet.json`), rowCount: rows },
          },
        }),
  }
}

/** The table of a stream, and those of what its rows hold, such as the tags of prompts. */
function outputsOf(run: LineageRun, stream: Stream, rows: number | undefined): Record<string, unknown>[] {
  const facet = facetsOf(run)
  const { namespace, database, schema } = run.warehouse
  const project: Column = { name: 'project_id', type: 'text' }
  const table = (name: string, columns: readonly Column[]) => ({
    namespace,
    name: `${database}.${schema}.${name}`,
    facets: { ...schemaFacet(run, [project, ...columns]), ...sourceFacet(run, namespace) },
  })
  const children = stream.by === 'list' ? (stream.children ?? []) : []
  return [
    {
      ...table(stream.table, stream.columns),
      ...(rows === undefined
        ? {}
        : {
            outputFacets: {
              outputStatistics: {
                ...facet(`${SPEC}/facets/1-0-2/OutputStatisticsOutputDatasetFacet.json`),
                rowCount: rows,
              },
            },
          }),
    },
    ...children.map((child) => table(child.table, child.columns)),
  ]
}

const TYPES: Record<ColumnType, string> = {
  text: 'text',
  double: 'double precision',
  date: 'date',
  jsonb: 'jsonb',
  boolean: 'boolean',
}

function schemaFacet(run: LineageRun, columns: readonly Column[]): Record<string, unknown> {
  const fields = columns.map(({ name, type }) => ({ name, type: TYPES[type] }))
  return { schema: { ...facetsOf(run)(`${SPEC}/facets/1-2-0/SchemaDatasetFacet.json`), fields } }
}

function sourceFacet(run: LineageRun, uri: string): Record<string, unknown> {
  return { dataSource: { ...facetsOf(run)(`${SPEC}/facets/1-0-1/DatasourceDatasetFacet.json`), name: uri, uri } }
}

function producerOf({ version }: LineageRun): string {
  return `urn:visibility-sync:${version}`
}

function facetsOf(run: LineageRun): (schema: string) => { _producer: string; _schemaURL: string } {
  return (schema) => ({ _producer: producerOf(run), _schemaURL: schema })
}
