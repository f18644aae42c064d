import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { stripVTControlCharacters } from 'node:util'
import { spawn } from '@lydell/node-pty'
import { until } from './cli.ts'
import { closeLater } from './close-later.ts'

export const ENTER = '\r'
export const SPACE = ' '
export const INTERRUPT = '\u0003'
export const DOWN = '\u001b[B'

interface TerminalOptions {
  cwd: string
  env?: Record<string, string>
  columns?: number
}

/** Runs the command in a pseudo-terminal, as a person would. */
export function startInTerminal(args: string[], { cwd, env = {}, columns = 80 }: TerminalOptions) {
  const script = join(fileURLToPath(new URL('../..', import.meta.url)), 'bin/visibility-sync.js')
  const terminal = spawn(process.execPath, [script, ...args], {
    ...{ cwd, cols: columns, rows: 40 },
    env: { PATH: process.env.PATH, HOME: cwd, TERM: 'xterm', ...env },
  })
  let output = ''
  let seen = 0
  let code: number | undefined
  terminal.onData((data) => {
    output += data
  })
  terminal.onExit(({ exitCode }) => {
    code = exitCode
  })
  closeLater(() => {
    if (code === undefined) terminal.kill('SIGKILL')
  })
  const seenBy = (what: string, holds: () => boolean) =>
    until(what, holds).catch((error: Error) => {
      throw new Error(`${error.message} in\n${output}`)
    })
  return {
    /** What was written, with its control sequences. */
    output: () => output,
    /** Waits for a text behind the one before, and types. */
    async answer(text: string, ...keys: string[]) {
      await seenBy(text, () => {
        if (code !== undefined) throw new Error(`ended with ${code} without "${text}":\n${output}`)
        const at = plain(output).indexOf(text, seen)
        if (at >= 0) seen = at + text.length
        return at >= 0
      })
      for (const key of keys) terminal.write(key)
    },
    async ended(): Promise<{ code: number; text: string }> {
      await seenBy('the end', () => code !== undefined)
      return { code: code!, text: plain(output) }
    },
  }
}

function plain(text: string): string {
  return stripVTControlCharacters(text).replaceAll('\r', '')
}
