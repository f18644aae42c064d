// node bench/answer-memory.mjs: the peak memory of the real command for answers that are as large as source.max_response_mb
// allows and made to cost as much as possible. Exits 1 where one of them takes more than docs/reference/configuration.md says.
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { gzipSync } from 'node:zlib'
import { startEmbedded } from '../dist/warehouse/embedded/server.js'
import { watchMemory } from './measure.mjs'

const { values: options } = parseArgs({
  options: {
    bin: { type: 'string', default: fileURLToPath(new URL('../bin/visibility-sync.js', import.meta.url)) },
    only: { type: 'string', default: '' },
    streams: { type: 'string', default: 'brand_daily,prompts,project_profile' },
    bar: { type: 'string', default: '450' },
    days: { type: 'string', default: '1' },
  },
})
const BYTES = 63 * 1_048_576
const ROWS = 10_000
const DAY = '2026-01-01'

const filled = (start, piece, end) =>
  Buffer.concat([
    Buffer.from(start),
    Buffer.alloc(
      Math.floor((BYTES - start.length - end.length) / Buffer.byteLength(piece)) * Buffer.byteLength(piece),
      piece,
    ),
    Buffer.from(end),
  ])
const nested = (open, middle, close) => {
  const depth = Math.floor(BYTES / (open.length + close.length)) - 8
  return Buffer.concat([
    Buffer.from('{"data":['),
    Buffer.alloc(depth * open.length, open),
    Buffer.from(middle),
    Buffer.alloc(depth * close.length, close),
    Buffer.from(']}'),
  ])
}
/** As many rows as a page has, with so much in each that they fill the answer. */
const rows = (row, count = ROWS) => {
  const room = Math.floor(BYTES / count) - 400
  return Buffer.from(`{"data":[${Array.from({ length: count }, (_, index) => row(index, room)).join(',')}]}`)
}
const sound = (index, more) =>
  `{"id":"pr_${index}","messages":[],"brand":{"id":"kw_${index}","name":"B"},"mention_count":1,"visibility":0.5,"visibility_count":1,"visibility_total":2,"date":"${DAY}"${more}}`
const times = (text, room) => text.repeat(Math.floor(room / Buffer.byteLength(text)))

const ANSWERS = {
  'empty objects': () => filled('{"data":[{}', ',{}', ']}'),
  'tiny numbers': () => filled('{"data":[1', ',1', ']}'),
  'short texts': () => filled('{"data":[""', ',""', ']}'),
  'lists in lists': () => nested('[', '', ']'),
  'lists without end': () => filled('{"data":[', '[', ''),
  'objects in objects': () => nested('{"a":', '1', '}'),
  'one text': () => filled('{"data":["', 'x', '"]}'),
  'one text of two-byte letters': () => filled('{"data":["', 'ł', '"]}'),
  'one text of escapes': () => filled('{"data":["', '\\u0142', '"]}'),
  'a text before the list': () => filled('{"note":"', 'ł', '","data":[]}'),
  'a list behind the list': () => filled('{"data":[],"more":[{}', ',{}', ']}'),
  'another list instead': () => filled('{"items":[{}', ',{}', ']}'),
  'a list alone': () => filled('[{}', ',{}', ']'),
  spaces: () => filled('{"data":[', ' ', ']}'),
  'rows of empty objects': () => rows((index, room) => sound(index, `,"x":[${times('{},', room)}{}]`)),
  'rows of empty objects, in lines': () => rows((index, room) => `\n${sound(index, `,"x":[${times('{},', room)}{}]`)}`),
  'rows of lists in lists': () =>
    rows((index, room) => sound(index, `,"x":${times('[', room / 2)}${times(']', room / 2)}`)),
  'bad rows of empty objects': () => rows((_, room) => `{"x":[${times('{},', room)}{}]}`),
  'bad rows of two-byte letters': () => rows((_, room) => `{"x":"${times('ł', room)}"}`),
  'rows with long texts': () => rows((index, room) => sound(index, `,"x":"${index}${times('ł', room)}"`)),
  'rows with many new fields': () =>
    rows((index, room) => sound(index, Array.from({ length: room / 14 }, (_, at) => `,"f${index}_${at}":1`).join(''))),
  'brands with long names': () => rows((index, room) => sound(index, '').replace('"B"', `"${times('x', room)}"`), 63),
  'rows with long ids': () =>
    rows((index) =>
      sound(
        index,
        ['prompt', 'model', 'topic', 'tag', 'chat']
          .map((name) => `,"${name}":{"id":"${index}${'ł'.repeat(240)}"}`)
          .join(''),
      ),
    ),
  'contradicting rows': () =>
    rows((index, room) => sound(index % 5000, `,"position":${index},"x":[${times('{},', room)}{}]`)),
  'prompts with long texts': () =>
    rows((index, room) => `{"id":"pr_${index}","messages":[{"content":"${'ł'.repeat(room / 2)}"}]}`, ROWS - 1),
  'prompts with many tags': () =>
    rows(
      (index) =>
        `{"id":"pr_${index}","messages":[],"tags":[${Array.from({ length: 100 }, (_, at) => `{"id":"t${at}_${index % 400}"}`).join(',')}]}`,
      ROWS - 1,
    ),
  'prompts with many different tags': () =>
    rows(
      (index) =>
        `{"id":"pr_${index}","messages":[],"tags":[${Array.from({ length: 100 }, (_, at) => `{"id":"t${at}_${index}"}`).join(',')}]}`,
      ROWS - 1,
    ),
  'a profile of texts': () => filled('{"profile":{"name":"x","brandPresentation":["', 'ł', '"]}}'),
  'a profile of empty lists': () => filled('{"profile":{"name":"x","brandPresentation":[[]', ',[]', ']}}'),
  'an error with a body': () => filled('{"message":[[]', ',[]', ']}'),
}

