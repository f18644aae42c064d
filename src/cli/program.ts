import { Command, CommanderError, Option } from 'commander'
import { shownText } from '../core/config/describe-issue.ts'
import { LockedError, messageOf, UsageError } from '../core/errors.ts'
import type { CreationKind } from '../ledger/creations.ts'
import { readOnlyHint } from '../warehouse/database-failure.ts'
import type { CreateOptions } from './commands/create.ts'
import type { GlobalOptions, Session, Surroundings } from './session.ts'

/* The commands, their options and their help. What they do is loaded only when they run, so that --help is instant. */

export const EXIT = { ok: 0, failed: 1, usage: 2, locked: 3 } as const

type Action<O, A extends unknown[]> = (session: Session, options: O, ...args: A) => Promise<number>

/** Runs a command line and gives the exit code. Never throws. */
export async function runProgram(args: readonly string[], surroundings: Surroundings): Promise<number> {
  const { stderr, redactor } = surroundings
  let code: number = EXIT.ok
  let json = args.includes('--json')
  const complaints: string[] = []
  const command = buildProgram(surroundings, complaints, (result) => {
    code = result
  })
  try {
    await command.parseAsync([...args], { from: 'user' })
    return code
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return EXIT.ok
    // What was typed may hold a secret, and the configuration may not have been read.
    const { learnEnvironment } = await import('../core/config/load.ts')
    learnEnvironment(redactor)
    if (error instanceof CommanderError) {
      stderr.write(redactor.text(complaints.join('')))
      if (json)
        printError(surroundings, 'usage', error.code === 'commander.help' ? 'a command is missing' : error.message)
      return EXIT.usage
    }
    const hint = readOnlyHint(error)
    const [exit, kind] =
      error instanceof UsageError || hint !== undefined
        ? [EXIT.usage, 'usage']
        : error instanceof LockedError
          ? [EXIT.locked, 'locked']
          : [EXIT.failed, 'failed']
    const message = redactor.text([messageOf(error), ...(hint === undefined ? [] : [hint])].join('. '))
    json ||= command.opts<GlobalOptions>().json ?? false
    if (json) printError(surroundings, kind, message)
    stderr.write(`visibility-sync: ${message}\n`)
    return exit
  }
}

function printError({ stdout, redactor }: Surroundings, code: string, message: string): void {
  stdout.write(`${JSON.stringify(redactor.value({ error: { code, message } }), null, 2)}\n`)
}

