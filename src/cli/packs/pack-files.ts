import { packageVersion } from '../../core/package-files.ts'
import { contractFiles } from './contract.ts'
import { dbtFiles } from './dbt.ts'
import { grafanaFiles } from './grafana.ts'
import { prometheusFiles } from './prometheus.ts'
import { supersetFiles } from './superset.ts'

/** Every file that is made from the catalogue for other tools, by its path. A folder that holds them holds nothing else. */
export function packFiles(): Record<string, string> {
  return {
    ...dbtFiles(),
    ...supersetFiles(),
    ...grafanaFiles(),
    ...prometheusFiles(),
    ...contractFiles(packageVersion()),
  }
}

/** Folders in which a file that is not made any more is removed. */
export const PACK_FOLDERS = ['packs/superset/visibility_sync', 'dbt/models/staging', 'contract']
