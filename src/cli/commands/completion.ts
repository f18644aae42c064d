import type { Command } from 'commander'
import { type Config, defaultConfig, loadConfig } from '../../core/config/load.ts'
import { UsageError } from '../../core/errors.ts'
import { didYouMean } from '../../core/similar.ts'
import { COLORS, COUNTRIES } from '../../core/vocabulary.ts'
import { faultsSchema } from '../../reference/faults.ts'
import { streamKinds } from '../../streams/registry.ts'
import { bashScript } from '../completion/bash.ts'
import { fishScript } from '../completion/fish.ts'
import { completables } from '../completion/tree.ts'
import { zshScript } from '../completion/zsh.ts'
import type { Session } from '../session.ts'

const SCRIPTS = { bash: bashScript, zsh: zshScript, fish: fishScript }
export const SHELLS = Object.keys(SCRIPTS)

/** `completion`: a script that lets a shell complete commands, options and names of streams. */
export async function completion(session: Session, program: Command, shell: string): Promise<number> {
  const make = Object.entries(SCRIPTS).find(([name]) => name === shell)?.[1]
  if (make === undefined)
    throw new UsageError(`completion: got "${shell}"; allowed: ${SHELLS.join(', ')}${didYouMean(shell, SHELLS)}`)
  const values: Record<string, readonly string[]> = {
    '--stream': streamKinds(configOr(session.configFile)).map(({ name }) => name),
    '--color': COLORS,
    '--country': COUNTRIES,
    '--fault': Object.keys(faultsSchema.shape).map((name) => `${name}=`),
  }
  const script = make(completables(program, (option) => values[option]))
  session.print({ shell, script }, script.trimEnd())
  return 0
}

/** The streams of a configuration that cannot be read are those of none: a shell that starts must not fail for it. */
function configOr(file: string): Config {
  try {
    return loadConfig({ file })
  } catch {
    return defaultConfig()
  }
}
