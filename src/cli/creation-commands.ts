import { type Command, Option } from 'commander'
import type { CreationKind } from '../ledger/creations.ts'
import { type Add, collect } from './command-types.ts'
import type { CreateOptions } from './commands/create.ts'

export function addCreations(program: Command, add: Add): void {
  const about = "the service's write operations, singly or from a file, never twice"
  const parent = program.command('create').description(about).helpCommand(false)
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
  for (const [kind, aboutKind, options, example] of kinds) {
    add<CreateOptions>({
      name: kind,
      about: aboutKind,
      load: async () => {
        const { create } = await import('./commands/create.ts')
        return (session, given) => create(session, kind, given)
      },
      examples: [example, `create ${kind} --from ${kind}s.csv --yes`],
      options: [...options, ...shared()],
      parent,
      progress: true,
    })
  }
}
