import type { Config } from '../core/config/load.ts'
import { UsageError } from '../core/errors.ts'
import { contractFiles } from './contract.ts'
import { dbtFiles } from './dbt.ts'
import { grafanaFiles } from './grafana.ts'
import { relationsOf } from './relations.ts'
import { supersetFiles } from './superset.ts'
import { fill, readTemplate, valuesOf } from './template.ts'

export const TOOLS = ['dbt', 'superset', 'grafana', 'prometheus', 'contract'] as const
export type Tool = (typeof TOOLS)[number]

/** The files for a tool by their paths, for this configuration and, if any are named, for these projects alone. */
export function packFiles(tool: Tool, config: Config, projects: readonly string[] = []): Record<string, string> {
  const pack = { relations: relationsOf(config), projects, values: valuesOf(config, projects) }
  switch (tool) {
    case 'dbt':
      return dbtFiles(pack)
    case 'superset':
      return supersetFiles(pack)
    case 'grafana':
      return grafanaFiles(pack)
    case 'prometheus':
      return Object.fromEntries(
        ['alerts.yml', 'prometheus.yml'].map((name) => [name, fill(readTemplate(`prometheus/${name}`), pack.values)]),
      )
    case 'contract':
      if (projects.length > 0)
        throw new UsageError(
          '--project: the contract describes tables, which have the rows of all projects; leave it out',
        )
      return contractFiles(pack)
  }
}
