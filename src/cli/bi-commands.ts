import { Argument, Option } from 'commander'
import { type Add, collect } from './command-types.ts'

const TOOLS = ['dbt', 'superset', 'grafana', 'prometheus', 'contract']

export function addBiCommands(add: Add): void {
  add({
    name: 'pack',
    about: 'writes files for dbt, Superset, Grafana or Prometheus, or the data contract, for this configuration',
    load: async () => (await import('./commands/pack.ts')).pack,
    examples: [
      'pack dbt --out dbt',
      'pack superset --out superset --project or_…',
      'pack grafana --out grafana',
      'pack prometheus --out prometheus --force',
      'pack contract --out contract',
    ],
    arguments: [new Argument('<tool>', 'what the files are for').choices(TOOLS)],
    options: [
      new Option('--out <folder>', 'the folder to write to').makeOptionMandatory(),
      new Option('--project <id>', 'limit dashboards, models and alerts to this project; may be repeated').argParser(
        collect,
      ),
      new Option('--force', 'overwrite files that were changed or that the command did not write'),
    ],
    offline: true,
  })
  add({
    name: 'metabase',
    about: 'makes the connection, questions, models, metrics and a dashboard in a Metabase, or brings them up to date',
    load: async () => (await import('./commands/metabase.ts')).metabase,
    examples: ['metabase --url https://metabase.example.com'],
    options: [new Option('--url <address>', 'the address of the Metabase').makeOptionMandatory()],
  })
}
