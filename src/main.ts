import { readFileSync } from 'node:fs'
import { runProgram } from './cli/program.ts'

const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as { version: string }
const stop = new AbortController()

for (const name of ['SIGINT', 'SIGTERM'] as const) {
  process.on(name, () => {
    // The first asks for an orderly end; whoever repeats it does not want to wait.
    if (stop.signal.aborted) process.exit(1)
    stop.abort()
  })
}

process.exitCode = await runProgram(process.argv.slice(2), {
  stdout: process.stdout,
  stderr: process.stderr,
  signal: stop.signal,
  version,
})
