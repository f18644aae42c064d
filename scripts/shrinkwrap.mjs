// Before packing: npm-shrinkwrap.json from the lock file, so that who installs the package gets the versions that were tested,
// by their checksums. Tools for development are left out, and no host is named: each machine installs from its own registry.
import { readFileSync, writeFileSync } from 'node:fs'

const lock = JSON.parse(readFileSync('package-lock.json', 'utf8'))
const { '': root, ...others } = lock.packages
const { devDependencies: _tools, ...shipped } = root
const kept = Object.entries(others).flatMap(([path, { resolved: _host, ...entry }]) =>
  entry.dev === true ? [] : [[path, entry]],
)
for (const [path, { integrity }] of kept) {
  if (integrity === undefined) throw new Error(`package-lock.json: ${path} has no checksum`)
}
const packages = { '': shipped, ...Object.fromEntries(kept) }
const { name, version, lockfileVersion, requires } = lock
writeFileSync(
  'npm-shrinkwrap.json',
  `${JSON.stringify({ name, version, lockfileVersion, requires, packages }, null, 2)}\n`,
)
