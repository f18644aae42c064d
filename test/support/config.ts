import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Config, loadConfig } from '../../src/core/config/load.ts'

/** The configuration as if it had been read from a file. */
export function configOf(settings: Record<string, unknown>, env: Record<string, string> = {}): Config {
  const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-config-'))
  try {
    writeFileSync(join(folder, 'sync.yaml'), JSON.stringify({ extras: 'off', ...settings }))
    return loadConfig({ file: join(folder, 'sync.yaml'), env })
  } finally {
    rmSync(folder, { recursive: true })
  }
}

/** The reports that tests sync if they name no others. */
export const FOUR_GRAINS = [
  { name: 'brand_daily', dimensions: ['date'] },
  { name: 'by_model', dimensions: ['date', 'model_id'] },
  { name: 'by_topic', dimensions: ['date', 'topic_id'] },
  { name: 'by_prompt', dimensions: ['date', 'prompt_id', 'model_id', 'country_code'] },
]
