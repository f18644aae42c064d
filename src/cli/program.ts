import { Command, CommanderError } from 'commander'
import { LockedError, messageOf, UsageError } from '../core/errors.ts'
import { printable } from '../core/text.ts'
import { addCommands, type CommandSettings } from './command-list.ts'
import type { GlobalOptions, Surroundings } from './session.ts'

const EXIT = { ok: 0, failed: 1, usage: 2, locked: 3 } as const

/** Runs a command line and gives the exit code. Never throws. */
export async function runProgram(args: readonly string[], surroundings: Surroundings): Promise<number> {
  const { stderr, redactor, env } = surroundings
  let code: number = EXIT.ok
  const json = args.includes('--json')
  const complaints: string[] = []
  const command = buildProgram(args, surroundings, complaints, (result) => {
    code = result
  })
  try {
    if (args[0] === 'complete') (await import('./completion.ts')).addComplete(command)
    await command.parseAsync([...args], { from: 'user' })
    return code
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return EXIT.ok
    await learnSecrets(surroundings, command.opts<GlobalOptions>())
    if (error instanceof CommanderError) {
      stderr.write(printable(redactor.text(complaints.join(''))))
      if (json)
        printError(surroundings, 'usage', error.code === 'commander.help' ? 'a command is missing' : error.message)
      return EXIT.usage
    }
    const { settingHint } = await import('../warehouse/database-failure.ts')
    const hint = settingHint(error)
    const isUsage = error instanceof UsageError || hint !== undefined
    const kind = isUsage ? 'usage' : error instanceof LockedError ? 'locked' : 'failed'
    const message = redactor.text([messageOf(error), ...(hint === undefined ? [] : [hint])].join('. '))
    if (json) printError(surroundings, kind, message)
    const { bad, toTerminal } = await import('./table.ts')
    const { wantsColour } = await import('../core/config/variables.ts')
    stderr.write(toTerminal(`${bad('visibility-sync:')} ${message}\n`, wantsColour(stderr.isTTY, env)))
    return EXIT[kind]
  }
}

/** The command line may hold a secret, and the configuration may not have been read. */
async function learnSecrets({ redactor, env }: Surroundings, { config }: GlobalOptions): Promise<void> {
  const { learnVariables } = await import('../core/config/load.ts')
  try {
    learnVariables(redactor, env, config)
  } catch {
    // Those of the environment are known, and a file that cannot be read holds no others.
  }
}

function printError({ stdout, redactor }: Surroundings, code: string, message: string): void {
  stdout.write(`${printable(JSON.stringify(redactor.value({ error: { code, message } }), null, 2))}\n`)
}

function buildProgram(
  args: readonly string[],
  surroundings: Surroundings,
  complaints: string[],
  setCode: (code: number) => void,
): Command {
  const program = new Command('visibility-sync')
    .description('Keeps a Postgres warehouse in step with an AI answer visibility reporting service.')
    .version(surroundings.version, '--version', 'print the version')
    .helpOption('-h, --help', 'show this help')
    .helpCommand(false)
    .exitOverride()
    .configureOutput({
      writeOut: (text) => void surroundings.stdout.write(printable(text)),
      writeErr: (text) => void complaints.push(text),
    })
    .showHelpAfterError('(--help shows what is allowed)')
    .addHelpText('after', HELP)
  addGlobals(program)

  addCommands(program, <O extends object, A extends unknown[]>(settings: CommandSettings<O, A>, parent = program) => {
    const { kind } = settings
    const projects = settings.projects ?? (kind === 'run' || kind === 'service' ? 'needed' : undefined)
    const command = parent.command(settings.name).description(settings.about)
    for (const argument of settings.arguments ?? []) command.addArgument(argument)
    for (const option of settings.options ?? []) command.addOption(option)
    addGlobals(command)
    const examples = settings.examples.map((example) => `  $ visibility-sync ${example}`)
    command.addHelpText('after', `\nExamples:\n${examples.join('\n')}`)
    command.action(async (...words: unknown[]) => {
      // Commander passes the arguments, then the options, then the command.
      const options = words.at(-2) as O & GlobalOptions & { project?: string | string[] }
      const { openSession } = await import('./session.ts')
      const session = openSession(args, { ...program.opts<GlobalOptions>(), ...options }, surroundings, kind)
      try {
        if (session.config.all_projects && projects !== undefined && projects !== 'unused')
          await (await import('../app/all-projects.ts')).resolveProjects(session, projects === 'needed')
        if (options.project !== undefined) {
          const { resolveNamed } = await import('./project-names.ts')
          const ids = await resolveNamed(session, [options.project].flat())
          options.project = Array.isArray(options.project) ? ids : ids[0]!
        }
        setCode(await (await settings.load())(session, options, ...(words.slice(0, -2) as A)))
      } finally {
        session.end()
      }
    })
  })
  return program
}

const HELP = `
If no service, key or database is configured, the reference service (synthetic
data) fills an embedded Postgres under .data/, for trying things out.
VISIBILITY_API_URL=reference selects it by name. The output names the service
and the database that were used.

Exit codes: 0 complete · 1 partial or failed, or something is held ·
2 wrong usage or configuration, nothing was read or written ·
3 another run holds the lock`

function addGlobals(command: Command): void {
  command.option('--config <file>', 'configuration file (default: VISIBILITY_CONFIG, else config/sync.yaml)')
  command.option('--json', 'one JSON document on stdout, logs on stderr')
}
