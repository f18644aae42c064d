import { UsageError } from '../core/errors.ts'

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
