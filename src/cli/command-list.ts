import { Argument, type Command, Option } from 'commander'
import { shownText } from '../core/config/secrets.ts'
import { UsageError } from '../core/errors.ts'
import type { CreationKind } from '../ledger/creations.ts'
import type { CreateOptions } from './commands/create.ts'
import type { CommandKind, Session } from './session.ts'

/* The commands, their options and their help. What they do is loaded only when they run, so that --help is instant. */

type Action<O, A extends unknown[]> = (session: Session, options: O, ...args: A) => Promise<number>

export interface CommandSettings<O extends object, A extends unknown[]> {
  name: string
  about: string
  examples: string[]
  load: () => Promise<Action<O, A>>
  options?: Option[]
  /** Instead of those in the name. */
  arguments?: Argument[]
  kind?: CommandKind
  /** Whether VISIBILITY_PROJECTS=all is resolved first. Runs and services need it. */
  projects?: 'needed' | 'useful' | 'unused'
}

type Add = <O extends object, A extends unknown[] = []>(settings: CommandSettings<O, A>, parent?: Command) => void

const option = (flags: string, about: string) => new Option(flags, about)
const required = (flags: string, about: string) => option(flags, about).makeOptionMandatory()
const repeated = (flags: string, about: string) =>
  option(flags, about).argParser((value: string, before: string[] | undefined) => [...(before ?? []), value])

function wholeNumber(flags: string, about: string, [from, to]: [from: number, to: number], byDefault?: number): Option {
  return option(flags, about)
    .default(byDefault)
    .argParser((text) => {
      const value = Number(text)
      if (/^\d+$/.test(text) && value >= from && value <= to) return value
      const name = flags.split(' ')[0]
      throw new UsageError(`${name}: got ${shownText(text, 40)}; allowed: a whole number from ${from} to ${to}`)
    })
}

const streams = repeated('--stream <name>', 'only this stream; may be repeated')
const projects = repeated(
  '--project <id>',
  'only this project, by its id, its name or the start of its id; may be repeated',
)
const ids = option('--ids', 'whole ids of projects in place of their names')
const range = [
  option('--from <day>', 'first day, YYYY-MM-DD'),
  option('--to <day>', 'last day, YYYY-MM-DD (default: yesterday)'),
  option('--last <days>', 'so many days in place of --from, as 30d'),
]
const queue = option('--queue', 'put the windows into the shared queue, for workers to take')

