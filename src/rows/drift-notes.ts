import { clip } from '../core/text.ts'
import { safeJson } from './raw-text.ts'

/** Something in an answer that the API does not document: noted once, never an error. */
export interface DriftNote {
  kind: 'field' | 'colour' | 'country' | 'total' | 'short_page' | 'long_page' | 'duplicate' | 'secret'
  name: string
  example: string
}

// So many show that the service changed; more of them add nothing.
const MOST_NOTES = 200
const LONGEST_NAME = 100

/** Collects notes, each kind and name once. */
export class DriftNotes {
  readonly list: DriftNote[] = []
  private readonly noted = new Set<string>()

  add(kind: DriftNote['kind'], name: string, example: unknown): void {
    const short = name.length <= LONGEST_NAME ? name : name.slice(0, LONGEST_NAME)
    const key = `${kind} ${short}`
    if (this.noted.has(key) || this.list.length >= MOST_NOTES) return
    this.noted.add(key)
    this.list.push({ kind, name: clip(name, LONGEST_NAME), example: clip(safeJson(example), 300) })
  }
}
