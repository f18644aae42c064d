import { runProgram } from './cli/program.ts'
import { plainError } from './core/errors.ts'
import { packageVersion } from './core/package-files.ts'
import { createRedactor } from './core/redactor.ts'

const stop = new AbortController()
const redactor = createRedactor()

// Node itself would print the error with all that it carries: requests with their headers, clients with their settings.
for (const name of ['uncaughtException', 'unhandledRejection'] as const) {
  process.on(name, (error: unknown) => {
    const { message, stack, cause } = plainError(error)
    const lines = [stack ?? message, ...(cause === undefined ? [] : [`caused by: ${cause.stack ?? cause.message}`])]
    process.stderr.write(redactor.text(`visibility-sync: internal error: ${lines.join('\n')}\n`))
    process.exit(1)
  })
}

// One Ctrl-C arrives more than once: from the terminal, and again from npm, which passes it on.
const ECHO_MS = 1000
let firstSignalAt: number | undefined
for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.on(name, () => {
    // The first signal asks for an orderly end, a later one for an immediate end. An embedded Postgres then keeps running until
    // the next command ends.
    firstSignalAt ??= performance.now()
    if (performance.now() - firstSignalAt > ECHO_MS) process.exit(1)
    stop.abort()
  })
}

// The reader of our output may stop reading, as `head` does, or close the terminal. Output that cannot be written for
// another reason, such as a full disk, stops the command with exit code 1: its result could not be reported.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE' || error.code === 'EIO') return
  process.stderr.write(`visibility-sync: the output could not be written (${error.code})\n`)
  process.exitCode ||= 1
  stop.abort()
})
// Lost lines of the log are no reason to stop.
process.stderr.on('error', () => {})

// Not awaited: the command is bundled as a CommonJS module, which may not wait.
void runProgram(process.argv.slice(2), {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  signal: stop.signal,
  version: packageVersion(),
  redactor,
}).then((code) => {
  process.exitCode = code || process.exitCode || 0
  // The work is done and reported. A pending operation, for example on a lost network, does not keep the process alive.
  setTimeout(() => process.exit(), 2000).unref()
})
