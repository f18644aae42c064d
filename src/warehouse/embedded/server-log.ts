import { chmodSync, closeSync, fstatSync, openSync, renameSync, writeSync } from 'node:fs'

const TAIL_CHARACTERS = 4000
const MOST_BYTES = 5 * 1024 * 1024

/**
 * The server's log: readable by its owner alone, since statements hold data, and no larger than twice its limit, in the
 * file and its predecessor `.1`. It also remembers its end: a full disk keeps the end of a log out of its file.
 */
export class ServerLog {
  readonly path: string
  readonly #notice: (text: string) => void
  readonly #mostBytes: number
  #file: number | undefined
  #bytes = 0
  #tail = ''

  /** `notice` is called with everything that is written. */
  constructor(path: string, notice: (text: string) => void = () => {}, mostBytes = MOST_BYTES) {
    this.path = path
    this.#notice = notice
    this.#mostBytes = mostBytes
    this.#open()
  }

  write(chunk: Buffer): void {
    const text = chunk.toString()
    this.#tail = (this.#tail + text).slice(-TAIL_CHARACTERS)
    this.#notice(text)
    if (this.#bytes >= this.#mostBytes) this.#rotate()
    if (this.#file === undefined) return
    try {
      this.#bytes += writeSync(this.#file, chunk)
    } catch {
      // Nothing can be logged on a full disk; the server must not wait for it.
    }
  }

  /** Forgets the end, before a new attempt. */
  forgetTail(): void {
    this.#tail = ''
  }

  /** The last lines that were written by this process. */
  tail(lines = 8): string {
    return this.#tail.trimEnd().split('\n').slice(-lines).join('\n')
  }

  close(): void {
    if (this.#file !== undefined) closeSync(this.#file)
    this.#file = undefined
  }

  #open(flags = 'a'): void {
    try {
      this.#file = openSync(this.path, flags, 0o600)
      chmodSync(this.path, 0o600)
      this.#bytes = fstatSync(this.#file).size
    } catch {
      this.#file = undefined
    }
  }

  #rotate(): void {
    this.close()
    try {
      renameSync(this.path, `${this.path}.1`)
      this.#open()
    } catch {
      // If the old lines cannot be kept, the limit still holds.
      this.#open('w')
    }
  }
}
