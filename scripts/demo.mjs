// npm run demo: serve on the reference service and an embedded Postgres of its own, whatever is configured.
import { copyFileSync, mkdirSync } from 'node:fs'
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

const at = (path) => fileURLToPath(new URL(`../${path}`, import.meta.url))
const args = process.argv.slice(2)
if (args.some((word) => word === '--config' || word.startsWith('--config='))) {
  console.error('demo: it has a configuration of its own; for yours run "npx visibility-sync serve --config FILE"')
  process.exit(2)
}

// Only what has nothing to do with the program stays: no variable can name another database or service.
const KEPT = /^(PATH|HOME|USER|LOGNAME|SHELL|TERM|COLORTERM|NO_COLOR|FORCE_COLOR|LANG|LC_.*|TZ|TMPDIR|LOG_.*|NODE_.*)$/
for (const name of Object.keys(process.env)) if (!KEPT.test(name)) delete process.env[name]
process.env.VISIBILITY_API_URL = 'reference'
process.env.LOG_LEVEL ||= 'warn'

const folder = resolve('.data/demo')
mkdirSync(folder, { recursive: true })
process.chdir(folder)
// A copy, so that no .env beside the original is read.
copyFileSync(at('config/demo.yaml'), 'demo.yaml')
console.error('Demo:      synthetic data; to start anew, delete the folder of the warehouse')

// In this process, so that a signal arrives once. The last --config counts.
process.argv.splice(2, args.length, 'serve', ...args, '--config', 'demo.yaml')
await import('../bin/visibility-sync.js')
