import { createInterface } from 'node:readline/promises'
import { type Config, defaultConfig, loadConfig } from '../core/config/load.ts'
import { configFile, wantsColour } from '../core/config/variables.ts'
import { createLog, type LogEntry, SECRET_FIELDS } from '../core/logger.ts'
import { REDACTED, type Redactor } from '../core/redactor.ts'
import { printable } from '../core/text.ts'
import { monotonic } from '../core/waiting.ts'
import { StreamSet } from '../streams/registry.ts'
import type { Observer } from '../sync/run/task.ts'
import { lineProgress, type Progress, terminalProgress } from './progress.ts'
import { shortIds } from './project-names.ts'
import { bad, toOneLine, toTerminal, warning, widthOf, wrap } from './table.ts'

export interface GlobalOptions {
  config?: string
  json?: boolean
  queue?: boolean
  ids?: boolean
}

/** Lines of a text for people; what is false or undefined is left out. */
export type Part = string | false | undefined

export type Session = ReturnType<typeof openSession>

export interface Selection {
  from?: string
  to?: string
  last?: string
  stream?: string[]
  project?: string[]
}

export interface Surroundings {
  stdin: NodeJS.ReadStream
  stdout: NodeJS.WriteStream
  stderr: NodeJS.WriteStream
  signal: AbortSignal
  version: string
  redactor: Redactor
  env?: NodeJS.ProcessEnv | undefined
}

/**
 * A run works through days or lines, and shows how far it is. A service runs until it is stopped, so its log is read by
 * programs. A bare command needs no configuration, and must work if that is missing or broken.
 */
export type CommandKind = 'run' | 'service' | 'bare'

const DEFAULT_WIDTH = 80
// Narrower than this, tables are not worth fitting.
const NARROWEST = 40

export function openSession(
  args: readonly string[],
  options: GlobalOptions,
  surroundings: Surroundings,
  kind: CommandKind | undefined,
) {
  const { stdin, stdout, signal, version, redactor, env } = surroundings
  const loaded = kind === 'bare' ? defaultConfig() : loadConfig({ file: options.config, redactor, env })
  const config: Config = options.queue ? { ...loaded, queue: { mode: 'pg-boss' } } : loaded
  const json = options.json ?? false
  const width = columnsOf(stdout)
  const { log, progress } = openLog(config, json, surroundings, kind)
  for (const warning of config.warnings) log.warn(warning)
  const observer: Observer = progress?.observer ?? {}
  let streams: StreamSet | undefined
  return {
    ...{ config, log, version, json, signal, env, observer, monotonic, stdin, stdout },
    clock: () => new Date(),
    get streams() {
      streams ??= new StreamSet(config)
      return streams
    },
    ask: stdin.isTTY === true && !json ? (text: string) => ask(surroundings, text) : undefined,
    terminal: stdin.isTTY && stdout.isTTY && !json ? { input: stdin, output: stdout } : undefined,
    /** Whether projects are printed by their whole ids. */
    fullIds: options.ids ?? false,
    /** True if a person waits for the result at a terminal. */
    isWatched: stdout.isTTY === true,
    configFile: configFile(options.config, env),
    width,
    /** A command line to copy, with the same configuration file; the same command again if nothing is named. */
    command: (words?: string) => commandLine(args, options.config, words),
    say: (text: string) => progress?.say(config.redactor.text(text)),
    /** The command's result: one JSON document, or text for people. It is cleaned of secrets. */
    print(document: unknown, text: string | readonly Part[], cleaner = config.redactor) {
      progress?.stop()
      const parts = typeof text === 'string' ? [text] : text.filter((part) => part !== false && part !== undefined)
      // Parts of several lines were fitted before. Indented lines and statements are for copying.
      const lines = parts.map((part) => (/^ |\n|;$/.test(part) ? part : fitted(part, width)))
      const result = json
        ? printable(cleaner.json(JSON.stringify(document, null, 2), 2))
        : cleaner.text(toTerminal(lines.join('\n'), wantsColour(stdout.isTTY, env)))
      stdout.write(`${result}\n`)
    },
    end: () => progress?.stop(),
  }
}

/** What is not read at a terminal is not broken into lines: programs such as grep read it. */
function columnsOf({ isTTY, columns }: NodeJS.WriteStream): number {
  return isTTY ? Math.max(NARROWEST, columns || DEFAULT_WIDTH) : Number.POSITIVE_INFINITY
}

