import type { Argument, Command, Option } from 'commander'
import { UsageError } from '../core/errors.ts'
import type { Session, SessionKind } from './session.ts'

export type Action<O, A extends unknown[]> = (session: Session, options: O, ...args: A) => Promise<number>

/** What sets a command apart, beside its name, its help and its work. */
export interface CommandSettings extends SessionKind {
  options?: Option[]
  /** Instead of those in the name. */
  arguments?: Argument[]
  parent?: Command
}

/** Adds a command whose work is loaded when it runs. */
export type Add = <O extends object, A extends unknown[] = []>(
  name: string,
  about: string,
  examples: string[],
  load: () => Promise<Action<O, A>>,
  settings?: CommandSettings,
) => void

/* How the values of options are read. */

/** An option that may be repeated. */
export function collect(value: string, before: string[] | undefined): string[] {
  return [...(before ?? []), value]
}

export function wholeNumber(option: string, from: number, to: number): (text: string) => number {
  return (text) => {
    const value = Number(text)
    if (/^\d+$/.test(text) && value >= from && value <= to) return value
    throw new UsageError(`${option}: got "${text}"; allowed: a whole number from ${from} to ${to}`)
  }
}
