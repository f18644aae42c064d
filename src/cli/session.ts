import { type Config, loadConfig } from '../core/config/load.ts'
import type { Clock } from '../core/day.ts'
import { createLog, type Log, prettyLine } from '../core/logger.ts'
import { type Monotonic, monotonic } from '../core/monotonic.ts'
import type { Redactor } from '../core/redactor.ts'
import type { Observer } from '../sync/run.ts'
import { type Progress, terminalProgress } from './progress.ts'

export interface GlobalOptions {
  config?: string
  json?: boolean
  queue?: boolean
}

/** What a command has besides its own options: configuration, log, output, and the signal to stop. */
export interface Session {
  config: Config
  log: Log
  clock: Clock
  monotonic: Monotonic
  version: string
  json: boolean
  signal: AbortSignal
  observer: Observer
  /** The command's result: one JSON document, or text for people. It is cleaned of secrets. */
  print(document: unknown, text: string, redactor?: Redactor): void
  end(): void
}

export interface Surroundings {
  stdout: NodeJS.WriteStream
  stderr: NodeJS.WriteStream
  signal: AbortSignal
  version: string
  redactor: Redactor
}

export function openSession(options: GlobalOptions, surroundings: Surroundings, showProgress = false): Session {
  const { stdout, stderr, signal, version } = surroundings
  const loaded = loadConfig({ file: options.config, redactor: surroundings.redactor })
  const config: Config = options.queue ? { ...loaded, queue: { mode: 'pg-boss' } } : loaded
  const json = options.json ?? false
  const terminal = stderr.isTTY === true
  const progress: Progress | undefined = showProgress && terminal && !json ? terminalProgress(stderr) : undefined
  const write =
    progress === undefined ? (line: string) => void stderr.write(line) : (line: string) => progress.above(line)
  // On a terminal the bar tells how it goes; lines are for what needs attention, unless more was asked for.
  const level = config.log_level ?? (terminal ? 'warn' : 'info')
  const log = createLog({
    level,
    redactor: config.redactor,
    destination: { write: (line: string) => write(terminal && !json ? prettyLine(line) : line) },
  })
  for (const warning of config.warnings) log.warn(warning)
  return {
    config,
    log,
    clock: () => new Date(),
    monotonic,
    version,
    json,
    signal,
    observer: progress?.observer ?? {},
    print(document, text, redactor = config.redactor) {
      progress?.stop()
      stdout.write(json ? `${redactor.json(JSON.stringify(document, null, 2), 2)}\n` : `${redactor.text(text)}\n`)
    },
    end: () => progress?.stop(),
  }
}

/** Waits until the command is told to stop. */
export function untilStopped({ signal }: Session): Promise<void> {
  return new Promise((done) => {
    if (signal.aborted) done()
    signal.addEventListener('abort', () => done())
  })
}
