import { createHash } from 'node:crypto'
import type { Config } from '../core/config/load.ts'
import type { StreamSet } from '../streams/registry.ts'

// Raised whenever the same answer would be loaded as other rows than before, or results are written in another form.
const LOADING_VERSION = 2

/** What decides which rows a window becomes. */
export interface QueueIdentity {
  config: Config
  streams: StreamSet
  /** The address of the service, as the warehouse remembers it. */
  sourceAddress: string
  /** The ids of all configured projects. */
  projects: readonly string[]
}

/**
 * A queue for each configuration: processes whose settings would load different rows have different queues, so none can
 * do a window of the other. Keys are left out: they decide who may read, not which rows.
 */
export function queueNameOf({ config, streams: streamSet, sourceAddress, projects }: QueueIdentity): string {
  const streams = streamSet.all.map(({ name, by, table, columns, key }) => ({ name, by, table, columns, key }))
  const fingerprint = {
    version: LOADING_VERSION,
    source: sourceAddress,
    projects: [...projects].sort(),
    streams: streams.sort((a, b) => (a.name < b.name ? -1 : 1)),
    reports: [...config.reports].sort((a, b) => (a.name < b.name ? -1 : 1)),
    ...(config.custom_streams.length > 0 && { custom_streams: config.custom_streams }),
    labels: config.labels,
    max_bad_share: config.max_bad_share,
  }
  return `windows_${createHash('sha256').update(JSON.stringify(fingerprint)).digest('hex').slice(0, 16)}`
}
