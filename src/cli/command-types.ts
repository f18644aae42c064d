import type { Argument, Command, Option } from 'commander'
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
