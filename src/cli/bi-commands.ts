import { Argument, Option } from 'commander'
import { type Add, collect } from './command-types.ts'

const TOOLS = ['dbt', 'superset', 'grafana', 'prometheus', 'contract']

/** Commands for the tools that read the warehouse. */
export function addBiCommands(add: Add): void {
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
      new Option('--role <name>', 'an existing role of the database').makeOptionMandatory(),
      new Option('--project <id>', 'show it this project only; may be given more than once').argParser(collect),
      new Option('--revoke', 'take the access back'),
      new Option('--keep-timezone', 'leave its time zone alone instead of setting it to UTC in this database'),
      new Option('--keep-settings', 'leave its time zone and its jit setting alone'),
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
    arguments: [new Argument('<tool>', 'what the files are for').choices(TOOLS)],
    options: [
      new Option('--out <folder>', 'the folder to write to').makeOptionMandatory(),
      new Option('--project <id>', 'only this project in dashboards, models and alerts; may be repeated').argParser(
        collect,
      ),
      new Option('--force', 'overwrite files that were changed or that the command did not write'),
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
      new Option('--url <address>', 'the address of the Metabase').makeOptionMandatory(),
      new Option('--project <id>', 'make a connection, a collection and a dashboard for this client alone'),
    ],
  })
}
