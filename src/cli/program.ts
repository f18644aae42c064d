import { Argument, Command, CommanderError, Option } from 'commander'
import { wantsColour } from '../core/config/variables.ts'
import { LockedError, messageOf, UsageError } from '../core/errors.ts'
import { printable } from '../core/text.ts'
import { settingHint } from '../warehouse/database-failure.ts'
import { addBiCommands } from './bi-commands.ts'
import { type Add, type CommandSettings, collect, wholeNumber } from './command-types.ts'
import { addCreations } from './creation-commands.ts'
import type { GlobalOptions, Surroundings } from './session.ts'
import { bad, toTerminal } from './table.ts'

/* The commands, their options and their help. What they do is loaded only when they run, so that --help is instant. */

const EXIT = { ok: 0, failed: 1, usage: 2, locked: 3 } as const

/** Runs a command line and gives the exit code. Never throws. */
export async function runProgram(args: readonly string[], surroundings: Surroundings): Promise<number> {
  const { stderr, redactor, env } = surroundings
  let code: number = EXIT.ok
  let json = args.includes('--json')
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
    // What was typed may hold a secret, and the configuration may not have been read.
    const { learnEnvironment } = await import('../core/config/load.ts')
    learnEnvironment(redactor, env)
    if (error instanceof CommanderError) {
      stderr.write(printable(redactor.text(complaints.join(''))))
      if (json)
        printError(surroundings, 'usage', error.code === 'commander.help' ? 'a command is missing' : error.message)
      return EXIT.usage
    }
    const hint = settingHint(error)
    const [exit, kind] =
      error instanceof UsageError || hint !== undefined
        ? [EXIT.usage, 'usage']
        : error instanceof LockedError
          ? [EXIT.locked, 'locked']
          : [EXIT.failed, 'failed']
    const message = redactor.text([messageOf(error), ...(hint === undefined ? [] : [hint])].join('. '))
    json ||= command.opts<GlobalOptions>().json ?? false
    if (json) printError(surroundings, kind, message)
    stderr.write(toTerminal(`${bad('visibility-sync:')} ${message}\n`, wantsColour(stderr.isTTY, env)))
    return exit
  }
}

function printError({ stdout, redactor }: Surroundings, code: string, message: string): void {
  stdout.write(`${printable(JSON.stringify(redactor.value({ error: { code, message } }), null, 2))}\n`)
}