const LONGEST_MS = 120_000
const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-memory-'))
const postgres = await startEmbedded({ folder: join(folder, 'data') })
let answer = { body: Buffer.alloc(0), headers: {}, status: 200 }
const service = createServer((request, response) => {
  request.resume()
  request.on('end', () => response.writeHead(answer.status, answer.headers).end(answer.body))
})
await new Promise((done) => service.listen(0, '127.0.0.1', done))

const config = join(folder, 'sync.yaml')
const write = (streams) =>
  writeFileSync(
    config,
    JSON.stringify({
      source: { max_attempts: 1, requests_per_minute: 100_000, patience_seconds: 1 },
      streams: streams.filter((name) => !name.startsWith('brand')),
      reports: [{ name: 'brand_daily', dimensions: ['date', 'prompt_id', 'model_id'] }],
    }),
  )

async function measure(stream) {
  write([stream])
  const last = new Date(Date.parse(DAY) + (Number(options.days) - 1) * 86_400_000).toISOString().slice(0, 10)
  const range = ['--from', DAY, '--to', last]
  const command = stream.startsWith('brand') ? ['backfill', ...range] : ['sync']
  const started = Date.now()
  const child = spawn(process.execPath, [options.bin, ...command, '--stream', stream, '--json'], {
    cwd: folder,
    env: {
      PATH: process.env.PATH,
      VISIBILITY_API_URL: `http://127.0.0.1:${service.address().port}/v1`,
      VISIBILITY_API_KEY: 'key',
      VISIBILITY_PROJECTS: 'or_1',
      DATABASE_URL: postgres.url,
      VISIBILITY_CONFIG: config,
      LOG_LEVEL: 'silent',
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const stop = watchMemory(child.pid)
  const timer = setTimeout(() => child.kill('SIGKILL'), LONGEST_MS)
  let told = ''
  child.stdout.on('data', (data) => (told += data))
  child.stderr.on('data', (data) => (told += data))
  const code = await new Promise((done) => child.on('close', done))
  clearTimeout(timer)
  const failed =
    /"(?:reason|error)": ?"((?:[^"\\]|\\.)*)"/.exec(told)?.[1] ??
    /"outcome": ?"\w+"/.exec(told)?.[0] ??
    told.slice(-200)
  return { peak: Math.round(stop()), code, seconds: (Date.now() - started) / 1000, failed }
}

async function end() {
  service.closeAllConnections()
  service.close()
  await postgres.release()
  rmSync(folder, { recursive: true, force: true })
}
process.on('SIGTERM', () => end().then(() => process.exit(1)))

let over = 0
const line = (cells) => console.log(cells.join(' | '))
line(['answer', 'stream', 'packed', 'MB at the peak', 'seconds', 'exit', 'said'])
for (const [name, make] of Object.entries(ANSWERS)) {
  if (!name.includes(options.only)) continue
  const body = make()
  for (const stream of options.streams.split(',')) {
    if (name.startsWith('a profile') !== (stream === 'project_profile') && !/^an error|^one text$/.test(name)) continue
    if (name.startsWith('prompts') && stream !== 'prompts') continue
    for (const packed of [false, true]) {
      answer = {
        status: name.startsWith('an error') ? 500 : 200,
        headers: { 'content-type': 'application/json', ...(packed && { 'content-encoding': 'gzip' }) },
        body: packed ? gzipSync(body, { level: 1 }) : body,
      }
      const { peak, code, seconds, failed } = await measure(stream)
      if (peak > Number(options.bar)) over++
      line([name, stream, packed ? 'gzip' : '', peak, seconds.toFixed(1), code, failed.slice(0, 150)])
    }
  }
}
await end()
process.exitCode = over === 0 ? 0 : 1
