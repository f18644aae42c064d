import { Argument, Option } from 'commander'
import type { Add } from './command-types.ts'
import { collect } from './option-values.ts'

/** The commands that fill BI tools or write files for them. */
export function addBiCommands(add: Add): void {
  add<{ out: string; project?: string[]; force?: boolean }, [string]>(
    'pack',
    'writes files for dbt, Superset, Grafana or Prometheus, or the data contract, for this configuration',
    [
      'pack dbt --out dbt',
      'pack superset --out superset --project or_…',
      'pack grafana --out grafana',
      'pack prometheus --out prometheus --force',
      'pack contract --out contract',
    ],
    async () => {
      const { pack } = await import('./commands/pack.ts')
      return (session, options, tool) => pack(session, tool, options)
    },
    {
      arguments: [
        new Argument('<tool>', 'what the files are for').choices([
          'dbt',
          'superset',
          'grafana',
          'prometheus',
          'contract',
        ]),
      ],
      options: [
        new Option('--out <folder>', 'the folder to write to').makeOptionMandatory(),
        new Option('--project <id>', 'limit dashboards, models and alerts to this project; may be repeated').argParser(
          collect,
        ),
        new Option('--force', 'overwrite files that were changed or that the command did not write'),
      ],
      offline: true,
    },
  )
  add<{ url: string }>(
    'metabase',
    'makes the connection, questions, models, metrics and a dashboard in a Metabase, or brings them up to date',
    ['metabase --url https://metabase.example.com'],
    async () => (await import('./commands/metabase.ts')).metabase,
    { options: [new Option('--url <address>', 'the address of the Metabase').makeOptionMandatory()] },
  )
}
