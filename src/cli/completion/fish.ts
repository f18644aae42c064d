import { type Completable, type CompletableOption, optionsWithValues, quoted } from './tree.ts'

export function fishScript(all: readonly Completable[]): string {
  const commands = all.flatMap(({ path }) => (path === '' ? [] : [quoted(path)]))
  const withValue = [
    ...new Set(optionsWithValues(all).flatMap(({ options }) => options.map((option) => option.split('/')[1]!))),
  ]
  const lines = all.flatMap(({ path, subcommands, options, values }) => {
    const when = `complete -c visibility-sync -n ${quoted(`__visibility_sync_at "${path}"`)}`
    return [
      ...subcommands.map(({ name, about }) => `${when} -a ${quoted(name)} -d ${quoted(about)}`),
      ...values.map((value) => `${when} -a ${quoted(value)}`),
      ...options.map((option) => `${when} ${optionWords(option)} -d ${quoted(option.about)}`),
    ]
  })
  return `# fish completion for visibility-sync; made by "visibility-sync completion fish"
function __visibility_sync_at
    set -l at ''
    set -l skip 0
    for word in (commandline -opc)[2..-1]
        if test $skip = 1
            set skip 0
            continue
        end
        switch $word
            case ${withValue.map(quoted).join(' ')}
                set skip 1
                continue
            case '-*'
                continue
        end
        set -l longer (string trim -- "$at $word")
        if contains -- $longer ${commands.join(' ')}
            set at $longer
        end
    end
    test "$at" = "$argv[1]"
end
complete -c visibility-sync -f
${lines.join('\n')}
`
}

function optionWords({ long, short, takes }: CompletableOption): string {
  const names = `-l ${quoted(long.replace(/^--/, ''))}${short === undefined ? '' : ` -s ${quoted(short.replace('-', ''))}`}`
  if (takes === 'nothing') return names
  if (takes === 'file') return `${names} -r -F`
  return takes === 'text' ? `${names} -x` : `${names} -x -a ${quoted(takes.join(' '))}`
}
