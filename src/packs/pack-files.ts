import type { Config } from '../core/config/load.ts'
import { unusedRelations } from '../warehouse/schema/views.ts'
import { contractFiles } from './contract.ts'
import { dbtFiles } from './dbt.ts'
import { grafanaFiles } from './grafana.ts'
import { type Pack, relationsOf, type Use } from './relations.ts'
import { supersetFiles } from './superset.ts'
import { fill, readTemplate, valuesOf } from './template.ts'

const MAKERS = {
  dbt: dbtFiles,
  superset: supersetFiles,
  grafana: grafanaFiles,
  prometheus: ({ values }: Pack) =>
    Object.fromEntries(
      ['alerts.yml', 'prometheus.yml'].map((name) => [name, fill(readTemplate(`prometheus/${name}`), values)]),
    ),
  contract: contractFiles,
}
export type Tool = keyof typeof MAKERS

/** By their paths, for all projects if none are named. */
export function packFiles(
  tool: Tool,
  config: Config,
  projects: readonly string[] = [],
  { channelViews, unused }: Use = { channelViews: new Set(), unused: unusedRelations(config) },
): Record<string, string> {
  return MAKERS[tool]({
    relations: relationsOf(config, unused),
    projects,
    channelViews,
    values: valuesOf(config, projects),
  })
}
