// Writes what is made from the code: the JSON Schema of the configuration and docs/tables.md. A test checks that both are current.
import { writeFileSync } from 'node:fs'
import { configJsonSchema, tablesPage } from '../dist/cli/generated.js'

writeFileSync(
  new URL('../config/sync.schema.json', import.meta.url),
  `${JSON.stringify(configJsonSchema(), null, 2)}\n`,
)
writeFileSync(new URL('../docs/tables.md', import.meta.url), tablesPage())
