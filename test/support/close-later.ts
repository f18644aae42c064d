/* Helpers of tests close what they open by themselves: after the test that opened it, or after the file if no test did. */

const ofTest: (() => Promise<unknown>)[] = []
const ofFile: (() => Promise<unknown>)[] = []
let isInTest = false

/** Remembers how something is closed, which happens once: when the result is called, or at the end. */
export function closeLater(close: () => unknown): () => Promise<void> {
  let closed: Promise<void> | undefined
  const once = () => {
    closed ??= Promise.resolve(close()).then(() => {})
    return closed
  }
  ;(isInTest ? ofTest : ofFile).push(once)
  return once
}

export function beginTest(): void {
  isInTest = true
}

/** What was opened last is closed first. */
export async function endTest(): Promise<void> {
  isInTest = false
  for (const close of ofTest.splice(0).reverse()) await close()
}

export async function endFile(): Promise<void> {
  for (const close of ofFile.splice(0).reverse()) await close()
}
