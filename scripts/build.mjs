// Compiles src/ to dist/. Runs at the end of `npm ci`; an install without development tools keeps the dist/ it was shipped with.
import { execFileSync } from 'node:child_process'
import { cpSync, existsSync, rmSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const compiler = `${root}node_modules/typescript/bin/tsc`

if (!existsSync(compiler)) {
  if (existsSync(`${root}dist/main.js`)) process.exit(0)
  console.error('visibility-sync is not built, and TypeScript is not installed: run "npm ci" without --omit=dev.')
  process.exit(1)
}
rmSync(`${root}dist`, { recursive: true, force: true })
execFileSync(process.execPath, [compiler, '-p', `${root}tsconfig.build.json`], { stdio: 'inherit' })
cpSync(`${root}src/web/assets`, `${root}dist/web/assets`, { recursive: true })
