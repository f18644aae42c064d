// Runs the main job in a fresh folder and draws what it prints on a terminal, for the README.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { runProgram } from '../dist/cli/program.js'
import { createRedactor } from '../dist/core/redactor.js'

const root = fileURLToPath(new URL('..', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-picture-'))
process.chdir(folder)
let output = ''
const write = (data, _encoding, done) => {
  output += data
  done()
}
const terminal = (write) => Object.assign(new Writable({ write }), { isTTY: true, columns: 80 })
await runProgram(['sync'], {
  stdin: process.stdin,
  stdout: terminal(write),
  stderr: terminal((_data, _encoding, done) => done()),
  signal: new AbortController().signal,
  version: '',
  redactor: createRedactor(),
  env: { PATH: process.env.PATH, VISIBILITY_CONFIG: `${root}config/sync.example.yaml` },
})
rmSync(folder, { recursive: true, force: true })

const COLOURS = { 31: '#ff7b72', 32: '#7ee787', 33: '#e3b341' }
const escape = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
/** The parts of a line, each with the code of its colour. */
const partsOf = (line) =>
  line.split('\u001b[').map((part, index) => {
    if (index === 0) return { text: part }
    const [, code, text] = /^(\d+)m(.*)$/.exec(part)
    return { text, code }
  })
const lines = ['\u001b[32m$ npm ci && npm start\u001b[39m', '', ...output.trimEnd().split('\n')].map(partsOf)
const lengthOf = (parts) => parts.reduce((sum, { text }) => sum + text.length, 0)
const width = Math.max(...lines.map(lengthOf)) * 7.83 + 40
const height = lines.length * 18 + 36
const rows = lines.map((parts, index) => {
  const spans = parts
    .filter(({ text }) => text !== '')
    .map(({ text, code }) =>
      COLOURS[code] === undefined ? escape(text) : `<tspan fill="${COLOURS[code]}">${escape(text)}</tspan>`,
    )
  return `<text x="20" y="${32 + index * 18}" fill="#e6edf3" xml:space="preserve">${spans.join('')}</text>`
})
const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${Math.ceil(width)} ${height}" font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="13">
<title>What npm start prints</title>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
${rows.join('\n')}
</svg>
`
writeFileSync(`${root}docs/first-sync.svg`, svg)
