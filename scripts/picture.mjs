// Runs the main job and draws what it prints, for the README.
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const output = execFileSync(process.execPath, ['bin/visibility-sync.js', 'sync'], {
  cwd: root,
  encoding: 'utf8',
  stdio: ['ignore', 'pipe', 'ignore'],
})
const lines = ['$ npm ci && npm start', '', ...output.trimEnd().split('\n')]
const escape = (text) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
const width = Math.max(...lines.map((line) => line.length)) * 7.83 + 40
const height = lines.length * 18 + 36
const rows = lines.map((line, index) => {
  const colour = line.startsWith('$') ? '#7ee787' : line.startsWith('Run ') ? '#79c0ff' : '#e6edf3'
  return `<text x="20" y="${32 + index * 18}" fill="${colour}" xml:space="preserve">${escape(line)}</text>`
})
const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${Math.ceil(width)} ${height}" font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="13">
<title>What npm start prints</title>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
${rows.join('\n')}
</svg>
`
writeFileSync(`${root}docs/first-sync.svg`, svg)
