import { unlessStopped } from '../core/waiting.ts'

/** Answers beyond this size are read one at a time: each may take as much memory as all others together. */
const LARGE_BYTES = 8_388_608

/** Admits one at a time, in the order of their calls. */
export class Turns {
  private last = Promise.resolve()

  /** Gives the function that ends the turn. */
  async begin(signal: AbortSignal | undefined): Promise<() => void> {
    const before = this.last
    let end = () => {}
    const own = new Promise<void>((resolve) => (end = resolve))
    this.last = before.then(() => own)
    await unlessStopped(before, signal).catch((error: unknown) => {
      end()
      throw error
    })
    return end
  }
}

/** Collects an answer up to `mostBytes` and one piece. A large one waits for `turn`. */
export async function collect(
  pieces: AsyncIterable<Buffer>,
  mostBytes: () => number,
  turn: () => Promise<void>,
): Promise<Buffer> {
  const collected: Buffer[] = []
  let length = 0
  for await (const piece of pieces) {
    if (length <= LARGE_BYTES && length + piece.length > LARGE_BYTES) await turn()
    collected.push(piece)
    length += piece.length
    if (length > mostBytes()) break
  }
  return Buffer.concat(collected, length)
}
