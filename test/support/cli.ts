import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { PassThrough, Writable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Client } from 'pg'
import { stringify } from 'yaml'
import { runProgram } from '../../src/cli/program.ts'
import { packageVersion } from '../../src/core/package-files.ts'
import { createRedactor } from '../../src/core/redactor.ts'
import { readServer, startEmbedded } from '../../src/warehouse/embedded/server.ts'
import { closeLater } from './close-later.ts'

const BIN = 'bin/visibility-sync.js'

export interface CliResult {
  code: number | null
  stdout: string
  stderr: string
  json(): any
}

export interface CliOptions {
  env?: Record<string, string>
  /** Written to a file that VISIBILITY_CONFIG names. */
  config?: unknown
  /** Those of the terminal that both outputs go to; without them, they are pipes. */
  columns?: number
}

export interface ProcessOptions extends CliOptions {
  /** A folder of its own if undefined. */
  cwd?: string
  /** Another script of the checkout. */
  script?: string
  /** In a process group of its own, as a terminal starts it; kill(-pid) then reaches all of it. */
  detached?: boolean
  /** Writes this output to a full disk. */
  full?: 'stdout' | 'stderr'
}

export interface RunningCli {
  done: Promise<CliResult>
  /** The standard output so far. */
  output(): string
  /** Waits for a text in the output. */
  saw(text: string): Promise<void>
  /** Asks for an orderly end, as SIGTERM does. */
  stop(): void
}

export interface RunningProcess extends RunningCli {
  child: ChildProcess
}

/** A folder that is gone after the test. */
export function temporaryFolder(): { path: string; remove(): void } {
  const path = mkdtempSync(join(tmpdir(), 'visibility-sync-cli-'))
  const remove = () => rmSync(path, { recursive: true, force: true })
  closeLater(remove)
  return { path, remove }
}

/**
 * Runs the command: in this process, or in one of its own where its arguments or its environment depend on the process.
 * Tests of signals, crashes, memory and terminals use `startProcess`.
 */
export function runCli(args: string[], options: ProcessOptions = {}): Promise<CliResult> {
  return startCli(args, options).done
}

/** Starts the command, and stops it after the test. */
export function startCli(args: string[], options: ProcessOptions = {}): RunningCli {
  const running = needsProcess(args, options) ? startProcess(args, options) : startHere(args, options)
  closeLater(() => {
    running.stop()
    return running.done
  })
  return running
}

/** Variables that Node, a library or the system reads. */
const OF_PROCESS = /^(NODE_|PG|TZ$|HOME$|TMPDIR$)|_PROXY$/i

/** Without an address of a database, the command starts one in its folder; without a named file, it reads one there. */
function needsProcess(args: string[], { env = {}, config, cwd, script, detached }: ProcessOptions): boolean {
  if (cwd !== undefined || script !== undefined || detached) return true
  if (Object.keys(env).some((name) => OF_PROCESS.test(name))) return true
  if (args.some((word) => ['-h', '--help', '--version'].includes(word))) return false
  const isFileNamed = config !== undefined || env.VISIBILITY_CONFIG !== undefined || args.includes('--config')
  return !isFileNamed || env.DATABASE_URL === undefined
}

function startHere(args: string[], options: CliOptions): RunningCli {
  const folder = temporaryFolder()
  const output = new Output()
  const terminal = options.columns === undefined ? {} : { isTTY: true, columns: options.columns }
  const stop = new AbortController()
  const run = async () => {
    const code = await runProgram(args, {
      stdin: new PassThrough() as unknown as NodeJS.ReadStream,
      stdout: Object.assign(output.stream('stdout'), terminal),
      stderr: Object.assign(output.stream('stderr'), terminal),
      signal: stop.signal,
      version: packageVersion(),
      redactor: createRedactor(),
      env: environment(folder.path, options),
    })
    folder.remove()
    return output.result(code)
  }
  return output.running(run(), () => stop.abort())
}

