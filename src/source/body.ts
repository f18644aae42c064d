import { promisify } from 'node:util'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { gunzip, gunzipSync } from 'node:zlib'
import { codeOf } from '../core/errors.ts'
import { unlessStopped } from '../core/waiting.ts'

/*
 * The bytes of an answer, gathered as they come, in memory that serves one answer after the other: left to the garbage
 * collector, the pieces of answers that were read long ago pile up to several times what those under way need.
 */

const FIRST_BYTES = 65_536
const KEPT = 8
/** Answers beyond this size are read one at a time: each may take as much memory as all others together. */
export const LARGE_BYTES = 8_388_608

/** Memory that the answers of one client share. Without spare memory, a first load of half a million rows takes 47 MB more. */
export class BodyMemory {
  readonly spare: Buffer[] = []
  /** Resolved when all who asked for a turn before have given it back. */
  turns = Promise.resolve()
}

export class Body {
  private memory: Buffer
  private used = 0
  private endTurn: (() => void) | undefined

  /** @param largest how many bytes an answer may have */
  constructor(
    private readonly shared: BodyMemory,
    private readonly largest: number,
  ) {
    this.memory = shared.spare.pop() ?? Buffer.allocUnsafeSlow(FIRST_BYTES)
  }

  get length(): number {
    return this.used
  }

  /** The bytes so far. They are valid until `release`. */
  get bytes(): Buffer {
    return this.memory.subarray(0, this.used)
  }

  add(piece: Buffer): void {
    const needed = this.used + piece.length
    if (needed > this.memory.length) {
      // Pages that are not written to take no memory, and copying a large answer over and over would take twice as much.
      const enough = needed > LARGE_BYTES ? Math.max(needed, this.largest + FIRST_BYTES) : this.memory.length * 2
      const larger = Buffer.allocUnsafeSlow(Math.max(needed, enough))
      this.bytes.copy(larger)
      this.memory = larger
    }
    piece.copy(this.memory, this.used)
    this.used = needed
  }

  /** Waits until no other large answer is being read; the turn ends with `release`. */
  async waitForTurn(signal: AbortSignal | undefined): Promise<void> {
    if (this.endTurn !== undefined) return
    const before = this.shared.turns
    this.shared.turns = new Promise((resolve) => {
      // A reader that gives up while it waits must not admit the next one early.
      this.endTurn = () => void before.then(resolve)
    })
    await unlessStopped(before, signal)
  }

  /** Gives the memory to the next answer. */
  release(): void {
    const { spare } = this.shared
    if (this.memory.length <= LARGE_BYTES && spare.length < KEPT) spare.push(this.memory)
    this.memory = Buffer.alloc(0)
    this.used = 0
    if (this.endTurn === undefined) return
    reclaimMemory()
    this.endTurn()
    this.endTurn = undefined
  }
}

/**
 * Has the garbage collector run now. Left alone, it lets what an answer of many megabytes was made into pile up to several
 * times the answer. It takes some hundredths of a second, so it is for large answers only.
 */
export function reclaimMemory(): void {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  collect()
}

const gunzipAsync = promisify(gunzip)
const SMALLEST_PIECE = 65_536
// So much is unpacked within some milliseconds, at less cost than handing it to another thread.
const SMALL_BYTES = 1_048_576

/** Unpacks an answer. One that turns out large waits for its turn. */
export async function unzipBody(body: Body, mostBytes: number, signal: AbortSignal | undefined): Promise<Buffer> {
  const { bytes } = body
  if (claimedSize(bytes) <= LARGE_BYTES) {
    try {
      return await unzip(bytes, Math.min(LARGE_BYTES, mostBytes))
    } catch (error) {
      if (!isTooLarge(error) || mostBytes <= LARGE_BYTES) throw error
    }
  }
  await body.waitForTurn(signal)
  return unzip(bytes, mostBytes)
}

/** Unpacks into memory of the right size at once: pieces that are put together take twice as much. */
export async function unzip(packed: Buffer, mostBytes: number): Promise<Buffer> {
  const claimed = Math.min(claimedSize(packed), mostBytes)
  const chunkSize = Math.max(SMALLEST_PIECE, claimed + 1)
  if (packed.length <= SMALL_BYTES && claimed <= SMALL_BYTES) {
    try {
      return gunzipSync(packed, { maxOutputLength: claimed + 1, chunkSize })
    } catch (error) {
      if (!isTooLarge(error)) throw error
    }
  }
  return gunzipAsync(packed, { maxOutputLength: mostBytes, chunkSize })
}

export function isTooLarge(error: unknown): boolean {
  return codeOf(error) === 'ERR_BUFFER_TOO_LARGE'
}

/** How many bytes come out, by what gzip writes at its end. It may be wrong: an answer may have several parts. */
function claimedSize(packed: Buffer): number {
  return packed.length < 4 ? 0 : packed.readUInt32LE(packed.length - 4)
}
