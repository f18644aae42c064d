import { UsageError } from '../core/errors.ts'
import { didYouMean, listSome } from '../core/text.ts'
import { inert, quoted, quotedList } from './phrases.ts'

/* Names that people say, and the ids that statements need. */

export interface Named {
  id: string
  name: string
}

const plain = (text: string) => inert(text.replaceAll(/^«|»$/g, ''), 255).toLowerCase()
const namesOf = (all: readonly Named[]) => all.map(({ name }) => name)

/** The one that has this id or this name. Nothing is guessed: what is near is only suggested. */
export function find<T extends Named>(kind: string, asked: string, all: readonly T[]): T {
  const [found, ...others] = all.some(({ id }) => id === asked)
    ? all.filter(({ id }) => id === asked)
    : all.filter(({ name }) => plain(name) === plain(asked))
  if (found !== undefined && others.length === 0) return found
  if (found !== undefined) {
    const ids = [found, ...others].map(({ id }) => inert(id))
    throw new UsageError(`several ${kind}s are named ${quoted(asked)}; ask by id: ${listSome(ids)}`)
  }
  const parts = all.filter(({ name }) => plain(asked) !== '' && plain(name).includes(plain(asked)))
  const near = namesOf(parts.length === 1 ? parts : all).map((name) => inert(name))
  const suggestion = parts.length === 1 ? `; did you mean "${near[0]}"?` : didYouMean(inert(asked), near) || ';'
  throw new UsageError(`unknown ${kind} "${inert(asked)}"${suggestion} ${listed(kind, all)}`)
}

export const listed = (kind: string, all: readonly Named[]) => `${kind}s are: ${quotedList(namesOf(all))}`
