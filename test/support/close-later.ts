/* Helpers of tests close what they open by themselves: after the test that opened it, or after the file if no test did. */

const ofTest: (() => Promise<unknown>)[] = []
const ofFile: (() => Promise<unknown>)[] = []
let isInTest = false

/** Remembers how something is closed, which happens once: when the result is called, or at the end. */
export function closeLater(close: () => unknown): () => Promise<void> {
  let closed: Promise<void> | undefined
  const once = () => {
    closed ??= Promise.resolve()
      .then(close)
      .then(() => {})
    return closed
  }
  ;(isInTest ? ofTest : ofFile).push(once)
  return once
}

export function beginTest(): void {
  isInTest = true
}

export async function endTest(): Promise<void> {
  isInTest = false
  await closeAll(ofTest)
}

export async function endFile(): Promise<void> {
  await closeAll(ofFile)
}

/** What was opened last is closed first. A failure does not keep the others open. */
async function closeAll(opened: (() => Promise<unknown>)[]): Promise<void> {
  const failures: unknown[] = []
  for (const close of opened.splice(0).reverse()) await close().catch((error: unknown) => failures.push(error))
  if (failures.length > 0) throw failures[0]
}