/** A terminal would break words. */
function fitted(line: string, width: number, hanging = ''): string {
  return widthOf(line) <= width ? line : wrap(line, width, '', hanging)
}

const LOG_INDENT = ' '.repeat('12:34:56 '.length)

function openLog(config: Config, json: boolean, { stderr, env }: Surroundings, kind: CommandKind | undefined) {
  const isService = kind === 'service'
  const terminal = stderr.isTTY === true
  const isWatched = terminal || !isService
  const forPeople = config.log_format === 'auto' ? !json && isWatched : config.log_format === 'text'
  const progress = kind === 'run' && forPeople && !json ? progressOf(stderr, config.log_level) : undefined
  const write = (line: string) => void (progress === undefined ? stderr.write(line) : progress.above(line))
  const colour = wantsColour(terminal, env)
  const width = columnsOf(stderr)
  const log = createLog({
    // The progress line shows people how it goes; lines are for what needs attention, unless more was asked for.
    level: config.log_level ?? (forPeople && isWatched ? 'warn' : 'info'),
    redactor: config.redactor,
    destination: forPeople
      ? {
          show: linesForPeople(config, isService, (line) =>
            write(`${config.redactor.text(toTerminal(fitted(line, width, LOG_INDENT), colour))}\n`),
          ),
        }
      : { write },
  })
  return { log, progress }
}

function progressOf(stderr: NodeJS.WriteStream, logLevel: string | undefined): Progress | undefined {
  if (stderr.isTTY === true) return terminalProgress(stderr)
  // If a level was chosen, the log is shown as it is.
  return logLevel === undefined ? lineProgress((line) => void stderr.write(printable(line))) : undefined
}

function commandLine(args: readonly string[], config: string | undefined, words?: string): string {
  const same = args.filter((arg) => arg !== '--json').map(quoted)
  const named = config === undefined ? [] : ['--config', quoted(config)]
  return ['npx visibility-sync', ...(words === undefined ? same : [words, ...named])].join(' ')
}

function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`
}

async function ask({ stdin, stderr, signal }: Surroundings, text: string): Promise<string> {
  const terminal = createInterface({ input: stdin, output: stderr })
  try {
    return await terminal.question(text, { signal })
  } finally {
    terminal.close()
  }
}

const MOST_ALIKE = 3

/** Short lines; of a command with a result only a few of each kind, unless a level was chosen: the result names all. */
function linesForPeople(config: Config, isService: boolean, write: (line: string) => void): (entry: LogEntry) => void {
  const short = shortIds(config.projects.flatMap(({ id }) => id ?? []))
  const seen = new Map<string, number>()
  return ({ level, message, fields }) => {
    const times = (seen.get(message) ?? 0) + 1
    seen.set(message, times)
    if (isService || config.log_level !== undefined || times <= MOST_ALIKE) {
      const mark = level === 'error' || level === 'fatal' ? bad('✗ ') : level === 'warn' ? warning('! ') : ''
      const { project, ...others } = fields
      const named =
        typeof project === 'string' ? { project: short.get(project) ?? shortIds([project]).get(project) } : {}
      const rest = fieldsForPeople({ ...named, ...others })
      write(`${new Date().toISOString().slice(11, 19)} ${mark}${toOneLine(message)}${rest}`)
    } else if (times === MOST_ALIKE + 1)
      write(`${LOG_INDENT}… more lines "${message}" are left out; LOG_LEVEL=info shows them`)
  }
}

function fieldsForPeople(fields: Record<string, unknown>): string {
  const parts = Object.entries(fields)
    .filter(([name, value]) => name !== 'run' && value !== 0 && value !== undefined)
    .map(([name, value]) => ` ${name}=${shown(name, value)}`)
  return parts.length === 0 ? '' : ` ${parts.join('')}`
}

function shown(name: string, value: unknown): string {
  if (typeof value === 'number') return Number.isInteger(value) ? String(value) : value.toFixed(1)
  const hide = (key: string, inner: unknown) => (SECRET_FIELDS.includes(key) ? REDACTED : inner)
  return toOneLine(name === 'api_key' ? REDACTED : typeof value === 'string' ? value : JSON.stringify(value, hide))
}
