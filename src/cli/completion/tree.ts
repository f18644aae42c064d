import type { Command, Option } from 'commander'

/* The commands as data, from which the scripts for shells are made. */

export interface Completable {
  /** "quarantine list"; empty for the program itself. */
  path: string
  subcommands: { name: string; about: string }[]
  options: CompletableOption[]
  /** What may stand where an argument is expected. */
  values: string[]
}

export interface CompletableOption {
  long: string
  short: string | undefined
  about: string
  takes: 'nothing' | 'file' | 'text' | readonly string[]
}

const HELP: CompletableOption = { long: '--help', short: '-h', about: 'show this help', takes: 'nothing' }

/** The program and all its commands. `valuesOf` knows the values of options that have a few. */
export function completables(
  command: Command,
  valuesOf: (option: string) => readonly string[] | undefined,
  path: readonly string[] = [],
): Completable[] {
  const own: Completable = {
    path: path.join(' '),
    subcommands: command.commands.map((sub) => ({ name: sub.name(), about: sub.description() })),
    options: [...command.options.map((option) => completableOption(option, valuesOf)), HELP],
    values: command.registeredArguments.flatMap(({ argChoices }) => argChoices ?? []),
  }
  return [own, ...command.commands.flatMap((sub) => completables(sub, valuesOf, [...path, sub.name()]))]
}

function completableOption(
  option: Option,
  valuesOf: (option: string) => readonly string[] | undefined,
): CompletableOption {
  const long = option.long ?? option.flags
  const about = option.description
  if (!option.required && !option.optional) return { long, short: option.short, about, takes: 'nothing' }
  const takes = option.argChoices ?? valuesOf(long) ?? (/<file>/.test(option.flags) ? 'file' : 'text')
  return { long, short: option.short, about, takes }
}

/** "sync/--stream": an option of a command, as the scripts name it. */
export function optionsWithValues(
  all: readonly Completable[],
): { options: string[]; takes: CompletableOption['takes'] }[] {
  const groups = new Map<string, { options: string[]; takes: CompletableOption['takes'] }>()
  for (const { path, options } of all) {
    for (const { long, takes } of options) {
      if (takes === 'nothing') continue
      const key = JSON.stringify(takes)
      const group = groups.get(key) ?? { options: [], takes }
      groups.set(key, group)
      group.options.push(`${path}/${long}`)
    }
  }
  return [...groups.values()]
}

/** As every one of the shells takes it: no character within single quotes means anything but the quote itself. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", '’')}'`
}
