#!/usr/bin/env node
import { existsSync } from 'node:fs'
import module from 'node:module'
import { fileURLToPath } from 'node:url'

const main = new URL('../dist/command/main.js', import.meta.url)
if (!existsSync(main)) {
  process.stderr.write('visibility-sync is not built yet: run "npm run build" first ("npm ci" does so by itself).\n')
  process.exit(2)
}
// Where Node can (22 and later) and the folder may be written: what was compiled once is not compiled again.
module.enableCompileCache?.(fileURLToPath(new URL('../dist/compiled', import.meta.url)))
await import(main.href)
