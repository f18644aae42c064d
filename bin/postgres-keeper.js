#!/usr/bin/env node
// Runs the embedded Postgres for as long as a command holds it. Commands start it; it is not for people.
const { existsSync } = require('node:fs')
const { join } = require('node:path')

const keeper = join(__dirname, '../dist/command/keeper.cjs')
if (!existsSync(keeper)) {
  process.stderr.write('visibility-sync is not built yet: run "npm run build" first ("npm ci" does so by itself).\n')
  process.exit(2)
}

// Postgres may run as another user, who could read our variables: keys and passwords stay with the commands.
const NEEDED = /^(PATH|HOME|TMPDIR|TZ|LD_LIBRARY_PATH|DYLD_LIBRARY_PATH)$/
for (const name of Object.keys(process.env)) if (!NEEDED.test(name)) delete process.env[name]

const options = JSON.parse(process.argv[2])
// What `ps` shows, and no "node" that someone ends by name.
process.title = `visibility-sync: Postgres in ${options.folder}`
require(keeper)
  .runKeeper(options)
  .then(() => process.exit())
