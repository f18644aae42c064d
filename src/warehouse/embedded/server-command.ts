import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { InterruptedError, UsageError } from '../../core/errors.ts'
import { clip } from '../../core/text.ts'
import type { Binaries } from './binaries.ts'
import { diskFullError, isDiskFull } from './disk-space.ts'
import type { RunAs } from './run-as.ts'

/** Where the server lives and who it is. */
export interface ServerPaths {
  folder: string
  /** The data folder in it. */
  data: string
  binaries: Binaries
  runAs: RunAs
}

/** The words in front of every command: another user namespace, and variables, which `env` sets. */
export function prefixOf({ binaries, runAs }: ServerPaths): string[] {
  const variables = Object.entries(binaries.env).map(([name, value]) => `${name}=${value}`)
  return [...runAs.prefix, ...(variables.length === 0 ? [] : ['env', ...variables])]
}

const WORKING_FOLDER = '/proc/self/cwd'

/**
 * How a server gets its data folder: by its working folder if the system allows it. Postgres writes pg_control under
 * the absolute path that it was given; under a path, a server whose folder was moved aside would write into a new cluster
 * that took its paths.
 */
export function dataArgument(data: string): string {
  return existsSync(WORKING_FOLDER) ? WORKING_FOLDER : data
}

export interface ServerCommand {
  words: string[]
  input?: string
  cwd: string
  /** What a full disk must have for it. */
  neededMb: number
}

/** Runs a command of Postgres as the user who runs the server. */
export function runServerCommand(paths: ServerPaths, command: ServerCommand, signal: AbortSignal): Promise<void> {
  const [program, ...args] = [...prefixOf(paths), ...command.words]
  return new Promise((done, fail) => {
    const child = spawn(program!, args, {
      cwd: command.cwd,
      stdio: ['pipe', 'pipe', 'pipe'],
      signal,
      ...(paths.runAs.user ?? {}),
    })
    let output = ''
    const collect = (chunk: Buffer) => {
      output += chunk.toString()
    }
    child.stdout.on('data', collect)
    child.stderr.on('data', collect)
    child.stdin.on('error', () => {})
    child.stdin.end(command.input ?? '')
    let reason = ''
    child.on('error', (error) => {
      reason = error.message
    })
    child.on('close', (code) => {
      if (signal.aborted) fail(new InterruptedError('asked to stop while the embedded Postgres was being set up'))
      else if (code === 0) done()
      else if (isDiskFull(output)) fail(diskFullError(paths.folder, command.neededMb))
      else fail(setupError(paths, `${output} ${reason}`))
    })
  })
}

function setupError({ folder }: ServerPaths, output: string): UsageError {
  return new UsageError(
    `the embedded Postgres cannot be set up in ${folder}: ${clip(output.trim(), 800)}\nSet DATABASE_URL to use another Postgres.`,
  )
}
