#!/usr/bin/env node
import { existsSync, readFileSync } from 'node:fs'

const file = (path) => new URL(`../${path}`, import.meta.url)
const words = process.argv.slice(2)
const main = file('dist/command/main.js')
// Asked for by scripts and completion again and again: answered from a file, without loading anything.
const ready = words.length === 1 ? readyAnswer(words[0]) : undefined
if (ready !== undefined) {
  // Whoever reads it may stop reading, as `head` does.
  process.stdout.on('error', () => {}).write(ready)
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

function readyAnswer(word) {
  if (word === '--version') return `${JSON.parse(readFileSync(file('package.json'), 'utf8')).version}\n`
  // Rendered for 80 columns, which is what is used where nobody looks.
  const help = file('dist/command/help.txt')
  if (['--help', '-h'].includes(word) && !process.stdout.isTTY && existsSync(help)) return readFileSync(help)
  return undefined
}
