import { script } from '@bomb.sh/tab'
import tab from '@bomb.sh/tab/commander'
import type { Command } from 'commander'
import { defaultConfig, loadConfig } from '../core/config/load.ts'
import { UsageError } from '../core/errors.ts'
import { COLORS, COUNTRIES } from '../core/vocabulary.ts'
import { streamKinds } from '../streams/registry.ts'

/* Completion in a shell: `completion` prints a script, which runs the hidden command `complete` at each Tab. */

export function printScript(program: Command, shell: string): number {
  if (program.opts<{ json?: boolean }>().json) throw new UsageError('completion: prints a script; leave --json out')
  script(shell, program.name(), program.name())
  return 0
}

export function addComplete(program: Command): void {
  const values = { stream: streamNames(), color: COLORS, country: COUNTRIES }
  for (const { options } of tab(program).commands.values()) {
    for (const [name, texts] of Object.entries(values)) {
      const option = options.get(name)
      if (option !== undefined)
        option.handler = (complete) => {
          for (const text of texts) complete(text, '')
        }
    }
  }
}

function streamNames(): string[] {
  const names = (config: Parameters<typeof streamKinds>[0]) => streamKinds(config).map(({ name }) => name)
  try {
    return names(loadConfig())
  } catch {
    // A configuration that cannot be read must not stop completion.
    return names(defaultConfig())
  }
}
