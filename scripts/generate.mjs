// Writes what is made from the code: the JSON Schema of the configuration, docs/tables.md, the packs for other tools, and the
// checksums of migrations that have none yet. Tests check that all are current.
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { configJsonSchema, tablesPage } from '../dist/cli/generated.js'
import { PACK_FOLDERS, packFiles } from '../dist/cli/packs/pack-files.js'
import { readMigrations } from '../dist/warehouse/schema/migrate.js'

writeFileSync(
  new URL('../config/sync.schema.json', import.meta.url),
  `${JSON.stringify(configJsonSchema(), null, 2)}\n`,
)
writeFileSync(new URL('../docs/tables.md', import.meta.url), tablesPage())

for (const folder of PACK_FOLDERS) rmSync(new URL(`../${folder}`, import.meta.url), { recursive: true, force: true })
for (const [path, text] of Object.entries(packFiles())) {
  const file = new URL(`../${path}`, import.meta.url)
  mkdirSync(new URL('.', file), { recursive: true })
  writeFileSync(file, text)
}

const checksums = new URL('../sql/migrations/checksums.txt', import.meta.url)
const kept = existsSync(checksums) ? readFileSync(checksums, 'utf8') : ''
const fresh = readMigrations().filter(({ name }) => !kept.includes(`  ${name}\n`))
writeFileSync(checksums, kept + fresh.map(({ name, checksum }) => `${checksum}  ${name}\n`).join(''))