/** What commander has to say of a wrong command line is collected in `complaints`. */
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
  addGlobals(program)
  program.addHelpText(
    'after',
    `
If no service, key or database is configured, the reference service (synthetic
data) fills an embedded Postgres under .data/, for trying things out.
VISIBILITY_API_URL=reference selects it by name. The output names the service
and the database that were used.

Exit codes: 0 complete · 1 partial or failed, or something is held ·
2 wrong usage or configuration, nothing was read or written ·
3 another run holds the lock`,
  )

  const add: Add = <O extends object, A extends unknown[]>(settings: CommandSettings<O, A>) => {
    const command = (settings.parent ?? program).command(settings.name).description(settings.about)
    for (const argument of settings.arguments ?? []) command.addArgument(argument)
    for (const option of settings.options ?? []) command.addOption(option)
    addGlobals(command)
    command.addHelpText(
      'after',
      `\nExamples:\n${settings.examples.map((example) => `  $ visibility-sync ${example}`).join('\n')}`,
    )
    command.action(async (...words: unknown[]) => {
      // Commander passes the arguments, then the options, then the command.
      const options = words.at(-2) as O & GlobalOptions
      const { openSession } = await import('./session.ts')
      const session = openSession(args, { ...program.opts<GlobalOptions>(), ...options }, surroundings, settings)
      try {
        if (session.config.all_projects)
          await (await import('./choose-projects.ts')).resolveProjects(session, settings.name)
        setCode(await (await settings.load())(session, options, ...(words.slice(0, -2) as A)))
      } finally {
        session.end()
      }
    })
  }

  const streams = () => new Option('--stream <name>', 'only this stream; may be repeated').argParser(collect)
  const projects = () => new Option('--project <id>', 'only this project; may be repeated').argParser(collect)
  const queue = () => new Option('--queue', 'put the windows into the shared queue, for workers to take')

  add({
    name: 'sync',
    about: 'one incremental run: missing days, the last days again, and the lists',
    load: async () => (await import('./commands/sync.ts')).sync,
    examples: ['sync', 'sync --stream chats --stream brand_daily', 'sync --json'],
    options: [streams(), projects(), queue()],
    progress: true,
  })
  add({
    name: 'backfill',
    about: 're-reads a range of days, or only its missing ones',
    load: async () => (await import('./commands/sync.ts')).backfill,
    examples: [
      'backfill --from 2026-01-01 --to 2026-03-31',
      'backfill --from 2026-01-01 --to 2026-03-31 --missing --stream chats',
    ],
    options: [
      new Option('--from <day>', 'first day, YYYY-MM-DD').makeOptionMandatory(),
      new Option('--to <day>', 'last day, YYYY-MM-DD').makeOptionMandatory(),
      streams(),
      projects(),
      new Option('--missing', 'only days that were never read, or are not sound (as held or stale)'),
      new Option('--accept-deletes', 'apply answers that delete most or all of the rows'),
      queue(),
    ],
    progress: true,
  })
  add({
    name: 'serve',
    about: 'the scheduler, with the status page, health and metrics over HTTP',
    load: async () => (await import('./commands/serve.ts')).serve,
    examples: ['serve', 'serve --host 0.0.0.0 --port 8080'],
    options: [
      new Option('--host <address>', 'address to listen on (default: serve.host, 127.0.0.1)'),
      new Option('--port <number>', 'port to listen on (default: serve.port, 8080)').argParser(
        wholeNumber('--port', 0, 65_535),
      ),
      queue(),
    ],
    service: true,
  })
  add({
    name: 'worker',
    about: 'processes windows of runs that share a queue, on any number of machines',
    load: async () => (await import('./commands/worker.ts')).worker,
    examples: ['worker', 'worker --concurrency 8', 'worker --heartbeat-file /tmp/heartbeat'],
    options: [
      new Option('--concurrency <number>', 'windows at once (default: source.concurrency)').argParser(
        wholeNumber('--concurrency', 1, 64),
      ),
      new Option('--heartbeat-file <file>', 'a file to touch every 5 s, for a liveness probe'),
    ],
    service: true,
  })
  add({
    name: 'plan',
    about: 'the windows that a run would read, and how many requests; changes nothing',
    load: async () => (await import('./commands/plan.ts')).plan,
    examples: ['plan', 'plan --from 2026-01-01 --to 2026-03-31 --json'],
    options: [
      new Option('--from <day>', 'plan a backfill from this day'),
      new Option('--to <day>', 'to this day'),
      streams(),
      projects(),
    ],
  })
  add({
    name: 'init',
    about: 'writes a configuration in which every setting is explained',
    load: async () => (await import('./commands/init.ts')).init,
    examples: ['init', 'init --config somewhere/else.yaml'],
    options: [new Option('--force', 'overwrite a file that exists')],
    bare: true,
  })
  add({
    name: 'check',
    about: 'configuration, key, each project, database and its privileges: one verdict for each',
    load: async () => (await import('./commands/check.ts')).check,
    examples: ['check', 'check --json', 'check --spec https://api.example.com/v1/openapi.json'],
    options: [
      new Option(
        '--spec <address>',
        'only compare an OpenAPI description, an address or a file, with what is sent and read',
      ),
    ],
  })
  add({
    name: 'status',
    about: 'freshness, coverage, what is held or quarantined, the last runs',
    load: async () => (await import('./commands/status.ts')).status,
    examples: ['status', 'status --json'],
    options: [
      new Option('--runs <number>', 'how many runs to list').default(10).argParser(wholeNumber('--runs', 1, 1000)),
    ],
  })
  add({
    name: 'config',
    about: 'the settings as they were understood, and where each came from; secrets are masked',
    load: async () => (await import('./commands/config.ts')).config,
    examples: ['config', 'config --changed', 'config --json'],
    options: [new Option('--changed', 'only what is set in the file or by a variable')],
  })
  add({
    name: 'support-bundle',
    about: 'writes one file for a bug report: versions, settings, status, runs, plan and sizes, without secrets',
    load: async () => (await import('./commands/support-bundle.ts')).supportBundle,
    examples: ['support-bundle', 'support-bundle --output bundle.json'],
    options: [
      new Option('--output <file>', 'the file to write (default: visibility-sync-support-….json in this folder)'),
    ],
  })
  add({
    name: 'audit',
    about: 'finds days whose warehouse sums differ from the service',
    load: async () => (await import('./commands/audit.ts')).audit,
    examples: ['audit', 'audit --repair', 'audit --from 2026-01-01 --to 2026-01-31 --json'],
    options: [
      new Option('--from <day>', 'first day, YYYY-MM-DD'),
      new Option('--to <day>', 'last day, YYYY-MM-DD'),
      new Option('--repair', 'read the differing days again'),
      projects(),
    ],
    progress: true,
  })
  const quarantine = program.command('quarantine').description('the rows that failed validation').helpCommand(false)
  const reason = () => new Option('--reason <text>', 'only rows with exactly this reason')
  const dismissed = (about: string) => new Option('--dismissed', about)
  add({
    name: 'list',
    about: 'lists them by reason',
    load: async () => (await import('./commands/quarantine.ts')).quarantineList,
    examples: ['quarantine list', 'quarantine list --each --stream chats', 'quarantine list --all'],
    options: [
      streams(),
      projects(),
      reason(),
      new Option('--each', 'one line for each row'),
      dismissed('those that were dismissed'),
      new Option('--all', 'resolved and dismissed ones too'),
    ],
    parent: quarantine,
  })
  add({
    name: 'show <id>',
    about: 'one row as it came, and why it failed',
    load: async () => (await import('./commands/quarantine.ts')).quarantineShow,
    examples: ['quarantine show 12'],
    parent: quarantine,
  })
  add({
    name: 'retry [ids...]',
    about: 'validates again and loads what passes now',
    load: async () => (await import('./commands/quarantine.ts')).quarantineRetry,
    examples: ['quarantine retry', 'quarantine retry 12 13'],
    options: [streams(), projects(), reason(), dismissed('undo dismissals, too')],
    parent: quarantine,
  })
  add({
    name: 'dismiss [ids...]',
    about: 'accepts that rows will never load, so that they no longer make runs partial',
    load: async () => (await import('./commands/quarantine.ts')).quarantineDismiss,
    examples: [
      'quarantine dismiss 12 13 --because "test rows of the vendor"',
      'quarantine dismiss --stream chats --because "known, reported to the vendor"',
    ],
    options: [
      streams(),
      projects(),
      reason(),
      new Option('--because <why>', 'why, for those who look later (required)'),
    ],
    parent: quarantine,
  })
  addCreations(program, add)
  add({
    name: 'migrate',
    about: 'creates or upgrades the tables (every run does so first)',
    load: async () => (await import('./commands/migrate.ts')).migrate,
    examples: ['migrate', 'migrate --move-source'],
    options: [new Option('--move-source', 'record VISIBILITY_API_URL as the new address of the same service')],
  })
  add({
    name: 'partition',
    about: 'moves report tables without partitions into monthly partitions; may be stopped and started again',
    load: async () => (await import('./commands/partition.ts')).partition,
    examples: ['partition'],
  })
  addBiCommands(add)
  add<object, [string]>({
    name: 'completion',
    about: 'prints a script that completes commands, options and names in a shell',
    load: async () => {
      const { printScript } = await import('./completion.ts')
      return async (_session, _options, shell) => printScript(program, shell)
    },
    examples: [
      'completion bash > ~/.local/share/bash-completion/completions/visibility-sync',
      'completion zsh > ~/.zfunc/_visibility-sync',
      'completion fish > ~/.config/fish/completions/visibility-sync.fish',
    ],
    arguments: [new Argument('<shell>', 'the shell').choices(['bash', 'zsh', 'fish'])],
    bare: true,
  })
  add({
    name: 'database',
    about:
      'keeps the embedded Postgres running, for psql or a BI tool; "stop" stops one that a killed command left behind',
    load: async () => (await import('./commands/database.ts')).database,
    examples: ['database', 'database stop'],
    arguments: [new Argument('[action]', 'instead of keeping it running').choices(['stop'])],
  })
  add({
    name: 'reference',
    about: 'the reference service on its own, for trying things out',
    load: async () => (await import('./commands/reference.ts')).reference,
    examples: ['reference', 'reference --port 8080 --fault server_error=0.1 --fault unstable_order=true'],
    options: [
      new Option('--host <address>', 'address to listen on').default('127.0.0.1'),
      new Option('--port <number>', 'port to listen on; 0 takes a free one')
        .default(8080)
        .argParser(wholeNumber('--port', 0, 65_535)),
      new Option('--seed <number>', 'another seed gives other data')
        .default(1)
        .argParser(wholeNumber('--seed', 0, 4_294_967_295)),
      new Option('--projects <number>', 'how many projects').default(2).argParser(wholeNumber('--projects', 1, 1000)),
      new Option('--prompts <number>', 'how many prompts in each project')
        .default(24)
        .argParser(wholeNumber('--prompts', 1, 100_000)),
      new Option('--extras', 'offer the extra operations, too'),
      new Option('--fault <name=value>', 'how to misbehave; may be repeated').argParser(collect),
    ],
  })
  return program
}

function addGlobals(command: Command): void {
  command.option('--config <file>', 'configuration file (default: VISIBILITY_CONFIG, else config/sync.yaml)')
  command.option('--json', 'one JSON document on stdout, logs on stderr')
}
