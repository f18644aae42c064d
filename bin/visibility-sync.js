#!/usr/bin/env node
// A CommonJS module, as package.json beside it says: Node loads its loader of ES modules only for those who need it, which
// is a quarter of the time of an empty program.
const { existsSync, fstatSync, readFileSync, writeFileSync } = require('node:fs')
const { join } = require('node:path')

const file = (path) => join(__dirname, '..', path)
const words = process.argv.slice(2)
const main = file('dist/command/main.cjs')
// Asked for by scripts and completion again and again: answered from a file, without loading anything.
const ready = words.length === 1 ? readyAnswer(words[0]) : undefined
if (ready !== undefined) {
  // Opening process.stdout would take a third of the time.
  try {
    writeFileSync(1, ready)
  } catch (error) {
    // Whoever reads it may stop reading, as `head` does, or be slow.
    if (error.code === 'EAGAIN') process.stdout.write(ready)
    else if (error.code !== 'EPIPE') process.exitCode = 1
  }
} else if (existsSync(main)) {
  require('./run-command.js').runCommand(main, words[0] === 'sync')
} else {
  process.stderr.write('visibility-sync is not built yet: run "npm run build" first ("npm ci" does so by itself).\n')
  process.exit(2)
}

function readyAnswer(word) {
  if (word === '--version') return `${JSON.parse(readFileSync(file('package.json'), 'utf8')).version}\n`
  // Rendered for 80 columns, which is what is used where there is no terminal.
  const help = file('dist/command/help.txt')
  if (!['--help', '-h'].includes(word) || !existsSync(help)) return undefined
  const mayBeTerminal = fstatSync(1).isCharacterDevice()
  return mayBeTerminal && require('node:tty').isatty(1) ? undefined : readFileSync(help)
}