/** Starts the bundled command as a user would, in a folder of its own and with nothing of our environment but the path. */
export function startProcess(args: string[], options: ProcessOptions = {}): RunningProcess {
  const folder = options.cwd === undefined ? temporaryFolder() : { path: options.cwd, remove: () => {} }
  const script = fileURLToPath(new URL(`../../${options.script ?? BIN}`, import.meta.url))
  const to = (name: string) => (options.full === name ? openSync('/dev/full', 'w') : 'pipe')
  const child = spawn(process.execPath, [script, ...args], {
    cwd: folder.path,
    env: environment(folder.path, options),
    stdio: ['ignore', to('stdout'), to('stderr')],
    detached: options.detached ?? false,
  })
  const output = new Output()
  child.stdout?.pipe(output.stream('stdout'))
  child.stderr?.pipe(output.stream('stderr'))
  const done = new Promise<CliResult>((resolve) => {
    child.on('close', (code) => {
      folder.remove()
      resolve(output.result(code))
    })
  })
  return { child, ...output.running(done, () => child.kill('SIGTERM')) }
}

function environment(folder: string, { env, config }: CliOptions): Record<string, string> {
  const all: Record<string, string> = { PATH: process.env.PATH ?? '', HOME: folder, ...env }
  if (config === undefined) return all
  const file = join(folder, 'sync.yaml')
  writeFileSync(file, typeof config === 'string' ? config : stringify(config))
  return { ...all, VISIBILITY_CONFIG: file }
}

/** What a command prints. */
class Output {
  private stdout = ''
  private stderr = ''
  private readonly waiting: { text: string; done: () => void }[] = []

  stream(name: 'stdout' | 'stderr'): NodeJS.WriteStream {
    const decoder = new TextDecoder()
    const write = (data: Buffer, _encoding: string, written: () => void) => {
      this[name] += decoder.decode(data, { stream: true })
      this.look()
      written()
    }
    return new Writable({ write }) as NodeJS.WriteStream
  }

  result(code: number | null): CliResult {
    const { stdout, stderr } = this
    return { code, stdout, stderr, json: () => JSON.parse(stdout) }
  }

  running(done: Promise<CliResult>, stop: () => void): RunningCli {
    const saw = (text: string) =>
      Promise.race([
        new Promise<void>((seen) => {
          this.waiting.push({ text, done: seen })
          this.look()
        }),
        done.then(({ stdout, stderr }) => {
          if (!stdout.includes(text) && !stderr.includes(text))
            throw new Error(`ended without "${text}":\n${stdout}\n${stderr}`)
        }),
      ])
    return { done, stop, saw, output: () => this.stdout }
  }

  private look(): void {
    for (const { text, done } of this.waiting) if (this.stdout.includes(text) || this.stderr.includes(text)) done()
  }
}

const NEVER_MS = 40_000

/** The server that runs in a folder, or undefined. */
export const runningIn = (folder: string) => readServer(folder)

/** Waits for a condition. */
export async function until(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = Date.now() + NEVER_MS
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`never: ${what}`)
    await delay(20)
  }
}

/** A folder with a cluster that was created before: much faster than creating one. */
export function clusterTemplate() {
  const own = temporaryFolder()
  return {
    async make(): Promise<void> {
      await (await startEmbedded({ folder: own.path })).release()
    },
    copyTo(folder: string): void {
      mkdirSync(dirname(folder), { recursive: true })
      // Only cp keeps the owner, who as root is another user.
      execFileSync('cp', ['-a', own.path, folder])
    },
    remove: own.remove,
  }
}

/** Rows of one statement. */
export async function query<T>(url: string, sql: string): Promise<T[]> {
  const client = new Client({ connectionString: url })
  client.on('error', () => {})
  try {
    await client.connect()
    return (await client.query(sql)).rows as T[]
  } finally {
    await client.end().catch(() => {})
  }
}

/** A command in a process group of its own that keeps the server of its folder up. */
export async function startDatabase(cwd: string) {
  const running = startProcess(['database', '--json'], { cwd, detached: true })
  await running.saw('"url"')
  return { ...running, toGroup: (name: NodeJS.Signals) => process.kill(-running.child.pid!, name) }
}
