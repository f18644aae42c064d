// npm run demo: serve on the embedded Postgres and the reference service, whatever the environment says.
import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const at = (path) => fileURLToPath(new URL(`../${path}`, import.meta.url))
const { VISIBILITY_API_URL: _url, VISIBILITY_PROJECTS: _projects, DATABASE_URL: _database, ...env } = process.env
const child = spawn(
  process.execPath,
  [at('bin/visibility-sync.js'), 'serve', '--config', at('config/demo.yaml'), ...process.argv.slice(2)],
  { stdio: 'inherit', env: { LOG_LEVEL: 'warn', ...env } },
)
for (const name of ['SIGINT', 'SIGTERM']) process.on(name, () => child.kill(name))
child.on('exit', (code) => {
  process.exitCode = code ?? 1
})
