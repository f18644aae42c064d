import { Ajv2020 } from 'ajv/dist/2020.js'
import addFormats from 'ajv-formats'

/*
 * What OpenLineage 2-0-2 demands of a RunEvent and of the facets that are sent, and what we demand beyond it: no facet and
 * no field that the specification does not name. scripts/lineage-acceptance.mjs holds events to the published schemas.
 */

const text = { type: 'string', minLength: 1 }
const time = { type: 'string', format: 'date-time' }
const uri = { type: 'string', format: 'uri' }
const count = { type: 'integer', minimum: 0 }

function object(properties: Record<string, unknown>, optional: readonly string[] = []): Record<string, unknown> {
  const required = Object.keys(properties).filter((name) => !optional.includes(name))
  return { type: 'object', properties, required, additionalProperties: false }
}

function facet(schema: string, properties: Record<string, unknown>, optional: readonly string[] = []) {
  const base = { _producer: uri, _schemaURL: { const: `https://openlineage.io/spec/facets/${schema}.json` } }
  return object({ ...base, ...properties }, optional)
}

const dataset = {
  namespace: uri,
  name: text,
  facets: object({
    schema: facet('1-2-0/SchemaDatasetFacet', {
      fields: { type: 'array', minItems: 1, items: object({ name: text, type: text }) },
    }),
    dataSource: facet('1-0-1/DatasourceDatasetFacet', { name: text, uri }),
  }),
}

const event = object({
  eventType: { enum: ['START', 'COMPLETE', 'FAIL', 'ABORT'] },
  eventTime: time,
  producer: uri,
  schemaURL: { const: 'https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent' },
  run: object({
    runId: { type: 'string', format: 'uuid' },
    facets: object(
      {
        nominalTime: facet('1-0-1/NominalTimeRunFacet', { nominalStartTime: time }),
        processing_engine: facet('1-1-1/ProcessingEngineRunFacet', { name: text, version: text }),
        errorMessage: facet('1-0-1/ErrorMessageRunFacet', { message: text, programmingLanguage: text }),
        visibilitySync_run: object(
          {
            _producer: uri,
            _schemaURL: uri,
            outcome: { enum: ['complete', 'partial', 'failed', 'interrupted'] },
            runId: count,
            seconds: { type: 'number', minimum: 0 },
            requests: count,
            rowsDeleted: count,
            projects: count,
          },
          ['runId'],
        ),
      },
      ['errorMessage', 'visibilitySync_run'],
    ),
  }),
  job: object({
    namespace: text,
    name: text,
    facets: object({
      jobType: facet('2-0-4/JobTypeJobFacet', { processingType: { const: 'BATCH' }, integration: text, jobType: text }),
      documentation: facet('1-1-0/DocumentationJobFacet', { description: text }),
    }),
  }),
  inputs: {
    type: 'array',
    items: object(
      {
        ...dataset,
        inputFacets: object({ inputStatistics: facet('1-0-0/InputStatisticsInputDatasetFacet', { rowCount: count }) }),
      },
      ['inputFacets'],
    ),
  },
  outputs: {
    type: 'array',
    items: object(
      {
        ...dataset,
        outputFacets: object({
          outputStatistics: facet('1-0-2/OutputStatisticsOutputDatasetFacet', { rowCount: count }),
        }),
      },
      ['outputFacets'],
    ),
  },
})

const ajv = new Ajv2020({ strict: true, allErrors: true })
addFormats.default(ajv)
const validate = ajv.compile(event)

/** What is wrong with an event; nothing where it is sound. */
export function lineageFaults(candidate: unknown): string[] {
  return validate(candidate) ? [] : validate.errors!.map(({ instancePath, message }) => `${instancePath}: ${message}`)
}
