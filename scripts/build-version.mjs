import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))

/** The folder of an earlier version, built there from its commit once. */
export function buildVersion(commit) {
  const id = execFileSync('git', ['rev-parse', '--short=12', commit], { cwd: root, encoding: 'utf8' }).trim()
  const place = join(root, '.data', `version-${id}`)
  if (!existsSync(join(place, 'dist'))) {
    mkdirSync(place, { recursive: true })
    const archive = execFileSync('git', ['archive', id], { cwd: root, maxBuffer: 2 ** 30 })
    execFileSync('tar', ['-x', '-C', place], { input: archive })
    execFileSync('npm', ['ci', '--no-audit', '--no-fund'], { cwd: place, stdio: ['ignore', 'ignore', 'inherit'] })
  }
  return place
}
