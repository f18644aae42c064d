import { type Completable, optionsWithValues, quoted } from './tree.ts'

/** For a folder of $fpath, or to be sourced after compinit. */
export function zshScript(all: readonly Completable[]): string {
  const commands = all.flatMap(({ path }) => (path === '' ? [] : [quoted(path)]))
  const withValue = [
    ...new Set(optionsWithValues(all).flatMap(({ options }) => options.map((option) => option.split('/')[1]!))),
  ]
  const values = optionsWithValues(all).flatMap(({ options, takes }) => [
    `    ${options.map(quoted).join('|')})`,
    takes === 'file'
      ? '      _files'
      : takes === 'text' || takes === 'nothing'
        ? "      _message 'a value'"
        : `      compadd -- ${takes.map(quoted).join(' ')}`,
    '      return ;;',
  ])
  const described = (name: string, about: string) => quoted(`${name.replaceAll(':', '\\:')}:${about}`)
  const words = all.map(({ path, subcommands, options, values: own }) => {
    const names = [...subcommands.map(({ name, about }) => described(name, about)), ...own.map(quoted)]
    return [
      `    ${quoted(path)})`,
      `      names=(${names.join(' ')})`,
      `      options=(${options.map(({ long, about }) => described(long, about)).join(' ')}) ;;`,
    ].join('\n')
  })
  return `#compdef visibility-sync
# zsh completion for visibility-sync; made by "visibility-sync completion zsh"
_visibility_sync() {
  local at='' word previous="\${words[CURRENT-1]}" i
  local -a names options
  for ((i = 2; i < CURRENT; i++)); do
    word="\${words[i]}"
    case "$word" in
      ${withValue.join('|')}) ((i++)); continue ;;
      -*) continue ;;
    esac
    case "\${at:+$at }$word" in
      ${commands.join('|')}) at="\${at:+$at }$word" ;;
    esac
  done
  case "$at/$previous" in
${values.join('\n')}
  esac
  case "$at" in
${words.join('\n')}
  esac
  if [[ "$PREFIX" != -* ]] && (($#names)); then _describe -t commands command names; fi
  _describe -o -t options option options
}
if [[ "\${zsh_eval_context[-1]}" == loadautofunc ]]; then _visibility_sync "$@"; else compdef _visibility_sync visibility-sync; fi
`
}
