// node scripts/screenshots.mjs: the pictures of both pages in docs/, from the demo on a fresh database.
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { chromium } from 'playwright-core'

const at = (path) => fileURLToPath(new URL(`../${path}`, import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'visibility-sync-pictures-'))
const child = spawn(process.execPath, [at('scripts/demo.mjs'), '--port', '0'], {
  cwd: folder,
  env: { ...process.env, LOG_LEVEL: 'info' },
  stdio: ['ignore', 'pipe', 'pipe'],
})
let output = ''
for (const stream of [child.stdout, child.stderr]) {
  stream.on('data', (data) => {
    output += data
  })
}
while (!output.includes('"run ended"')) await new Promise((done) => setTimeout(done, 100))
const url = /Serving: +(\S+)/.exec(output)[1]
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
})
for (const [path, name, height] of [
  ['/', 'status', 1000],
  ['/insights', 'insights', 1000],
]) {
  const page = await browser.newPage({ viewport: { width: 1200, height } })
  await page.goto(url + path)
  await page.waitForTimeout(700)
  await page.screenshot({ path: at(`docs/${name}.png`) })
  await page.close()
}
await browser.close()
child.kill('SIGTERM')
await new Promise((done) => child.on('exit', done))
rmSync(folder, { recursive: true, force: true })
