import { type Completable, optionsWithValues, quoted } from './tree.ts'

/** Works in bash 3.2 and later, without the bash-completion package. */
export function bashScript(all: readonly Completable[]): string {
  const commands = all.flatMap(({ path }) => (path === '' ? [] : [quoted(path)]))
  const withValue = [
    ...new Set(optionsWithValues(all).flatMap(({ options }) => options.map((option) => option.split('/')[1]!))),
  ]
  const values = optionsWithValues(all).flatMap(({ options, takes }) => [
    `    ${options.map(quoted).join('|')})`,
    ...(takes === 'file'
      ? ['      compopt -o filenames 2>/dev/null', '      COMPREPLY=($(compgen -f -- "$cur"))']
      : takes === 'text' || takes === 'nothing'
        ? []
        : [`      COMPREPLY=($(compgen -W ${quoted(takes.join(' '))} -- "$cur"))`]),
    '      return ;;',
  ])
  const words = all.map(({ path, subcommands, options, values: own }) => {
    const some = [...subcommands.map(({ name }) => name), ...own, ...options.map(({ long }) => long)]
    return `    ${quoted(path)}) words=${quoted(some.join(' '))} ;;`
  })
  return `# bash completion for visibility-sync; made by "visibility-sync completion bash"
_visibility_sync() {
  local cur="\${COMP_WORDS[COMP_CWORD]}" prev="\${COMP_WORDS[COMP_CWORD-1]}" at='' word words='' i
  COMPREPLY=()
  # bash parts --option=value at the equals sign.
  if [[ $cur == '=' ]]; then cur=''; elif [[ $prev == '=' ]]; then prev="\${COMP_WORDS[COMP_CWORD-2]}"; fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="\${COMP_WORDS[i]}"
    case "$word" in
      ${withValue.join('|')})
        if [[ \${COMP_WORDS[i+1]} == '=' ]]; then i=$((i + 2)); else i=$((i + 1)); fi
        continue ;;
      -*) continue ;;
    esac
    case "\${at:+$at }$word" in
      ${commands.join('|')}) at="\${at:+$at }$word" ;;
    esac
  done
  case "$at/$prev" in
${values.join('\n')}
  esac
  case "$at" in
${words.join('\n')}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -F _visibility_sync visibility-sync
`
}
