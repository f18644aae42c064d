import type { Argument, Command, Option } from 'commander'
import { shownText } from '../core/config/describe-issue.ts'
import { UsageError } from '../core/errors.ts'
import type { Session, SessionKind } from './session.ts'

type Action<O, A extends unknown[]> = (session: Session, options: O, ...args: A) => Promise<number>

export interface CommandSettings<O extends object, A extends unknown[]> extends SessionKind {
  name: string
  about: string
  examples: string[]
  /** Loads its work when it runs, so that --help is instant. */
  load: () => Promise<Action<O, A>>
  options?: Option[]
  /** Instead of those in the name. */
  arguments?: Argument[]
  parent?: Command
}

export type Add = <O extends object, A extends unknown[] = []>(settings: CommandSettings<O, A>) => void

export function collect(value: string, before: string[] | undefined): string[] {
  return [...(before ?? []), value]
}

export function wholeNumber(option: string, from: number, to: number): (text: string) => number {
  return (text) => {
    const value = Number(text)
    if (/^\d+$/.test(text) && value >= from && value <= to) return value
    throw new UsageError(`${option}: got ${shownText(text, 40)}; allowed: a whole number from ${from} to ${to}`)
  }
}
