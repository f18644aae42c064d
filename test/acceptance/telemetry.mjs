// What is told outside, tried with the real programs: a Pushgateway takes what commands push, promtool finds nothing to say of
// their metrics and of those of serve, and OpenLineage's published schemas accept their events.
//
//   PUSHGATEWAY=prometheus-pushgateway PROMTOOL=promtool OPENLINEAGE_SPEC=…/OpenLineage/spec node test/acceptance/telemetry.mjs
//
// Debian has the first two as prometheus-pushgateway and prometheus; the third is the folder spec/ of the OpenLineage repository.
import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

const bin = fileURLToPath(new URL('../../bin/visibility-sync.js', import.meta.url))
const { PUSHGATEWAY = 'prometheus-pushgateway', PROMTOOL = 'promtool', OPENLINEAGE_SPEC } = process.env
const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-telemetry-'))
const textfile = join(folder, 'sync.prom')
const lineage = join(folder, 'lineage.ndjson')
const running = []
let failed = 0

function check(what, isTrue, detail = '') {
  console.log(`${isTrue ? 'ok  ' : 'FAIL'} ${what}${isTrue || detail === '' ? '' : `: ${detail}`}`)
  if (!isTrue) failed++
}

function freePort() {
  return new Promise((done) => {
    const server = createServer()
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address()
      server.close(() => done(port))
    })
  })
}

async function until(work) {
  for (let attempt = 0; attempt < 300; attempt++) {
    const found = await work().catch(() => undefined)
    if (found !== undefined) return found
    await delay(200)
  }
  throw new Error('waited in vain')
}

const env = { PATH: process.env.PATH, HOME: folder, VISIBILITY_CONFIG: 'sync.yaml' }
const command = (args, more = {}) =>
  spawnSync(process.execPath, [bin, ...args], { cwd: folder, env: { ...env, ...more }, encoding: 'utf8' })

function checkMetrics(what, text) {
  const { status, stdout, stderr, error } = spawnSync(PROMTOOL, ['check', 'metrics'], { input: text, encoding: 'utf8' })
  if (error !== undefined) throw new Error(`${PROMTOOL} cannot be run (${error.code}); PROMTOOL names it`)
  check(`promtool has nothing to say of ${what}`, status === 0 && stdout + stderr === '', stdout + stderr)
}

try {
  const port = await freePort()
  const gateway = `http://127.0.0.1:${port}`
  const listening = `--web.listen-address=127.0.0.1:${port}`
  running.push(spawn(PUSHGATEWAY, [listening], { stdio: 'ignore' }).on('error', () => {}))
  await until(async () => ((await fetch(`${gateway}/-/ready`)).ok ? true : undefined))

  const settings = {
    start_date: new Date(Date.now() - 20 * 86_400_000).toISOString().slice(0, 10),
    metrics: { push_url: gateway, textfile },
    lineage: { file: lineage },
    serve: { port: await freePort() },
  }
  writeFileSync(join(folder, 'sync.yaml'), JSON.stringify(settings))
  const metrics = async () => (await fetch(`${gateway}/metrics`)).text()
  const success = (text, name) =>
    Number(new RegExp(`visibility_sync_last_run_success\\{command="${name}"[^}]*\\} (\\S+)`).exec(text)?.[1])

  const reference = spawn(process.execPath, [bin, 'reference', '--port', '0', '--json'], { cwd: folder, env })
  running.push(reference)
  const { url, company_key, projects } = await new Promise((done) => {
    let text = ''
    reference.stdout.on('data', (data) => {
      text += data
      if (text.endsWith('}\n')) done(JSON.parse(text))
    })
  })
  Object.assign(env, { VISIBILITY_API_URL: url, DATABASE_URL: 'embedded' })
  env.VISIBILITY_API_KEY = company_key
  env.VISIBILITY_PROJECTS = projects.map(({ id }) => id).join(',')

  const first = command(['sync'])
  check('a sync ends with 0', first.status === 0, first.stderr)
  const afterFirst = await metrics()
  check('the Pushgateway has the run', success(afterFirst, 'sync') === 1)
  command(['sync'])
  command(['audit'])
  const bad = command(['sync'], { VISIBILITY_API_KEY: 'none-of-its-keys' })
  check('a wrong key ends with 1', bad.status === 1, bad.stderr)
  const last = await metrics()
  check('the last run of the audit was complete', success(last, 'audit') === 1)
  check('the last run of the sync was not', success(last, 'sync') === 0)
  check('push_failure_time_seconds is 0', /push_failure_time_seconds\{[^}]*\} 0/.test(last))
  checkMetrics('what was pushed', readFileSync(textfile, 'utf8'))

  running.push(spawn(process.execPath, [bin, 'serve'], { cwd: folder, env, stdio: 'ignore' }))
  const own = `http://127.0.0.1:${settings.serve.port}/metrics`
  const served = await until(async () => {
    const text = await (await fetch(own)).text()
    return text.includes('staleness_seconds{') ? text : undefined
  })
  checkMetrics('what serve shows', served)

  const events = readFileSync(lineage, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  const types = new Set(events.map(({ eventType }) => eventType))
  check('events of lineage were written', types.has('START') && types.has('COMPLETE'))
  if (OPENLINEAGE_SPEC === undefined)
    console.log('--   OPENLINEAGE_SPEC is not set: events were not held to the schemas')
  else {
    const { Ajv2020 } = await import('ajv/dist/2020.js')
    const { default: formats } = await import('ajv-formats')
    const ajv = new Ajv2020({ strict: false, allErrors: true })
    formats.default(ajv)
    const read = (name) => JSON.parse(readFileSync(join(OPENLINEAGE_SPEC, name), 'utf8'))
    ajv.addSchema(read('OpenLineage.json'))
    const facets = readdirSync(join(OPENLINEAGE_SPEC, 'facets')).filter((name) => name.endsWith('.json'))
    for (const name of facets) ajv.addSchema(read(`facets/${name}`))
    const faults = []
    const holdTo = (schema, value) => {
      const validate = ajv.getSchema(schema)
      if (validate === undefined) faults.push(`no schema ${schema}`)
      else if (!validate(value)) faults.push(`${schema}: ${ajv.errorsText(validate.errors)}`)
    }
    let held = 0
    for (const event of events) {
      holdTo(event.schemaURL, event)
      const sets = [...event.inputs, ...event.outputs]
      const own = [event.run, event.job, ...sets].flatMap(({ facets = {}, inputFacets = {}, outputFacets = {} }) =>
        Object.entries({ ...facets, ...inputFacets, ...outputFacets }),
      )
      for (const [name, facet] of own.filter(([, { _schemaURL }]) => _schemaURL.startsWith('https:'))) {
        holdTo(facet._schemaURL, { [name]: facet })
        held++
      }
    }
    check(
      `${events.length} events and ${held} facets are valid by the published schemas`,
      faults.length === 0,
      faults[0],
    )
  }
} finally {
  for (const child of running) child.kill('SIGTERM')
  const ended = (child) => new Promise((done) => (child.exitCode === null ? child.once('close', done) : done()))
  await Promise.all(running.map(ended))
  rmSync(folder, { recursive: true, force: true })
}
if (failed > 0) process.exit(1)
