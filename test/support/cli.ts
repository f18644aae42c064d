import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { stringify } from 'yaml'

const BIN = 'bin/visibility-sync.js'

export interface CliResult {
  code: number | null
  stdout: string
  stderr: string
  json(): any
}

export interface CliOptions {
  env?: Record<string, string>
  /** Written to config/sync.yaml of the folder in which the command runs. */
  config?: unknown
  cwd?: string
  /** Another script of the checkout. */
  script?: string
  /** In a process group of its own, as a terminal starts it; kill(-pid) then reaches all of it. */
  detached?: boolean
}

export interface RunningCli {
  child: ChildProcess
  done: Promise<CliResult>
  /** What was printed so far. */
  output(): string
  /** Waits for a text in the output. */
  saw(text: string): Promise<void>
}

/** A folder that is gone after the test file. */
export function temporaryFolder(): { path: string; remove(): void } {
  const path = mkdtempSync(join(tmpdir(), 'visibility-sync-cli-'))
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) }
}

/** Starts the real command as a user would, in a folder of its own and with nothing of our environment but the path. */
export function startCli(args: string[], options: CliOptions = {}): RunningCli {
  const folder = options.cwd === undefined ? temporaryFolder() : { path: options.cwd, remove: () => {} }
  const env: Record<string, string> = { PATH: process.env.PATH ?? '', HOME: folder.path, ...options.env }
  if (options.config !== undefined) {
    const file = join(folder.path, 'sync.yaml')
    writeFileSync(file, typeof options.config === 'string' ? options.config : stringify(options.config))
    env.VISIBILITY_CONFIG = file
  }
  const script = fileURLToPath(new URL(`../../${options.script ?? BIN}`, import.meta.url))
  const child = spawn(process.execPath, [script, ...args], {
    cwd: folder.path,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: options.detached ?? false,
  })
  let stdout = ''
  let stderr = ''
  const waiting: { text: string; done: () => void }[] = []
  const look = () => {
    for (const entry of waiting) if (stdout.includes(entry.text) || stderr.includes(entry.text)) entry.done()
  }
  child.stdout!.on('data', (data: Buffer) => {
    stdout += data.toString()
    look()
  })
  child.stderr!.on('data', (data: Buffer) => {
    stderr += data.toString()
    look()
  })
  const done = new Promise<CliResult>((resolve) => {
    child.on('close', (code) => {
      folder.remove()
      resolve({ code, stdout, stderr, json: () => JSON.parse(stdout) })
    })
  })
  const saw = (text: string) =>
    Promise.race([
      new Promise<void>((resolve) => {
        waiting.push({ text, done: resolve })
        look()
      }),
      done.then((result) => {
        if (!result.stdout.includes(text) && !result.stderr.includes(text))
          throw new Error(`ended without "${text}":\n${result.stdout}\n${result.stderr}`)
      }),
    ])
  return { child, done, output: () => stdout, saw }
}

export function runCli(args: string[], options: CliOptions = {}): Promise<CliResult> {
  return startCli(args, options).done
}
