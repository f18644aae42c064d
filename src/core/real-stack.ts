import { readFileSync } from 'node:fs'
import { SourceMap, type SourceMapPayload } from 'node:module'
import { fileURLToPath } from 'node:url'

// No part of a place may hold what another one begins with, so that a hostile message takes linear time.
const FRAME = /(?:file:\/\/|(?<=[( ])\/)[^\s(:]+\.c?js(?=:\d+:\d+)/

/**
 * A stack whose places are those of the sources, not of the bundle. Node could do so by itself, but would then read the
 * maps of all files at each start.
 */
export function realStack(stack: string): string {
  const maps = new Map<string, SourceMap | undefined>()
  return stack
    .split('\n')
    .map((line) => {
      const file = FRAME.exec(line)?.[0]
      if (file === undefined) return line
      if (!maps.has(file)) maps.set(file, mapOf(file))
      const [found, row, column] = /:(\d+):(\d+)/.exec(line.slice(line.indexOf(file) + file.length))!
      const entry = maps.get(file)?.findEntry(Number(row) - 1, Number(column) - 1)
      if (entry === undefined || !('originalSource' in entry)) return line
      const source = entry.originalSource.replace(/^(\.\.\/)+/, '')
      return line.replace(file + found, `${source}:${entry.originalLine + 1}:${entry.originalColumn + 1}`)
    })
    .join('\n')
}

function mapOf(file: string): SourceMap | undefined {
  try {
    const path = file.startsWith('file:') ? fileURLToPath(file) : file
    return new SourceMap(JSON.parse(readFileSync(`${path}.map`, 'utf8')) as SourceMapPayload)
  } catch {
    return undefined
  }
}