/** What commander has to say of a wrong command line is collected in `complaints`. */
function buildProgram(surroundings: Surroundings, complaints: string[], setCode: (code: number) => void): Command {
  const program = new Command('visibility-sync')
    .description('Keeps a Postgres warehouse in step with an AI answer visibility reporting service.')
    .version(surroundings.version, '--version', 'print the version')
    .helpOption('--help', 'show this help')
    .helpCommand(false)
    .exitOverride()
    .configureOutput({
      writeOut: (text) => void surroundings.stdout.write(text),
      writeErr: (text) => void complaints.push(text),
    })
    .showHelpAfterError('(--help shows what is allowed)')
  addGlobals(program)
  program.addHelpText(
    'after',
    `
Without VISIBILITY_API_URL the reference service (synthetic data) is read; without DATABASE_URL an embedded Postgres
under .data/ is filled. The output says which.

Exit codes: 0 all done · 1 some or all of it failed, or something was held back · 2 bad usage or configuration (nothing
was read or written) · 3 another run holds the lock`,
  )

  /** Adds a command whose work is loaded when it runs. */
  const add = <O extends object, A extends unknown[] = []>(
    name: string,
    about: string,
    examples: string[],
    load: () => Promise<Action<O, A>>,
    settings: { options?: Option[]; progress?: boolean; parent?: Command } = {},
  ) => {
    const command = (settings.parent ?? program).command(name).description(about).helpOption('--help', 'show this help')
    for (const option of settings.options ?? []) command.addOption(option)
    addGlobals(command)
    command.addHelpText(
      'after',
      `\nExamples:\n${examples.map((example) => `  $ visibility-sync ${example}`).join('\n')}`,
    )
    command.action(async (...words: unknown[]) => {
      // Commander passes the arguments, then the options, then the command.
      const options = words.at(-2) as O & GlobalOptions
      const args = words.slice(0, -2) as A
      const { openSession } = await import('./session.ts')
      const session = openSession({ ...program.opts<GlobalOptions>(), ...options }, surroundings, settings.progress)
      try {
        setCode(await (await load())(session, options, ...args))
      } finally {
        session.end()
      }
    })
  }

  const streams = () => new Option('--stream <name>', 'only this stream; may be repeated').argParser(collect)
  const projects = () => new Option('--project <id>', 'only this project; may be repeated').argParser(collect)
  const queue = () => new Option('--queue', 'put the windows into the shared queue, for workers to take')

  add(
    'sync',
    'one incremental run: gaps, lookback, entity lists',
    ['sync', 'sync --stream chats --stream brand_daily', 'sync --json'],
    async () => (await import('./commands/sync.ts')).sync,
    {
      options: [streams(), projects(), queue()],
      progress: true,
    },
  )
  add(
    'backfill',
    're-reads a range of days, or only its missing ones',
    [
      'backfill --from 2026-01-01 --to 2026-03-31',
      'backfill --from 2026-01-01 --to 2026-03-31 --missing --stream chats',
    ],
    async () => (await import('./commands/backfill.ts')).backfill,
    {
      options: [
        new Option('--from <day>', 'first day, YYYY-MM-DD').makeOptionMandatory(),
        new Option('--to <day>', 'last day, YYYY-MM-DD').makeOptionMandatory(),
        streams(),
        projects(),
        new Option('--missing', 'only days that were never read'),
        new Option('--accept-deletes', 'obey answers that delete more than half of what was there'),
        queue(),
      ],
      progress: true,
    },
  )
  add<{ host?: string; port?: number }>(
    'serve',
    'the scheduler, with the status page, health and metrics over HTTP',
    ['serve', 'serve --host 0.0.0.0 --port 8080'],
    async () => (await import('./commands/serve.ts')).serve,
    {
      options: [
        new Option('--host <address>', 'address to listen on (default: serve.host, 127.0.0.1)'),
        new Option('--port <number>', 'port to listen on (default: serve.port, 8080)').argParser(
          wholeNumber('--port', 0, 65_535),
        ),
        queue(),
      ],
    },
  )
  add<{ concurrency?: number; heartbeatFile?: string }>(
    'worker',
    'takes windows from the shared queue; any number on any machines',
    ['worker', 'worker --concurrency 8', 'worker --heartbeat-file /tmp/heartbeat'],
    async () => (await import('./commands/worker.ts')).worker,
    {
      options: [
        new Option('--concurrency <number>', 'windows at once (default: source.concurrency)').argParser(
          wholeNumber('--concurrency', 1, 64),
        ),
        new Option(
          '--heartbeat-file <file>',
          'a file to touch every 5 s, for a probe that restarts a process that hangs',
        ),
      ],
    },
  )
  add(
    'plan',
    'the windows that a run would read, and how many requests; changes nothing',
    ['plan', 'plan --from 2026-01-01 --to 2026-03-31 --json'],
    async () => (await import('./commands/plan.ts')).plan,
    {
      options: [
        new Option('--from <day>', 'plan a backfill from this day'),
        new Option('--to <day>', 'to this day'),
        streams(),
        projects(),
      ],
    },
  )
  add<{ force?: boolean }>(
    'init',
    'writes a commented config/sync.yaml, and tells what to set',
    ['init'],
    async () => (await import('./commands/init.ts')).init,
    { options: [new Option('--force', 'overwrite a file that exists')] },
  )
  add(
    'check',
    'configuration, key, each project, database and its privileges: one verdict for each',
    ['check', 'check --json'],
    async () => (await import('./commands/check.ts')).check,
  )
  add(
    'status',
    'freshness, coverage and the last runs',
    ['status', 'status --json'],
    async () => (await import('./commands/status.ts')).status,
    {
      options: [
        new Option('--runs <number>', 'how many runs to list').default(10).argParser(wholeNumber('--runs', 1, 1000)),
      ],
    },
  )
  add(
    'audit',
    'finds days whose warehouse sums differ from the service',
    ['audit', 'audit --repair', 'audit --json'],
    async () => (await import('./commands/audit.ts')).audit,
    { options: [new Option('--repair', 'read the differing days again'), projects()], progress: true },
  )
  const quarantine = program
    .command('quarantine')
    .description('the rows that failed validation')
    .helpOption('--help', 'show this help')
    .helpCommand(false)
  const reason = () => new Option('--reason <text>', 'only rows that failed for this reason, to the letter')
  const dismissed = (about: string) => new Option('--dismissed', about)
  add(
    'list',
    'lists them by reason',
    ['quarantine list', 'quarantine list --each --stream chats', 'quarantine list --all'],
    async () => (await import('./commands/quarantine.ts')).quarantineList,
    {
      options: [
        streams(),
        projects(),
        reason(),
        new Option('--each', 'one line for each row'),
        dismissed('those that were dismissed'),
        new Option('--all', 'resolved and dismissed ones too'),
      ],
      parent: quarantine,
    },
  )
  add<object, [string]>(
    'show <id>',
    'one row as it came, and why it failed',
    ['quarantine show 12'],
    async () => {
      const { quarantineShow } = await import('./commands/quarantine.ts')
      return (session, _options, id) => quarantineShow(session, id)
    },
    { parent: quarantine },
  )
  add<{ stream?: string[]; project?: string[] }, [string[]]>(
    'retry [ids...]',
    'validates again and loads what passes now',
    ['quarantine retry', 'quarantine retry 12 13'],
    async () => {
      const { quarantineRetry } = await import('./commands/quarantine.ts')
      return (session, options, ids) => quarantineRetry(session, ids, options)
    },
    { options: [streams(), projects(), reason(), dismissed('undo dismissals, too')], parent: quarantine },
  )
  add<{ because?: string }, [string[]]>(
    'dismiss [ids...]',
    'rows that will never load no longer make runs partial',
    [
      'quarantine dismiss 12 13 --because "test rows of the vendor"',
      'quarantine dismiss --stream chats --because "known, reported to the vendor"',
    ],
    async () => {
      const { quarantineDismiss } = await import('./commands/quarantine.ts')
      return (session, options, ids) => quarantineDismiss(session, ids, options)
    },
    {
      options: [
        streams(),
        projects(),
        reason(),
        new Option('--because <why>', 'why, for those who look later (required)'),
      ],
      parent: quarantine,
    },
  )
  addCreations(program, add)
  add(
    'migrate',
    'creates or upgrades the tables (every run does so first)',
    ['migrate', 'migrate --move-source'],
    async () => (await import('./commands/migrate.ts')).migrate,
    { options: [new Option('--move-source', 'record VISIBILITY_API_URL as the new address of the same service')] },
  )
  add(
    'partition',
    'moves report tables in one piece into monthly parts; may be stopped and started again',
    ['partition'],
    async () => (await import('./commands/partition.ts')).partition,
  )
  add<{ role: string; keepTimezone?: boolean }>(
    'grant',
    'lets a role of a BI tool read the tables and views, and nothing else',
    ['grant --role metabase_reader'],
    async () => (await import('./commands/grant.ts')).grant,
    {
      options: [
        new Option('--role <name>', 'an existing role of the database').makeOptionMandatory(),
        new Option('--keep-timezone', 'leave its time zone alone instead of setting it to UTC in this database'),
      ],
    },
  )
  add<{ url: string }>(
    'metabase',
    'makes the connection, the questions and a dashboard in a Metabase, or brings them up to date',
    ['metabase --url https://metabase.example.com'],
    async () => (await import('./commands/metabase.ts')).metabase,
    { options: [new Option('--url <address>', 'the address of the Metabase').makeOptionMandatory()] },
  )
  add(
    'database',
    'keeps the embedded Postgres running, for psql or a BI tool',
    ['database'],
    async () => (await import('./commands/database.ts')).database,
  )
  add(
    'reference',
    'the reference service on its own, for trying things out',
    ['reference', 'reference --port 8080 --fault server_error=0.1 --fault unstable_order=true'],
    async () => (await import('./commands/reference.ts')).reference,
    {
      options: [
        new Option('--host <address>', 'address to listen on').default('127.0.0.1'),
        new Option('--port <number>', 'port to listen on; 0 takes a free one').default('8080'),
        new Option('--seed <number>', 'another seed makes another world').default('1'),
        new Option('--projects <number>', 'how many projects').default('2'),
        new Option('--prompts <number>', 'how many prompts in each project').default('24'),
        new Option('--fault <name=value>', 'how to misbehave; may be repeated').argParser(collect),
      ],
    },
  )
  return program
}

