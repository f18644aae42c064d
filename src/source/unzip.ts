import { promisify } from 'node:util'
import { gunzip, gunzipSync } from 'node:zlib'
import { codeOf } from '../core/errors.ts'
import { type Body, LARGE_BYTES } from './body.ts'

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
  await body.takeTurn(signal)
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
