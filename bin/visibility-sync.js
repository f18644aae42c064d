#!/usr/bin/env node
// A CommonJS module, as package.json beside it says: Node then starts without its loader of ES modules.
const { existsSync } = require('node:fs')
const { join } = require('node:path')

const main = join(__dirname, '../dist/command/main.cjs')
if (existsSync(main)) require(main)
else {
  process.stderr.write('visibility-sync is not built yet: run "npm run build" first ("npm ci" does so by itself).\n')
  process.exitCode = 2
}