export function addCommands(program: Command, add: Add): void {
  program.commandsGroup('Start:')
  add({
    name: 'init',
    about: 'asks for the service, the database and the projects, tests them, and writes the configuration',
    load: async () => (await import('./commands/init.ts')).init,
    examples: ['init', 'init --full', 'init --config somewhere/else.yaml'],
    options: [
      option('--full', 'ask nothing, and write every setting explained, as without a terminal'),
      option('--yes', 'the same; it tests nothing, so run check next'),
      option('--force', 'overwrite a file that exists'),
    ],
    kind: 'bare',
  })
  add({
    name: 'check',
    about: 'configuration, key, each project, database and its privileges: one verdict for each',
    load: async () => (await import('./commands/check.ts')).check,
    examples: ['check', 'check --json', 'check --spec https://api.example.com/v1/openapi.json'],
    options: [
      option(
        '--spec <address>',
        'only compare an OpenAPI description, an address or a file, with what is sent and read',
      ),
      option('--alerts', 'also send a test message to every alert channel'),
      ids,
    ],
  })
  add({
    name: 'sync',
    about: 'one incremental run: missing days, the last days again, and the lists',
    load: async () => (await import('./commands/sync.ts')).sync,
    examples: ['sync', 'sync --stream chats --stream brand_daily', 'sync --json'],
    options: [streams, projects, ids, queue],
    kind: 'run',
  })
  add({
    name: 'serve',
    about: 'the scheduler, with the status page, health and metrics over HTTP',
    load: async () => (await import('./commands/serve.ts')).serve,
    examples: ['serve', 'serve --host 0.0.0.0 --port 8080'],
    options: [
      option('--host <address>', 'address to listen on (default: serve.host, 127.0.0.1)'),
      wholeNumber('--port <number>', 'port to listen on (default: serve.port, 8080)', [0, 65_535]),
      queue,
    ],
    kind: 'service',
  })
  add({
    name: 'status',
    about: 'freshness, coverage, what is held or quarantined, the last runs',
    load: async () => (await import('./commands/status.ts')).status,
    examples: ['status', 'status --json'],
    options: [wholeNumber('--runs <number>', 'how many runs to list', [1, 1000], 10), ids],
    projects: 'useful',
  })
  program.commandsGroup('Operate:')
  add({
    name: 'backfill',
    about: 're-reads a range of days, or only its missing ones',
    load: async () => (await import('./commands/sync.ts')).backfill,
    examples: ['backfill --last 30d', 'backfill --from 2026-01-01 --to 2026-03-31 --missing --stream chats'],
    options: [
      ...range,
      streams,
      projects,
      ids,
      option('--missing', 'only days that were never read, or are not sound (as held or stale)'),
      option('--accept-deletes', 'apply answers that delete most or all of the rows'),
      queue,
    ],
    kind: 'run',
  })
  add({
    name: 'plan',
    about: 'the windows that a run would read, and how many requests; changes nothing',
    load: async () => (await import('./commands/plan.ts')).plan,
    examples: ['plan', 'plan --from 2026-01-01 --to 2026-03-31 --json'],
    options: [...range, streams, projects, ids],
    projects: 'needed',
  })
  add({
    name: 'audit',
    about: 'finds days whose warehouse sums differ from the service',
    load: async () => (await import('./commands/audit.ts')).audit,
    examples: ['audit', 'audit --repair', 'audit --from 2026-01-01 --to 2026-01-31 --json'],
    options: [...range, option('--repair', 'read the differing days again'), projects, ids],
    kind: 'run',
  })
  addQuarantine(program, add)
  add({
    name: 'worker',
    about: 'processes windows of runs that share a queue, on any number of machines',
    load: async () => (await import('./commands/worker.ts')).worker,
    examples: ['worker', 'worker --concurrency 8', 'worker --heartbeat-file /tmp/heartbeat'],
    options: [
      wholeNumber('--concurrency <number>', 'windows at once (default: source.concurrency)', [1, 64]),
      option('--heartbeat-file <file>', 'a file to touch every 5 s, for a liveness probe'),
    ],
    kind: 'service',
  })
  add({
    name: 'migrate',
    about: 'creates or upgrades the tables (every run does so first)',
    load: async () => (await import('./commands/migrate.ts')).migrate,
    examples: ['migrate', 'migrate --move-source'],
    options: [option('--move-source', 'record VISIBILITY_API_URL as the new address of the same service')],
    projects: 'useful',
  })
  program.commandsGroup('BI:')
  add({
    name: 'grant',
    about: 'lets a role of a BI tool read the tables and views, and nothing else',
    load: async () => (await import('./commands/grant.ts')).grant,
    examples: [
      'grant --role metabase_reader',
      'grant --role client_reader --project or_…',
      'grant --role old_reader --revoke',
    ],
    options: [
      required('--role <name>', 'an existing role of the database'),
      repeated('--project <id>', 'show it this project only; may be given more than once'),
      option('--revoke', 'take the access back'),
      option('--keep-timezone', 'leave its time zone alone instead of setting it to UTC in this database'),
      option('--keep-settings', 'leave its time zone and its jit setting alone'),
    ],
  })
  add({
    name: 'metabase',
    about: 'makes the connection, questions, models, metrics and a dashboard in a Metabase, or brings them up to date',
    load: async () => (await import('./commands/metabase.ts')).metabase,
    examples: [
      'metabase --url https://metabase.example.com',
      'metabase --url https://metabase.example.com --project or_…',
    ],
    options: [
      required('--url <address>', 'the address of the Metabase'),
      option('--project <id>', 'make a connection, a collection and a dashboard for this client alone'),
    ],
  })
  add({
    name: 'pack',
    about: 'writes files for dbt, Superset, Grafana or Prometheus, or the data contract, for this configuration',
    load: async () => (await import('./commands/pack.ts')).pack,
    examples: [
      'pack dbt --out dbt',
      'pack superset --out superset --project or_…',
      'pack contract --out contract --force',
    ],
    arguments: [choice('<tool>', 'what the files are for', ['dbt', 'superset', 'grafana', 'prometheus', 'contract'])],
    options: [
      required('--out <folder>', 'the folder to write to'),
      repeated('--project <id>', 'only this project in dashboards, models and alerts; may be repeated'),
      option('--force', 'overwrite files that were changed or that the command did not write'),
    ],
  })
  add({
    name: 'mcp',
    about: 'answers questions of an assistant about the warehouse: a read-only MCP server on standard input and output',
    load: async () => (await import('./commands/mcp.ts')).mcp,
    examples: ['mcp', 'mcp --config config/sync.yaml'],
    kind: 'service',
    projects: 'unused',
  })
  program.commandsGroup('Write:')
  addCreations(program, add)
  program.commandsGroup('More:')
  add({
    name: 'config',
    about: 'the settings as they were understood, and where each came from; secrets are masked',
    load: async () => (await import('./commands/config.ts')).config,
    examples: ['config', 'config --changed', 'config --json'],
    options: [option('--changed', 'only what is set in the file or by a variable')],
  })
  add({
    name: 'support-bundle',
    about: 'writes one file for a bug report: versions, settings, status, runs, plan and sizes, without secrets',
    load: async () => (await import('./commands/support-bundle.ts')).supportBundle,
    examples: ['support-bundle', 'support-bundle --output bundle.json'],
    options: [option('--output <file>', 'the file to write (default: visibility-sync-support-….json in this folder)')],
    projects: 'useful',
  })
  add({
    name: 'partition',
    about: 'moves report tables without partitions into monthly partitions; may be stopped and started again',
    load: async () => (await import('./commands/partition.ts')).partition,
    examples: ['partition'],
  })
  add<object, [string?]>({
    name: 'help',
    about: 'prints a page of the docs, or lists them',
    load: async () => (await import('./commands/help.ts')).help,
    examples: ['help', 'help database-role'],
    arguments: [new Argument('[topic]', 'a topic of the list')],
    kind: 'bare',
  })
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
    arguments: [choice('<shell>', 'the shell', ['bash', 'zsh', 'fish'])],
    kind: 'bare',
  })
  add({
    name: 'database',
    about:
      'keeps the embedded Postgres running, for psql or a BI tool; "stop" stops one that a killed command left behind',
    load: async () => (await import('./commands/database.ts')).database,
    examples: ['database', 'database stop'],
    arguments: [choice('[action]', 'instead of keeping it running', ['stop'])],
  })
  add({
    name: 'reference',
    about: 'the reference service on its own, for trying things out',
    load: async () => (await import('./commands/reference.ts')).reference,
    examples: ['reference', 'reference --port 8080 --fault server_error=0.1 --fault unstable_order=true'],
    options: [
      option('--host <address>', 'address to listen on').default('127.0.0.1'),
      wholeNumber('--port <number>', 'port to listen on; 0 takes a free one', [0, 65_535], 8080),
      wholeNumber('--seed <number>', 'another seed gives other data', [0, 4_294_967_295], 1),
      wholeNumber('--projects <number>', 'how many projects', [1, 1000], 2),
      wholeNumber('--prompts <number>', 'how many prompts in each project', [1, 100_000], 24),
      option('--extras', 'offer the extra operations, too'),
      repeated('--fault <name=value>', 'how to misbehave; may be repeated'),
    ],
  })
}

