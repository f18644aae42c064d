// Writes what is made from the code: the JSON Schema of the configuration, docs/reference/tables.md, and the checksums of migrations that
// have none yet. Tests check that all are current.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { configJsonSchema, tablesPage } from '../dist/cli/generated.js'
import { readMigrations } from '../dist/warehouse/schema/migrate.js'

writeFileSync(
  new URL('../config/sync.schema.json', import.meta.url),
  `${JSON.stringify(configJsonSchema(), null, 2)}\n`,
)
writeFileSync(new URL('../docs/reference/tables.md', import.meta.url), tablesPage())

const checksums = new URL('../sql/migrations/checksums.txt', import.meta.url)
const kept = existsSync(checksums) ? readFileSync(checksums, 'utf8') : ''
const fresh = readMigrations().filter(({ name }) => !kept.includes(`  ${name}\n`))
writeFileSync(checksums, kept + fresh.map(({ name, checksum }) => `${checksum}  ${name}\n`).join(''))
