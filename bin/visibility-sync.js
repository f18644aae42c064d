#!/usr/bin/env node
import { existsSync, fstatSync, readFileSync, writeFileSync } from 'node:fs'

const file = (path) => new URL(`../${path}`, import.meta.url)
const words = process.argv.slice(2)
const main = file('dist/command/main.js')
// Asked for by scripts and completion again and again: answered from a file, without loading anything.
const ready = words.length === 1 ? await readyAnswer(words[0]) : undefined
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
  const { default: module } = await import('node:module')
  const { fileURLToPath } = await import('node:url')
  // Where Node can (22 and later) and the folder may be written: what was compiled once is not compiled again.
  module.enableCompileCache?.(fileURLToPath(file('dist/compiled')))
  await import(main.href)
} else {
  process.stderr.write('visibility-sync is not built yet: run "npm run build" first ("npm ci" does so by itself).\n')
  process.exit(2)
}

async function readyAnswer(word) {
  if (word === '--version') return `${JSON.parse(readFileSync(file('package.json'), 'utf8')).version}\n`
  // Rendered for 80 columns, which is what is used where there is no terminal.
  const help = file('dist/command/help.txt')
  if (!['--help', '-h'].includes(word) || !existsSync(help)) return undefined
  const mayBeTerminal = fstatSync(1).isCharacterDevice()
  return mayBeTerminal && (await import('node:tty')).isatty(1) ? undefined : readFileSync(help)
}
