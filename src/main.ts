import { readFileSync } from 'node:fs'
import { runProgram } from './cli/program.ts'
import { boundYoungMemory } from './core/young-memory.ts'

const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as { version: string }
const stop = new AbortController()

for (const name of ['SIGINT', 'SIGTERM'] as const) {
  process.on(name, () => {
    // The first asks for an orderly end; whoever repeats it does not want to wait.
    if (stop.signal.aborted) process.exit(1)
    stop.abort()
  })
}

// Whoever reads our output may stop reading, as `head` does.
for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error
  })
}

boundYoungMemory()
process.exitCode = await runProgram(process.argv.slice(2), {
  stdout: process.stdout,
  stderr: process.stderr,
  signal: stop.signal,
  version,
})
// The work is done and said: what still waits, as for a network that lost its way, does not keep the process.
setTimeout(() => process.exit(), 2000).unref()
