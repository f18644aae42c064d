import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

const root = packageRoot()

/** The folder that package.json is in. How deep this file lies below it depends on whether it is bundled. */
function packageRoot(): URL {
  let folder = new URL('.', import.meta.url)
  while (!existsSync(new URL('package.json', folder))) {
    const parent = new URL('..', folder)
    if (parent.href === folder.href) throw new Error(`no package.json above ${import.meta.url}`)
    folder = parent
  }
  return folder
}

export function packageFile(path: string): URL {
  return new URL(path, root)
}

export function dependencyFile(name: string): string {
  return createRequire(packageFile('package.json')).resolve(name)
}

export function packageVersion(): string {
  return packageFacts().version
}

export function packageFacts(): { version: string; dependencies: Record<string, string> } {
  return JSON.parse(readFileSync(packageFile('package.json'), 'utf8')) as ReturnType<typeof packageFacts>
}