type Add = <O extends object, A extends unknown[] = []>(
  name: string,
  about: string,
  examples: string[],
  load: () => Promise<Action<O, A>>,
  settings?: { options?: Option[]; progress?: boolean; parent?: Command },
) => void

/** The service's write operations. */
function addCreations(program: Command, add: Add): void {
  const parent = program
    .command('create')
    .description("the service's write operations, singly or from a file, never twice")
    .helpOption('--help', 'show this help')
    .helpCommand(false)
  const shared = () => [
    new Option('--project <id>', 'the project; may be left out where there is only one'),
    new Option('--from <file>', 'create what the lines of a CSV or JSON lines file say'),
    new Option('--yes', 'go ahead without asking'),
    new Option('--results <file>', 'where to write what became of each line (default: FILE.results.csv)'),
  ]
  const name = () => new Option('--name <text>', 'its name')
  const country = () => new Option('--country <code>', 'its country, two letters')
  const color = () => new Option('--color <name>', 'its colour')
  const kinds: [CreationKind, string, Option[], string][] = [
    [
      'prompt',
      'creates a prompt, which costs credits',
      [
        new Option('--text <text>', 'what is asked, 1 to 700 characters'),
        country(),
        new Option('--tag <id>', 'a tag; may be repeated').argParser(collect),
        new Option('--topic <id or name>', 'its topic; a name that is not known yet is created'),
      ],
      'create prompt --text "Which running shoe is best?" --country DE',
    ],
    ['topic', 'creates a topic', [name(), country()], 'create topic --name "Running shoes"'],
    [
      'domain-classification',
      'creates a custom classification of domains',
      [name(), color()],
      'create domain-classification --name Press --color teal',
    ],
    [
      'url-classification',
      'creates a custom classification of URLs',
      [name(), color()],
      'create url-classification --name Reviews',
    ],
  ]
  for (const [kind, about, options, example] of kinds) {
    add<CreateOptions>(
      kind,
      about,
      [example, `create ${kind} --from ${kind}s.csv --yes`],
      async () => {
        const { create } = await import('./commands/create.ts')
        return (session, given) => create(session, kind, given)
      },
      { options: [...options, ...shared()], parent, progress: true },
    )
  }
}

function addGlobals(command: Command): void {
  command.option('--config <file>', 'configuration file (default: VISIBILITY_CONFIG, else config/sync.yaml)')
  command.option('--json', 'one JSON document on stdout, logs on stderr')
}

function collect(value: string, before: string[] | undefined): string[] {
  return [...(before ?? []), value]
}

function wholeNumber(option: string, from: number, to: number): (text: string) => number {
  return (text) => {
    const value = Number(text)
    if (/^\d+$/.test(text) && value >= from && value <= to) return value
    throw new UsageError(`${option}: got ${shownText(text, 40)}; allowed: a whole number from ${from} to ${to}`)
  }
}