function choice(name: string, about: string, values: string[]): Argument {
  return new Argument(name, about).choices(values)
}

function addQuarantine(program: Command, add: Add): void {
  const group = program.command('quarantine').description('the rows that failed validation').helpCommand(false)
  const addTo: Add = (settings) => add(settings, group)
  const load = () => import('./commands/quarantine.ts')
  const chosen = [streams, projects, option('--reason <text>', 'only rows with exactly this reason')]
  addTo({
    name: 'list',
    about: 'lists them by reason',
    load: async () => (await load()).quarantineList,
    examples: ['quarantine list', 'quarantine list --each --stream chats', 'quarantine list --all'],
    options: [
      ...chosen,
      option('--each', 'one line for each row'),
      option('--dismissed', 'those that were dismissed'),
      option('--all', 'resolved and dismissed ones too'),
    ],
  })
  addTo({
    name: 'show <id>',
    about: 'one row as it came, and why it failed',
    load: async () => (await load()).quarantineShow,
    examples: ['quarantine show 12'],
  })
  addTo({
    name: 'retry [ids...]',
    about: 'validates again and loads what passes now',
    load: async () => (await load()).quarantineRetry,
    examples: ['quarantine retry', 'quarantine retry 12 13'],
    options: [...chosen, option('--dismissed', 'undo dismissals, too')],
  })
  addTo({
    name: 'dismiss [ids...]',
    about: 'accepts that rows will never load, so that they no longer make runs partial',
    load: async () => (await load()).quarantineDismiss,
    examples: [
      'quarantine dismiss 12 13 --because "test rows of the vendor"',
      'quarantine dismiss --stream chats --because "known, reported to the vendor"',
    ],
    options: [...chosen, option('--because <why>', 'why, for those who look later (required)')],
  })
}

function addCreations(program: Command, add: Add): void {
  const about = "the service's write operations, singly or from a file, never twice"
  const group = program.command('create').description(about).helpCommand(false)
  const addTo: Add = (settings) => add(settings, group)
  const addKind = (kind: CreationKind, about: string, options: Option[], example: string) =>
    addTo<CreateOptions>({
      name: kind,
      about,
      load: async () => {
        const { create } = await import('./commands/create.ts')
        return (session, given) => create(session, kind, given)
      },
      examples: [`create ${kind} ${example}`, `create ${kind} --from ${kind}s.csv --yes`],
      options: [
        ...options,
        option('--project <id>', 'the project; may be left out where there is only one'),
        option('--from <file>', 'create what the lines of a CSV or JSON lines file say'),
        option('--yes', 'go ahead without asking'),
        option('--results <file>', 'where to write what became of each line (default: FILE.results.csv)'),
      ],
      kind: 'run',
    })
  const name = option('--name <text>', 'its name')
  const country = option('--country <code>', 'its country, two letters')
  const color = option('--color <name>', 'its colour')
  const promptOptions = [
    option('--text <text>', 'what is asked, 1 to 700 characters'),
    country,
    repeated('--tag <id>', 'a tag; may be repeated'),
    option('--topic <id or name>', 'its topic; a name that is not known yet is created'),
  ]
  const example = '--text "Which running shoe is best?" --country DE'
  addKind('prompt', 'creates a prompt, which costs credits', promptOptions, example)
  addKind('topic', 'creates a topic', [name, country], '--name "Running shoes"')
  const domains = 'creates a custom classification of domains'
  addKind('domain-classification', domains, [name, color], '--name Press --color teal')
  addKind('url-classification', 'creates a custom classification of URLs', [name, color], '--name Reviews')
}
