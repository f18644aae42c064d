// Runs the same random fault schedules without a queue and with one, and compares how long each took:
//
//   node bench/fault-schedules.mjs [seeds=60] [first=1]
//
// Each schedule must end in tables that equal the service. With a queue it may take twice as long as without, plus 30 s.
import { spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const count = Number(process.argv[2] ?? 60)
const first = Number(process.argv[3] ?? 1)
if (!Number.isInteger(count) || count < 1 || !Number.isInteger(first)) {
  process.stderr.write('usage: node bench/fault-schedules.mjs [seeds=60] [first=1], both whole numbers\n')
  process.exit(2)
}
const seeds = Array.from({ length: count }, (_, index) => first + index)
const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-faults-'))

/** The result of each schedule by its seed. */
async function schedules(mode) {
  const file = join(folder, `${mode}.json`)
  const args = ['run', '--silent', 'jest', '--', 'test/faults', '--json', `--outputFile=${file}`]
  const env = { ...process.env, FAULT_QUEUE: mode, FAULT_SEEDS: seeds.join(',') }
  await new Promise((resolve) =>
    spawn('npm', args, { env, stdio: ['ignore', 'ignore', 'inherit'] }).on('close', resolve),
  )
  const [{ assertionResults }] = JSON.parse(readFileSync(file, 'utf8')).testResults
  return new Map(assertionResults.map((result, index) => [seeds[index], result]))
}

const alone = await schedules('none')
const queued = await schedules('pg-boss')
rmSync(folder, { recursive: true })

const secondsOf = (result) => result.duration / 1000
let failures = 0
console.log('seed  without queue  with queue  allowed')
for (const seed of seeds) {
  const allowed = 2 * secondsOf(alone.get(seed)) + 30
  const took = secondsOf(queued.get(seed))
  const isExact = [alone, queued].every((results) => results.get(seed).status === 'passed')
  if (!isExact || took > allowed) failures++
  const columns = [secondsOf(alone.get(seed)), took, allowed].map((seconds) => `${seconds.toFixed(1)} s`.padStart(11))
  console.log(
    `${String(seed).padStart(4)}  ${columns.join(' ')}${isExact ? '' : '  NOT EXACT'}${took > allowed ? '  TOO LONG' : ''}`,
  )
}
const total = (results) => seeds.reduce((sum, seed) => sum + secondsOf(results.get(seed)), 0).toFixed(0)
console.log(
  `${seeds.length - failures} of ${seeds.length} exact and in time; ${total(alone)} s without a queue, ${total(queued)} s with one`,
)
process.exitCode = failures === 0 ? 0 : 1
