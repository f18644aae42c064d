/** Takes the items of an answer while it is being parsed, so that only a batch of them is alive at once. */
export interface Intake {
  /** An answer begins; what an earlier attempt gave does not count. `whole` where all items come at once. */
  begin(suspectText: boolean, whole: boolean): void
  /** False asks for all items at once, from the beginning. `origin` is where a single item was read. */
  take(items: unknown[], origin?: Origin): boolean
  /** Takes the item that begins here without parsing it, and gives where it ends; -1 where it has to be parsed. */
  takeFamiliar?(bytes: Buffer, start: number): number
}

export interface Origin {
  bytes: Buffer
  start: number
  end: number
}

// Measured: smaller batches cost more calls, larger ones survive long enough to be copied by the garbage collector.
const BATCH_BYTES = 196_608
const BETWEEN_ITEMS = Buffer.from('},{')
const UP_TO_ITEMS = /^\s*\{(?:\s*"\w+"\s*:\s*(?:-?\d+|null|true|false)\s*,)*\s*"data"\s*:\s*\[/
const LONGEST_START = 256

/**
 * Parses `{"data": […], …}` in batches of whole items. Where `},{` stands, an item most likely ends. A batch that was cut
 * elsewhere, inside a text or a nested list, is no valid list; then the answer is parsed as one, and `intake` begins again.
 * Gives the rest of the answer and how many items there were. Throws what JSON.parse throws.
 */
export async function parseItems(bytes: Buffer, suspectText: boolean, intake: Intake): Promise<ParsedAnswer> {
  const parsed = await parseInBatches(bytes, suspectText, intake).catch((error: unknown) => {
    if (error instanceof SyntaxError) return undefined
    throw error
  })
  if (parsed !== undefined) return parsed
  const body = JSON.parse(bytes.toString('utf8')) as { data?: unknown } | null
  const items = body?.data
  if (!Array.isArray(items)) return { body, count: 0 }
  intake.begin(suspectText, true)
  intake.take(items)
  return { body: { ...body, data: [] }, count: items.length }
}

interface ParsedAnswer {
  /** The answer without its items. */
  body: unknown
  count: number
}

/** Undefined where the answer has to be parsed as one. */
async function parseInBatches(bytes: Buffer, suspectText: boolean, intake: Intake): Promise<ParsedAnswer | undefined> {
  const start = UP_TO_ITEMS.exec(bytes.toString('utf8', 0, LONGEST_START))?.[0]
  if (start === undefined) return undefined
  intake.begin(suspectText, false)
  const begun = await takeFamiliar(bytes, Buffer.byteLength(start), intake)
  if (begun === undefined) return undefined
  let { at, count } = begun
  for (;;) {
    const cut = at + BATCH_BYTES < bytes.length ? bytes.indexOf(BETWEEN_ITEMS, at + BATCH_BYTES) : -1
    if (cut < 0) break
    const items = JSON.parse(`[${bytes.toString('utf8', at, cut + 1)}]`) as unknown[]
    count += items.length
    if (!intake.take(items)) return undefined
    at = cut + 2
    // Sockets are served in between: the database gets the page before this one while this one is parsed.
    await new Promise(setImmediate)
  }
  const tail = bytes.toString('utf8', at)
  // A second list of this name would win over the first.
  if (count > 0 && /"data"\s*:/.test(tail)) return undefined
  const { data, ...rest } = JSON.parse(start + tail) as { data: unknown }
  if (!Array.isArray(data) || !intake.take(data)) return undefined
  return { body: { ...rest, data: [] }, count: count + data.length }
}

// So many items may have to be parsed one by one before it is judged whether that pays.
const FIRST_ITEMS = 100
const COMMA = 0x2c
// Between so many bytes others are served: what the database answers should not wait long.
const PAUSE_BYTES = 32_768

/**
 * Takes items one by one as long as most of them are familiar, and gives how far it came. What remains is parsed in
 * batches; undefined where all has to be parsed as one.
 */
async function takeFamiliar(
  bytes: Buffer,
  start: number,
  intake: Intake,
): Promise<{ at: number; count: number } | undefined> {
  let at = start
  let count = 0
  let parsed = 0
  let pauseAt = at + PAUSE_BYTES
  if (intake.takeFamiliar === undefined) return { at, count }
  for (;;) {
    let end = intake.takeFamiliar(bytes, at)
    if (end < 0) {
      const cut = bytes.indexOf(BETWEEN_ITEMS, at)
      if (cut < 0 || (parsed >= FIRST_ITEMS && parsed * 3 > count)) return { at, count }
      end = cut + 1
      parsed++
      if (!intake.take([JSON.parse(bytes.toString('utf8', at, end))], { bytes, start: at, end })) return undefined
    }
    count++
    at = end
    if (bytes[at] !== COMMA) return { at, count }
    at++
    if (at < pauseAt) continue
    pauseAt = at + PAUSE_BYTES
    await new Promise(setImmediate)
  }
}
