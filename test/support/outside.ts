import { createServer } from 'node:http'
import { type AddressInfo, createServer as createTcpServer, type Socket } from 'node:net'
import { text as textOf } from 'node:stream/consumers'
import { Ajv2020 } from 'ajv/dist/2020.js'
import addFormats from 'ajv-formats'
import { closeLater } from './close-later.ts'
import { listening } from './proxy.ts'

interface Heard {
  method: string
  path: string
  headers: Record<string, string | string[] | undefined>
  body: string
  /** What it was answered with. */
  status: number | 'nothing'
}

/** Those outside: whatever is sent here is kept, and answered, or not. */
export interface Outside {
  url: string
  heard: Heard[]
  close(): Promise<void>
}

export async function startOutside(answer: () => number | 'nothing' = () => 200): Promise<Outside> {
  const heard: Heard[] = []
  const server = createServer((message, reply) => {
    void textOf(message).then((body) => {
      const status = answer()
      heard.push({ method: message.method!, path: message.url!, headers: message.headers, body, status })
      if (status !== 'nothing') reply.writeHead(status).end('ok')
    })
  })
  const { origin, close } = await listening(server)
  return { url: origin, heard, close }
}

export interface Mail {
  login: string
  from: string
  to: string[]
  data: string
}

/** A mail server that takes everything, or says nothing at all. */
export async function startMailServer(
  isSilent: () => boolean = () => false,
): Promise<{ port: number; mails: Mail[]; close(): Promise<void> }> {
  const mails: Mail[] = []
  const sockets = new Set<Socket>()
  const server = createTcpServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    if (isSilent()) return
    let mail: Mail = { login: '', from: '', to: [], data: '' }
    let isData = false
    let left = ''
    const say = (line: string) => socket.write(`${line}\r\n`)
    const command = (line: string) => {
      const word = line.slice(0, 4).toUpperCase()
      if (word === 'EHLO') return say('250-test\r\n250 AUTH PLAIN')
      if (word === 'AUTH') {
        mail.login = Buffer.from(line.split(' ')[2]!, 'base64').toString().replaceAll('\0', ' ').trim()
        return say('235 in')
      }
      if (word === 'MAIL') mail.from = /<(.*?)>/.exec(line)![1]!
      if (word === 'RCPT') mail.to.push(/<(.*?)>/.exec(line)![1]!)
      if (word === 'DATA') {
        isData = true
        return say('354 go on')
      }
      if (word === 'QUIT') return socket.end('221 bye\r\n')
      return say('250 ok')
    }
    socket.on('data', (chunk) => {
      left += chunk.toString()
      for (let end = left.indexOf('\r\n'); end >= 0; end = left.indexOf('\r\n')) {
        const line = left.slice(0, end)
        left = left.slice(end + 2)
        if (!isData) command(line)
        else if (line === '.') {
          isData = false
          mails.push(mail)
          mail = { ...mail, to: [], data: '' }
          say('250 taken')
        } else mail.data += `${line}\n`
      }
    })
    say('220 test')
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  return {
    port: (server.address() as AddressInfo).port,
    mails,
    close: closeLater(() => {
      for (const socket of sockets) socket.destroy()
      server.close()
    }),
  }
}

/** The samples of an exposition, checked as Prometheus would: types before samples, each sample once, a number each. */
export function parseExposition(text: string): Map<string, number> {
  if (!text.endsWith('\n')) throw new Error('the last line has no end')
  const types = new Map<string, string>()
  const samples = new Map<string, number>()
  for (const line of text.split('\n').filter((one) => one !== '')) {
    const meta = /^# (HELP|TYPE) ([a-z_]+) (.+)$/.exec(line)
    if (meta !== null) {
      if (meta[1] === 'TYPE') {
        if (types.has(meta[2]!)) throw new Error(`a second type: ${line}`)
        types.set(meta[2]!, meta[3]!)
      }
      continue
    }
    const sample = /^([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*\})? (\S+)$/.exec(line)
    if (sample === null) throw new Error(`not a sample: ${line}`)
    const [, name, labels = '', value] = sample
    const family = types.has(name!) ? name! : name!.replace(/_(bucket|sum|count)$/, '')
    if (!types.has(family)) throw new Error(`no type: ${line}`)
    const number = value === '+Inf' ? Number.POSITIVE_INFINITY : Number(value)
    if (Number.isNaN(number)) throw new Error(`no number: ${line}`)
    if (samples.has(name! + labels)) throw new Error(`twice: ${line}`)
    samples.set(name! + labels, number)
  }
  return samples
}

/*
 * What OpenLineage 2-0-2 demands of a RunEvent and of the facets that are sent, and what we demand beyond it: no facet and
 * no field that the specification does not name. test/acceptance/telemetry.mjs holds events to the published schemas.
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
