import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const own = (name) => fileURLToPath(new URL(name, import.meta.url))
const running = new Set()

/** Ends jest with the processes that tests started. */
function end(child) {
  try {
    process.kill(-child.pid, 'SIGKILL')
  } catch {
    // It ended before.
  }
}

process.on('exit', () => running.forEach(end))

/**
 * Runs test files of a folder one after the other, until a test fails or a file takes longer than `limitOf` allows. Resolves with
 * what ended it, or with undefined if all tests passed.
 */
export function runTests(folder, files, { args = [], limitOf }) {
  const jest = ['--experimental-vm-modules', '--disable-warning=ExperimentalWarning', 'node_modules/jest/bin/jest.js']
  const how = ['--runInBand', '--reporters', own('reporter.cjs'), '--testSequencer', own('sequencer.cjs')]
  const child = spawn(process.execPath, [...jest, ...how, ...args, '--runTestsByPath', ...files], {
    cwd: folder,
    env: { ...process.env, MUTANTS_ORDER: files.join(), CI: '1' },
    stdio: ['ignore', 'ignore', 'ignore', 'pipe'],
    detached: true,
  })
  running.add(child)
  return new Promise((resolve) => {
    let timer
    let failure
    const fail = (by) => {
      failure ??= by
      end(child)
    }
    const limit = (name) => {
      clearTimeout(timer)
      timer = setTimeout(() => fail({ kind: 'timeout', by: name }), limitOf(name))
    }
    limit('the start')
    createInterface({ input: child.stdio[3] }).on('line', (line) => {
      const { begins, failed, path } = JSON.parse(line)
      const name = (begins ?? path).slice(join(folder, '/').length)
      if (begins === undefined) fail({ kind: 'killed', by: `${name}: ${failed}` })
      else limit(name)
    })
    child.on('close', (code) => {
      clearTimeout(timer)
      end(child)
      running.delete(child)
      resolve(failure ?? (code === 0 ? undefined : { kind: 'crashed', by: `jest: exit code ${code}` }))
    })
  })
}
