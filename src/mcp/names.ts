import { UsageError } from '../core/errors.ts'
import { didYouMean, listSome } from '../core/text.ts'
import { inert, quoted } from './phrases.ts'

/* Names that people say, and the ids that statements need. */

export interface Named {
  id: string
  name: string
}

const MOST_LISTED = 12
const plain = (text: string) => inert(text.replaceAll(/^«|»$/g, ''), 255).toLowerCase()

export const listNames = (all: readonly Named[]) =>
  listSome(
    all.map(({ name }) => quoted(name)),
    MOST_LISTED,
  )

/** The one that has this id or this name. Nothing is guessed: what is near is only suggested. */
export function find<T extends Named>(kind: string, asked: string, all: readonly T[]): T {
  const byId = all.find(({ id }) => id === asked)
  if (byId !== undefined) return byId
  const wanted = plain(asked)
  const named = all.filter(({ name }) => plain(name) === wanted)
  if (named.length === 1) return named[0]!
  if (named.length > 1)
    throw new UsageError(
      `several ${kind}s are named ${quoted(asked)}; ask by id: ${listSome(named.map(({ id }) => inert(id)))}`,
    )
  if (all.length === 0) throw new UsageError(`unknown ${kind} "${inert(asked)}"; there are none`)
  const parts = all.filter(({ name }) => wanted !== '' && plain(name).includes(wanted))
  const names = parts.length === 1 ? parts : all
  const near =
    parts.length === 1
      ? `; did you mean "${inert(parts[0]!.name)}"?`
      : didYouMean(
          inert(asked),
          names.map(({ name }) => inert(name)),
        )
  throw new UsageError(`unknown ${kind} "${inert(asked)}"${near === '' ? ';' : near} ${kind}s are: ${listNames(all)}`)
}

/** A name as data of an answer. */
export const shown = ({ id, name }: Named, most?: number) => ({ id: inert(id, 255), name: inert(name, most) })
